// The installed page starts without a network and without the program: this worker keeps what is below /static/, which
// says nothing of anybody. Its scope is /static/ too, so it never sees a page below the secret path, and keeps none.
const KEPT = "tacit-static";
const FILES = ["app.html", "style.css", "app.js", "icon.svg"].map((name) => `/static/${name}`);

self.addEventListener("install", (event) => {
  self.skipWaiting();
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" })))));
});

self.addEventListener("fetch", (event) => {
  const { pathname } = new URL(event.request.url);
  if (event.request.method !== "GET" || !FILES.includes(pathname)) return;
  event.respondWith(fetch(event.request).catch(() => caches.match(pathname)));
});
