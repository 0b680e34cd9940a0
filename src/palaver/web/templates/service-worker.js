// Show a page of our own while the gateway cannot be reached. Nothing but our own files is kept.
const NAME = {{ name | tojson }};
const FILES = {{ files | tojson }};
const OFFLINE = "/offline";

addEventListener("install", (event) => {
  // A request that leaves with its page must not wait for us: by then nobody would pass it on.
  event.addRoutes?.({ condition: { requestMethod: "POST" }, source: "network" });
  skipWaiting();
  // Where the browser can, live events and calls do not pass through here at all.
  for (const pathname of ["/events", "/api/*"]) event.addRoutes?.({ condition: { urlPattern: { pathname } }, source: "network" });
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll([OFFLINE, ...FILES])));
});

addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) if (name.startsWith("palaver") && name !== NAME) await caches.delete(name);
    await clients.claim();
  })());
});

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.mode === "navigate" && request.method === "GET") {
    event.respondWith(fetch(request).catch(() => caches.match(OFFLINE)));
  } else if (FILES.includes(new URL(request.url).pathname)) {
    event.respondWith(caches.match(request).then((known) => known ?? fetch(request)));
  }
});
