// Change what a page shows without touching what stays the same: focus, open details, scrolling and selections survive.

// Safari ends a composition before the key that confirms it.
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

// Where to log in again, and come back here.
export const loginPath = () => `/login?next=${encodeURIComponent(location.pathname + location.search)}`;

export const csrf = () => document.querySelector("meta[name=csrf]")?.content || "";

// Make `old` look like `fresh`, child by child.
export function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return old;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return fresh; }
  if (old.nodeType === Node.TEXT_NODE) { old.data = fresh.data; return old; }
  if (old.nodeType !== Node.ELEMENT_NODE) return old;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !kept(old, name)) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, fresh);
  return old;
}

// What a person opened stays open; what the script shows stays shown.
const kept = (node, name) => name === "data-tapped" || (name === "open" && node.matches("details, dialog")) || (name === "hidden" && node.matches("[data-speak]"));

function morphChildren(old, fresh) {
  const known = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    // What has an id moves, so that a menu that is open there stays open.
    const moved = known.get(child.id);
    if (moved && isSame(moved, child)) {
      if (moved === place) place = place.nextSibling; else old.insertBefore(moved, place);
      morph(moved, child);
      continue;
    }
    let same = place;
    if (child.nodeType === Node.ELEMENT_NODE) while (same && !isSame(same, child)) same = same.nextSibling;
    else if (same && !isSame(same, child)) same = null;
    if (!same) { old.insertBefore(child, place); continue; }
    while (place !== same) { const gone = place; place = place.nextSibling; gone.remove(); }
    place = place.nextSibling;
    morph(same, child);
  }
  while (place) { const gone = place; place = place.nextSibling; gone.remove(); }
}

// Whether one node is a later state of the other.
const isSame = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName
  && (one.nodeType !== Node.ELEMENT_NODE || (one.id === other.id && one.classList[0] === other.classList[0]));

// Make a keyed list like `fresh`. Children that `keeps` accepts stay where they are.
export function mergeList(list, fresh, keeps = () => false) {
  const known = new Map([...list.children].filter((each) => each.id).map((each) => [each.id, each]));
  let place = [...list.children].find((each) => !keeps(each)) || null;
  for (const each of [...fresh.children]) {
    const before = known.get(each.id);
    if (!before) { list.insertBefore(each, place); continue; }
    if (keeps(before)) continue;
    if (before !== place) list.insertBefore(before, place); else place = next(place, keeps);
    morph(before, each);
  }
  while (place) { const gone = place; place = next(place, keeps); gone.remove(); }
}

function next(node, keeps) {
  let at = node.nextElementSibling;
  while (at && keeps(at)) at = at.nextElementSibling;
  return at;
}

export async function fetchFragment(address, signal) {
  const answer = await fetch(address, { headers: { "x-fragment": "1", accept: "text/html" }, credentials: "same-origin", signal });
  // The page stays, with what somebody writes in it.
  if (answer.redirected && new URL(answer.url).pathname === "/login") { document.dispatchEvent(new CustomEvent("chat:logged-out")); return null; }
  if (!answer.ok) throw Object.assign(new Error(await errorText(answer)), { status: answer.status });
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

export async function errorText(answer) {
  const body = await answer.text();
  try { return (JSON.parse(body).error || body).slice(0, 500); } catch { return body.slice(0, 500); }
}

// Returns the answer, or null while the gateway cannot be reached.
export const post = (address, body, signal) => fetch(address, { method: "POST", body, headers: { "x-csrf-token": csrf() }, signal }).catch(() => null);

let toastTimer;
// Say something for a while, with an action to take back or to try again; return its button.
export function toast(text, label = "", act = null, seconds = 8) {
  const place = document.getElementById("toast");
  clearTimeout(toastTimer);
  place.replaceChildren(text);
  if (label) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => { hideToast(); act(); });
    place.append(" ", button);
  }
  place.hidden = !text;
  toastTimer = setTimeout(hideToast, seconds * 1000);
  return place.querySelector("button");
}
export function hideToast() { document.getElementById("toast").hidden = true; }

export const announceProblem = async (answer) => toast(answer ? await errorText(answer) : "Not connected. Nothing was changed.");

// Keys of model providers, as the server recognises them: nothing in the browser keeps or shows one.

const keys = new RegExp(document.getElementById("compose")?.dataset.keys || "(?!)", "g");
export const hideKeys = (text) => text.replace(keys, "•••");
export const hasKey = (text) => hideKeys(text) !== text;
