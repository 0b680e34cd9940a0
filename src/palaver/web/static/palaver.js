// Live parts, and forms that do not leave the page.
// An element with an id and data-live="topics" is fetched again when one of its topics changes, and changed where it differs.

import { errorText, loginPath, morph, post } from "./dom.js";
import { Stream } from "./stream.js";

const status = document.getElementById("connection");
const stale = new Set();
let fetching = false;

const showStatus = (text) => { if (status && status.textContent !== text) status.textContent = text; };

// Live parts

// Returns whether the gateway answered, even with 404.
async function refresh(ids) {
  const answer = await fetch(location.href, { headers: { "x-fragment": ids.join(" ") } });
  if (!answer.ok) return answer.status < 500;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ids) swap(document.getElementById(id), fresh.getElementById(id));
  return true;
}

function swap(old, fresh) {
  if (!old || !fresh || old.isEqualNode(fresh)) return;
  const held = old.contains(document.activeElement) ? document.activeElement.id : "";
  const atEnd = old.scrollHeight - old.scrollTop - old.clientHeight < 40;
  morph(old, fresh);
  // Moving an element takes the focus from it.
  if (held && document.activeElement?.id !== held) document.getElementById(held)?.focus({ preventScroll: true });
  if (atEnd) old.scrollTop = old.scrollHeight;
  old.dispatchEvent(new CustomEvent("palaver:fresh", { bubbles: true }));
}

function touch(topics) {
  for (const part of document.querySelectorAll("[data-live][id]")) {
    if (topics.includes("*") || part.dataset.live.split(/\s+/).some((topic) => topics.includes(topic))) stale.add(part.id);
  }
  catchUp();
}

const pause = (time) => new Promise((done) => { setTimeout(done, time); });

// Fetch the page at most a few times per second, and not while it is hidden.
async function catchUp() {
  if (fetching) return;
  fetching = true;
  let fails = false;
  while (stale.size && !fails && !document.hidden) {
    const ids = [...stale];
    stale.clear();
    fails = !(await refresh(ids).catch(() => false));
    if (fails) for (const id of ids) stale.add(id); else await pause(200);
  }
  fetching = false;
  if (fails) setTimeout(catchUp, 1000);
}

// Offer a login that leads back to this page to a user who was logged out elsewhere.
function showProblem(answer, text, place) {
  if (!place) return;
  const link = Object.assign(document.createElement("a"), { href: loginPath(), textContent: "Log in" });
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
  const body = new URLSearchParams(new FormData(form, event.submitter));
  for (const button of buttons) button.disabled = true;
  try {
    const answer = await post(form.action, body);
    if (!answer) { showStatus("Not connected. Nothing was sent."); return; }
    const problem = form.querySelector("[data-problem]");
    const error = answer.ok || answer.status === 401 ? "" : await errorText(answer);
    // A form without a place for it has its error in a notice; who is logged out gets the link anyway.
    if (problem || answer.status === 401) showProblem(answer, error, problem || status);
    if (answer.ok && form.dataset.quiet === "reset") form.reset();
    // A live update can have removed the form in the meantime.
    const detail = { ok: answer.ok, text: answer.ok ? await answer.text() : error };
    (form.isConnected ? form : document).dispatchEvent(new CustomEvent("palaver:done", { bubbles: true, detail }));
    const elsewhere = answer.headers.get("x-goto");
    if (answer.ok && elsewhere) location.assign(elsewhere); else if (answer.ok) touch(["*"]);
  } finally { for (const button of buttons) button.disabled = false; }
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

const { events } = document.body.dataset;
if (events) {
  new Stream(events, {
    entries: ({ session }) => touch(["sessions", `session:${session}`]),
    changed: ({ topics }) => touch(topics),
    draft: (detail) => document.dispatchEvent(new CustomEvent("palaver:draft", { detail })),
    reset: () => touch(["*"]),
    connected: () => { showStatus(""); catchUp(); },
    lost: () => showStatus("Not connected. Trying again …"),
    shown: catchUp,
    loggedOut: () => location.reload(),
  }).open();
}
