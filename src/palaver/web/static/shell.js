// The frame of every page: command palette, shortcuts, menus, what happens offline, and forms that keep their input.

const isTyping = (target) => /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable;

// Command palette: pages and commands at once, conversations as they are found

const palette = document.getElementById("palette");
const words = document.getElementById("palette-words");
const list = document.getElementById("palette-list");
const opener = document.getElementById("open-palette");
let asked = 0;

// The table of the server: a page to open, or #id of what to press, send or open here.
const table = [...(document.getElementById("palette-table")?.content.children ?? [])].map((link) => {
  const path = link.getAttribute("href");
  return {
    text: link.textContent, kind: link.dataset.kind, run: () => (path.startsWith("#") ? press(path.slice(1)) : location.assign(path)),
    words: `${link.textContent} ${link.dataset.words}`.toLowerCase(),
  };
});

function press(id) {
  const part = document.getElementById(id);
  if (part.matches("dialog")) part.showModal(); else if (part.matches("form")) part.requestSubmit(); else part.click();
}

function show(items) {
  list.replaceChildren(...items.map((item, at) => {
    const row = document.createElement("li");
    row.id = `palette-${at}`;
    row.setAttribute("role", "option");
    const text = row.appendChild(document.createElement("span"));
    text.textContent = item.text;
    row.appendChild(document.createElement("small")).textContent = item.kind;
    row.addEventListener("click", () => take(item));
    row.item = item;
    return row;
  }));
  if (!items.length) {
    const none = Object.assign(document.createElement("li"), { className: "empty", textContent: "Nothing found." });
    none.setAttribute("role", "option");
    none.setAttribute("aria-disabled", "true");
    list.append(none);
  }
  choose(items.length ? 0 : -1);
}

function take(item) {
  palette.close();
  item.run();
}

function choose(at) {
  [...list.children].forEach((row, place) => row.setAttribute("aria-selected", String(place === at)));
  const row = list.children[at];
  row?.scrollIntoView({ block: "nearest" });
  if (row?.item) words.setAttribute("aria-activedescendant", row.id); else words.removeAttribute("aria-activedescendant");
}

const chosen = () => [...list.children].findIndex((row) => row.getAttribute("aria-selected") === "true");

async function look() {
  const typed = words.value.trim().toLowerCase();
  // A name that begins like what was typed comes before one that only knows the words.
  const here = table.filter((each) => typed.split(/\s+/).every((word) => each.words.includes(word)))
    .sort((one, other) => other.text.toLowerCase().startsWith(typed) - one.text.toLowerCase().startsWith(typed));
  show(here);
  const number = ++asked;
  const answer = await fetch(`/palette?q=${encodeURIComponent(typed)}`).then((each) => (each.ok ? each.json() : null)).catch(() => null);
  if (!answer || number !== asked || !palette.open) return;
  const found = answer.map((each) => ({ text: each.title, kind: each.from, run: () => location.assign(each.path) }));
  const at = chosen();
  show([...here, ...found]);
  if (at > 0) choose(at);
}

function openPalette() {
  if (!palette || palette.open) return;
  words.value = "";
  palette.showModal();
  look();
}

if (palette) {
  // Without this script it is a link to the search.
  opener?.setAttribute("role", "button");
  opener?.setAttribute("aria-label", "Search and commands");
  opener?.addEventListener("click", (event) => { event.preventDefault(); openPalette(); });
  opener?.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); openPalette(); } });
  words.addEventListener("input", look);
  words.addEventListener("keydown", (event) => {
    const count = list.querySelectorAll("[role=option]:not([aria-disabled])").length;
    if (event.isComposing || !count) return;
    if (event.key === "ArrowDown") choose((chosen() + 1) % count);
    else if (event.key === "ArrowUp") choose((chosen() + count - 1) % count);
    else if (event.key === "Enter") take(list.children[chosen()].item);
    else return;
    event.preventDefault();
  });
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
}

// Shortcuts: Ctrl-K anywhere, g and a letter outside of fields

const PLACES = { h: "/", c: "/chat", s: "/settings" };
let leader = 0;
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key === "g") leader = event.timeStamp;
  else if (leader && event.timeStamp - leader < 1500 && PLACES[event.key]) location.assign(PLACES[event.key]);
  if (event.key !== "g") leader = 0;
});

// Menus close when you look elsewhere

const menus = () => document.querySelectorAll(".drop[open]");
document.addEventListener("click", ({ target }) => { for (const menu of menus()) if (!menu.contains(target)) menu.open = false; });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of menus()) { menu.open = false; menu.querySelector("summary").focus(); event.preventDefault(); }
});

// Buttons say what they wait for

document.addEventListener("submit", ({ target, submitter }) => {
  const button = submitter ?? target.querySelector("button");
  if (!button?.dataset.busy || !("quiet" in target.dataset)) return;
  const label = button.textContent;
  button.textContent = button.dataset.busy;
  button.setAttribute("aria-busy", "true");
  const watch = new MutationObserver(() => {
    if (button.disabled) return;
    watch.disconnect();
    button.textContent = label;
    button.removeAttribute("aria-busy");
  });
  // The form script disables the button while it waits.
  queueMicrotask(() => watch.observe(button, { attributeFilter: ["disabled"] }));
});

// What was typed survives a failure, a reload and a new login: all but secrets, in this tab only

const place = (form) => `form ${location.pathname} ${form.getAttribute("action")}`;
const kept = (form) => [...form.elements].filter((field) => field.name && !["hidden", "password", "file"].includes(field.type) && field.tagName !== "BUTTON");
const forms = [...document.querySelectorAll("main form[data-quiet]")].filter((form) => form.id !== "compose" && kept(form).some((field) => field.matches("input, textarea")));

for (const form of forms) {
  const before = JSON.parse(sessionStorage.getItem(place(form)) ?? "null");
  let differs = false;
  for (const field of before ? kept(form) : []) {
    const name = field.type === "checkbox" ? "checked" : "value";
    if (!(field.name in before) || field[name] === before[field.name]) continue;
    field[name] = before[field.name];
    differs = true;
  }
  const note = form.querySelector("[data-problem]");
  if (differs && note) note.textContent = "You have not saved this yet.";
  if (differs) form.dispatchEvent(new Event("change"));
  form.addEventListener("input", () => {
    const said = Object.fromEntries(kept(form).map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]));
    sessionStorage.setItem(place(form), JSON.stringify(said));
  });
  form.addEventListener("palaver:done", ({ detail }) => {
    if (!detail.ok) return;
    sessionStorage.removeItem(place(form));
    for (const field of form.querySelectorAll("input[type=password]")) field.value = "";
  });
}

// Offline: say so, and show a page of our own instead of the browser's

// The chat has a banner of its own, which says what becomes of a message.
const banner = document.getElementById("offline") ? null : document.getElementById("connection");
addEventListener("offline", () => { if (banner) banner.textContent = "You are offline. What you see may be old."; });
addEventListener("online", () => { if (banner) banner.textContent = ""; });
const returning = document.getElementById("returning");
async function comeBack() {
  const answer = document.hidden ? null : await fetch("/offline", { cache: "no-store" }).catch(() => null);
  if (!answer?.ok) { setTimeout(comeBack, 2000); return; }
  // It stands in for the page that did not load, unless somebody asked for it.
  if (location.pathname === "/offline") location.assign("/"); else location.reload();
}
if (returning) { returning.hidden = false; addEventListener("online", comeBack, { once: true }); comeBack(); }
if ("serviceWorker" in navigator && palette) navigator.serviceWorker.register("/service-worker.js").catch(() => {});
