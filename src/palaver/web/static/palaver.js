// Live parts, and forms that do not leave the page.
// An element with an id and data-live="topics" is fetched again and replaced when one of its topics changes.
"use strict";
(() => {
  const csrf = document.querySelector("meta[name=csrf]")?.content;
  const status = document.getElementById("connection");
  const stale = new Map();
  let fetching = false;

  const showStatus = (text) => { if (status && status.textContent !== text) status.textContent = text; };

  // Live parts

  // Returns whether the gateway answered, even with 404.
  async function refresh(address, ids) {
    const answer = await fetch(address, { headers: { "x-fragment": ids.join(" ") }, credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return true; }
    if (!answer.ok) return answer.status < 500;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ids) swap(document.getElementById(id), fresh.getElementById(id));
    return true;
  }

  function swap(old, fresh) {
    if (!old || !fresh) return;
    if (!("keyed" in old.dataset)) keepOpen(old, fresh);
    if (old.isEqualNode(fresh)) return;
    const held = old.contains(document.activeElement) ? document.activeElement.id : "";
    if ("keyed" in old.dataset) { merge(old, fresh); old.dispatchEvent(new CustomEvent("palaver:fresh", { bubbles: true })); return; }
    const atEnd = old.scrollHeight - old.scrollTop - old.clientHeight < 40;
    old.replaceWith(document.adoptNode(fresh));
    if (held) document.getElementById(held)?.focus();
    if (atEnd) fresh.scrollTop = fresh.scrollHeight;
    fresh.dispatchEvent(new CustomEvent("palaver:fresh", { bubbles: true }));
  }

  // What a reader opened stays open.
  function keepOpen(old, fresh) {
    const folds = [...old.querySelectorAll("details")];
    [...fresh.querySelectorAll("details")].forEach((fold, at) => { fold.open = folds[at]?.open ?? fold.open; });
  }

  // In a list with data-keyed, replace only the children that differ: focus, open details and scrolling stay.
  function merge(old, fresh) {
    const held = old.contains(document.activeElement) ? document.activeElement.id : "";
    const known = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
    let place = old.firstElementChild;
    for (const each of [...fresh.children]) {
      const before = each.id && known.get(each.id);
      if (before) {
        known.delete(each.id);
        keepOpen(before, each);
      }
      const keeps = before && before.isEqualNode(each);
      const shown = keeps ? before : document.adoptNode(each);
      if (before && !keeps) { if (place === before) place = before.nextElementSibling; before.remove(); }
      if (shown === place) place = place.nextElementSibling; else old.insertBefore(shown, place);
    }
    while (place) { const next = place.nextElementSibling; place.remove(); place = next; }
    for (const gone of known.values()) gone.remove();
    for (const { name, value } of [...fresh.attributes]) old.setAttribute(name, value);
    if (held && document.activeElement?.id !== held) document.getElementById(held)?.focus({ preventScroll: true });
  }

  function touch(topics) {
    for (const part of document.querySelectorAll("[data-live][id]")) {
      if (!part.dataset.live.split(/\s+/).some((topic) => topics.includes(topic) || topics.includes("*"))) continue;
      mark(part.dataset.src || location.href, [part.id]);
    }
    catchUp();
  }

  const mark = (address, ids) => stale.set(address, new Set([...(stale.get(address) || []), ...ids]));
  const pause = (time) => new Promise((done) => setTimeout(done, time));

  // Fetch a page at most a few times per second, and not while it is hidden.
  async function catchUp() {
    if (fetching) return;
    fetching = true;
    let fails = false;
    while (stale.size && !fails && !document.hidden) {
      const [address, ids] = stale.entries().next().value;
      stale.delete(address);
      fails = !(await refresh(address, [...ids]).catch(() => false));
      if (fails) mark(address, ids); else await pause(200);
    }
    fetching = false;
    if (fails) setTimeout(catchUp, 1000);
  }

  // Browsers limit connections per host: a hidden page holds none, and resumes where it was.
  function listen(address) {
    const place = new URL(address, location.href);
    let source;
    const open = () => { if (!source && !document.hidden) source = connect(place, again); };
    const close = () => { source?.close(); source = null; };
    // A browser gives up if the response was no stream: the login expired, or the gateway is starting.
    async function again() {
      close();
      const answer = await fetch("/api/v1/me").catch(() => null);
      if (answer?.status === 401) location.reload(); else setTimeout(open, 3000);
    }
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { close(); return; }
      open();
      catchUp();
    });
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
  }

  function connect(place, again) {
    const source = new EventSource(place);
    const on = (name, does) => source.addEventListener(name, (event) => {
      place.searchParams.set("after", event.lastEventId);
      does(JSON.parse(event.data));
    });
    source.onopen = () => { showStatus(""); catchUp(); };
    source.onerror = () => {
      showStatus("Not connected. Trying again …");
      if (source.readyState === EventSource.CLOSED) again();
    };
    on("entries", (body) => touch(["sessions", `session:${body.session}`]));
    on("changed", (body) => touch(body.topics));
    on("reset", () => touch(["*"]));
    on("draft", (body) => document.dispatchEvent(new CustomEvent("palaver:draft", { detail: body })));
    return source;
  }

  function errorText(body) {
    try { return JSON.parse(body).error || body; } catch { return body; }
  }

  // Offer a login that leads back to this page to a user who was logged out elsewhere.
  function showProblem(answer, text, place) {
    if (!place) return;
    const link = document.createElement("a");
    link.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Log in";
    if (answer.status === 401) place.replaceChildren("You were logged out. ", link); else place.textContent = text;
  }

  // Forms: data-quiet submits without leaving the page

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.dataset.ask && !confirm(form.dataset.ask)) { event.preventDefault(); return; }
    if (form.getAttribute("action") === "/logout") sessionStorage.clear();
    if (!("quiet" in form.dataset)) return;
    event.preventDefault();
    const buttons = form.querySelectorAll("button");
    const body = new FormData(form, event.submitter);
    for (const button of buttons) button.disabled = true;
    try {
      const answer = await fetch(form.action, {
        method: "POST", credentials: "same-origin", headers: { "x-csrf-token": csrf || "" },
        body: form.enctype === "multipart/form-data" ? body : new URLSearchParams(body),
      });
      const problem = form.querySelector("[data-problem]");
      const text = await answer.text();
      const error = answer.ok || answer.status === 401 ? "" : errorText(text).slice(0, 500);
      // A form without a place for it has its error in a notice; who is logged out gets the link anyway.
      if (problem || answer.status === 401) showProblem(answer, error, problem || status);
      if (answer.ok && form.dataset.quiet === "reset") form.reset();
      // A live update can have removed the form in the meantime.
      (form.isConnected ? form : document).dispatchEvent(new CustomEvent("palaver:done", { bubbles: true, detail: { ok: answer.ok, text: answer.ok ? text : error } }));
      const elsewhere = answer.headers.get("x-goto");
      if (answer.ok && elsewhere) location.assign(elsewhere); else if (answer.ok) touch(["*"]);
    } catch { showStatus("Not connected. Nothing was sent."); } finally { for (const button of buttons) button.disabled = false; }
  });

  // A page with a stream of its own says what changed.
  document.addEventListener("palaver:topics", ({ detail }) => touch(detail));

  // A login link has its code after the #, which only this script sees

  const login = document.getElementById("login");
  function enter() {
    if (!login || location.hash.length < 2) return;
    login.elements.code.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
    login.submit();
  }
  addEventListener("hashchange", enter);
  enter();
  if (document.body.dataset.events) listen(document.body.dataset.events);
})();
