// Everything works without this file. It saves clicks: a slider that answers at once, a search that follows the typing,
// a lab that shows a new run by itself.

const texts = JSON.parse(document.body.dataset.texts ?? "{}");
const translate = (text) => texts[text] ?? text;

const interpolate = (curve, pi, read) => {
  const next = Math.max(1, curve.findIndex((point) => point.pi >= pi));
  const [a, b] = [curve[next - 1], curve[next]];
  const share = (pi - a.pi) / (b.pi - a.pi);
  return read(a) + share * (read(b) - read(a));
};

const percent = (share) =>
  share > 0 && share < 0.01 ? translate("under 1 %") : share > 0.99 && share < 1 ? translate("over 99 %") : `${Math.round(100 * share)} %`;

function slide(form) {
  const slider = form.querySelector("input[type=range]");
  const chart = form.querySelector("[data-curve]");
  const saying = form.querySelector("[data-sayings]");
  const sayings = JSON.parse(saying.dataset.sayings);
  const { curve, left, right, top, bottom, most } = JSON.parse(chart ? chart.dataset.curve : "{}");
  const place = (name, pi, value) => {
    const mark = chart.querySelector(`[data-mark=${name}]`);
    mark.setAttribute("cx", left + pi * (right - left));
    mark.setAttribute("cy", bottom - (value / most) * (bottom - top));
  };
  const show = () => {
    const pi = Number(slider.value) / 100;
    const words = sayings.findLast(([from]) => pi >= from)[1].replace("{pi}", Math.round(100 * pi));
    saying.textContent = words;
    slider.setAttribute("aria-valuetext", words);
    if (!chart) return;
    const values = {
      quality: interpolate(curve, pi, (point) => point.quality),
      named: interpolate(curve, pi, (point) => point.named["10"]),
    };
    chart.querySelector("[data-mark=here]").setAttribute("x1", left + pi * (right - left));
    chart.querySelector("[data-mark=here]").setAttribute("x2", left + pi * (right - left));
    for (const [name, value] of Object.entries(values)) {
      place(name, pi, value);
      form.querySelector(`[data-read=${name}]`).textContent =
        name === "quality" && value > 1 ? translate("100 % or more") : percent(value);
    }
  };
  slider.addEventListener("input", show);
}

function follow(form) {
  const target = document.getElementById(form.dataset.follow);
  let waiting, asked = 0;
  const look = async () => {
    const mine = ++asked;
    const address = new URL(form.action);
    address.search = new URLSearchParams(new FormData(form)).toString();
    const answer = await fetch(address, { headers: { "x-part": form.dataset.follow } });
    if (!answer.ok || mine !== asked) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    target.replaceChildren(...page.getElementById(form.dataset.follow).childNodes);
    history.replaceState(null, "", address);
  };
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(look, 180);
  });
}

function watch(sign) {
  let state = sign.dataset.live;
  setInterval(async () => {
    if (document.hidden) return;
    const answer = await fetch(`${document.body.dataset.base}/state`).catch(() => null);
    sign.classList.toggle("is-away", !answer?.ok);
    sign.lastElementChild.textContent = answer?.ok ? "live" : "stopped";
    if (!answer?.ok) return;
    const now = (await answer.json()).state;
    if (now === state) return;
    const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
    if (page.querySelector("[data-wait]")) return;
    state = now;
    document.getElementById("main").replaceChildren(...page.getElementById("main").childNodes);
  }, Number(sign.dataset.every ?? 2000));
}

function wait(sign) {
  const look = async () => {
    const answer = await fetch(sign.dataset.wait).catch(() => null);
    if (answer?.ok && (await answer.json()).state !== "waiting") location.reload();
    else setTimeout(look, 500);
  };
  setTimeout(look, 200);
}

function stand(sign) {
  const badge = sign.querySelector("#badge");
  const words = document.querySelector("[data-standing]");
  setInterval(async () => {
    if (document.hidden) return;
    const answer = await fetch(sign.dataset.state).catch(() => null);
    const now = answer?.ok ? await answer.json() : { state: "closed", badge: translate("Page closed"), tone: "warn", sentence: translate("The program behind this page has ended.") };
    sign.dataset.code = now.state;
    badge.textContent = now.badge;
    badge.title = now.sentence;
    badge.className = `badge ${now.tone}`;
    if (words && words.textContent !== now.sentence) words.textContent = now.sentence;
    if (words) words.className = now.tone === "warn" ? "notice warn" : "stand";
    if (now.has_model && document.querySelector("[data-until-model]")) location.reload();
  }, 2000);
}

function weigh(input) {
  input.addEventListener("change", () => {
    const size = input.files[0]?.size ?? 0;
    const most = Number(input.dataset.most);
    input.setCustomValidity(size > most ? translate("This file is larger than the {n} MB that can be read.").replace("{n}", Math.round(most / 2 ** 20)) : "");
    input.reportValidity();
  });
}

// The installed app: it opens the page of this start by its secret path, which ends with the program.
function install() {
  localStorage.setItem("tacit-base", document.body.dataset.base);
  navigator.serviceWorker?.register("/static/worker.js");
}

async function uninstall() {
  localStorage.clear();
  for (const name of await caches.keys()) await caches.delete(name);
  for (const one of (await navigator.serviceWorker?.getRegistrations()) ?? []) await one.unregister();
}

document.querySelectorAll("[data-installable]").forEach(install);
document.querySelectorAll("[data-erased]").forEach(uninstall);
document.querySelectorAll("form[data-slide]").forEach(slide);
document.querySelectorAll("form[data-follow]").forEach(follow);
document.querySelectorAll("[data-live]").forEach(watch);
document.querySelectorAll("[data-state]").forEach(stand);
document.querySelectorAll("[data-wait]").forEach(wait);
document.querySelectorAll("input[data-most]").forEach(weigh);
