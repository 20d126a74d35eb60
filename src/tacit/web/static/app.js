// The first page of the installed app. It knows the secret path of the start that was open last; that path is worth
// nothing after the program ends.
const show = (name) => document.querySelectorAll("[data-when]").forEach((part) => (part.hidden = part.dataset.when !== name));

async function look() {
  const base = localStorage.getItem("tacit-base");
  const alive = await fetch("/static/manifest.webmanifest", { cache: "no-store" }).then((a) => a.ok).catch(() => false);
  const answer = base && (await fetch(`${base}/state`).catch(() => null));
  if (answer?.ok) return location.replace(`${base}/`);
  show(alive && answer !== null ? "closed" : "away");
  setTimeout(look, 2000);
}
look();
