// The chat window. The server renders every message; this script shows what changes, at once and in every open tab.

import { announceProblem, errorText, hideToast, isComposing, loginPath, post, toast } from "./dom.js";
import { Composer } from "./chat_composer.js";
import { ChatList } from "./chat_list.js";
import { Messages } from "./chat_messages.js";
import { Outbox } from "./chat_outbox.js";
import { notify, offerNotifications, setCount, setTitle } from "./chat_notify.js";
import { Stream } from "./stream.js";

const chat = document.querySelector(".chat");
const form = document.getElementById("compose");
const path = () => document.getElementById("chat-head").dataset.path;
const body = (fields) => new URLSearchParams(fields);

// The conversation

const stream = new Stream(document.body.dataset.chatEvents, {
  entries: ({ session, kind, first }) => {
    if (session === messages.session) {
      const isOld = kind !== "append" && kind !== "settle" && first < Number(messages.list.dataset.first);
      messages.refresh({ whole: isOld });
    }
    refreshList();
  },
  changed: ({ topics }) => {
    if (topics.includes("chat")) messages.refresh();
    if (topics.some((topic) => topic === "chat" || topic === "turns" || topic === "sessions")) { refreshSoon(); refreshList(); }
    document.dispatchEvent(new CustomEvent("palaver:topics", { detail: topics }));
  },
  chat: ({ chat: name, typing }) => { if (name === chat.dataset.chat && !typing) messages.refresh(); },
  growth: (growth) => messages.grow(growth),
  // All that is shown can be old. The page stays: somebody may be writing in it.
  reset: () => { messages.refresh({ whole: true }); refreshList(); },
  connected: () => { setOffline(false); outbox.send(); },
  lost: () => setOffline(true),
  shown: () => { messages.refresh(); refreshList(); markSeen(); },
  loggedOut: () => setOffline(true, true),
}, { notifies: true });

const messages = new Messages((state) => {
  stream.watch(state.session);
  setTitle(state.title);
  const isRunning = Boolean(state.running);
  document.getElementById("stop").hidden = !isRunning;
  document.getElementById("send").hidden = isRunning && !form.elements.text.value;
  document.getElementById("waiting").textContent = Number(state.waiting) ? `${state.waiting} queued` : "";
  if (path() !== location.pathname && path().startsWith("/chat/s/") && location.pathname.startsWith("/chat/s/")) history.replaceState(null, "", path());
  form.action = path();
  markSeen();
});

const list = new ChatList(path, (fresh) => {
  setCount(document.hidden ? list.waiting().length : 0);
  for (const key of fresh) {
    const [kind, session] = key.split(" ");
    notify(list.titleOf(session), kind === "asks" ? "Waits for you." : "Answered.", `/chat/s/${session}`);
  }
});

// Hints tell of all conversations: what is shown is read again at once while something goes on in it, else a little later.
let [listTimer, soonTimer] = [0, 0];
function refreshList() { listTimer ||= setTimeout(() => { listTimer = 0; list.catchUp(); }, document.hidden ? 50 : 250); }
function refreshSoon() {
  const { running, question, waiting } = messages.head.dataset;
  if (running || question || Number(waiting) || messages.pending.size) messages.refresh();
  else soonTimer ||= setTimeout(() => { soonTimer = 0; messages.refresh(); }, 400);
}

let seen = "";
async function markSeen() {
  const { session, last } = messages.head.dataset;
  const shown = `${session} ${last}`;
  if (document.hidden || !session || seen === shown) return;
  seen = shown;
  setCount(0);
  const answer = await post(`/chat/-/${session}/mark`, body({ seen: last }));
  if (!answer?.ok && seen === shown) seen = "";
}

function setOffline(isOffline, isLoggedOut = false) {
  const out = document.getElementById("logged-out");
  out.querySelector("a").href = loginPath();
  out.hidden = !isLoggedOut;
  document.getElementById("offline").hidden = !isOffline || isLoggedOut;
}
addEventListener("offline", () => setOffline(true));
document.addEventListener("chat:logged-out", () => setOffline(true, true));
addEventListener("online", () => { if (stream.isOpen) setOffline(false); });

// What is written here, on its way

const isHere = (item) => item.chat === chat.dataset.chat;

const outbox = new Outbox(chat.dataset.chat, {
  changed: (item) => { if (isHere(item)) messages.showPending(item); },
  arrived: (item) => { if (isHere(item)) { messages.setState(item.id, "Queued"); messages.refresh(); } },
  // What the gateway does not take goes back to its writer, unless they write something else by now.
  refused: (item) => { if (isHere(item) && composer.isEmpty) takeBack(item.id, item.problem); },
});

function takeBack(id, problem = "") {
  const item = outbox.takeOut(id);
  if (!item) return;
  messages.forget(id);
  composer.takeBack(item, problem);
}

const composer = new Composer(form, chat.dataset.chat, {
  send: (message) => outbox.add({ ...message, chat: chat.dataset.chat, action: form.action }),
  editLast: () => {
    const waits = outbox.items.filter((item) => isHere(item) && outbox.waits(item)).at(-1);
    if (waits) { takeBack(waits.id); return true; }
    const last = [...messages.list.querySelectorAll(".message.mine [data-edit]")].pop();
    last?.click();
    return Boolean(last);
  },
});
for (const change of ["input", "palaver:changed"]) form.elements.text.addEventListener(change, () => messages.readHead());

document.querySelector(".talk").addEventListener("click", ({ target }) => {
  const chip = target.closest("[data-say]");
  if (!chip) return;
  composer.say(chip.dataset.say);
  chip.closest("#offers")?.replaceChildren();
});

// Actions on messages

const acting = new Set();
// A second click on the same button means the first.
async function act(what, fields) {
  const name = JSON.stringify([what, fields]);
  if (acting.has(name)) return;
  acting.add(name);
  const held = document.activeElement?.closest?.("#messages li button");
  const place = pagers().indexOf(held?.closest(".pager"));
  await perform(what, fields).catch(() => {});
  acting.delete(name);
  // The button may be gone or disabled: go on with the versions, or with writing.
  const isFree = document.activeElement === document.body || document.activeElement === held;
  if (held && isFree && (!held.isConnected || held.disabled)) (pagers()[place]?.querySelector("button:not(:disabled)") || composer.text).focus();
}

const pagers = () => [...messages.list.querySelectorAll(".pager")];

async function perform(what, fields) {
  const answer = await post(`/chat/-/${messages.session}/${what}`, body(fields));
  if (!answer?.ok) { await announceProblem(answer); messages.refresh(); return; }
  const { notice, session, path: place } = await answer.json();
  if (place) { sessionStorage.setItem("notice", BRANCHED); location.assign(place); return; }
  say(what === "command" ? fields.text.split(" ")[0] : what, notice);
  if (location.pathname.startsWith("/chat/s/") && session !== messages.session) history.replaceState(null, "", `/chat/s/${session}`);
  await messages.refresh({ whole: true });
}

const BRANCHED = "This is a branch. The other conversation stays as it was.";
const note = sessionStorage.getItem("notice");
if (note) {
  sessionStorage.removeItem("notice");
  toast(note, "Go back", () => history.back());
  form.addEventListener("submit", hideToast, { once: true });
}

// Say what the page itself does not show.
function say(what, notice) {
  if (what === "/undo" && notice.startsWith("Undid")) toast("Undone.", "Redo", () => act("command", { text: "/redo" }));
  else if (what === "/undo" || what === "/model") toast(notice);
}

const rawText = async (item) => {
  if (!item.classList.contains("answer")) return item.querySelector(".plain")?.textContent || "";
  const answer = await fetch(`/sessions/${messages.session}/entries/${item.dataset.seq}`).catch(() => null);
  return answer?.ok ? answer.text() : item.querySelector(".md:last-of-type")?.innerText || "";
};

async function copy(text, button) {
  await navigator.clipboard.writeText(await text).then(() => done(button), () => toast("The browser does not allow copying."));
}
function done(button) {
  const said = button.getAttribute("aria-label");
  button.classList.add("done");
  if (said) button.setAttribute("aria-label", "Copied"); else button.textContent = "Copied";
  setTimeout(() => { button.classList.remove("done"); if (said) button.setAttribute("aria-label", said); else button.textContent = "Copy"; }, 1500);
}

function edit(item) {
  const bubble = item.querySelector(".bubble");
  if (item.querySelector("form.edit")) return;
  const change = document.createElement("form");
  change.className = "edit";
  change.innerHTML = "<textarea dir=\"auto\" aria-label=\"Edited message\" rows=\"3\"></textarea><p role=\"alert\" class=\"bad\"></p><div class=\"buttons\"><button>Send</button> <button type=\"button\" class=\"quiet\">Cancel</button></div>";
  const area = change.querySelector("textarea");
  area.value = item.querySelector(".plain")?.textContent || "";
  const { session } = messages;
  const close = () => { change.remove(); bubble.hidden = false; form.elements.text.focus(); messages.refresh(); };
  change.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (change.ariaBusy === "true") return;
    change.ariaBusy = "true";
    const answer = await post(`/chat/-/${session}/again`, body({ entry: item.dataset.seq, text: area.value }));
    change.ariaBusy = "false";
    if (!answer?.ok) { change.querySelector("[role=alert]").textContent = answer ? await errorText(answer) : "Not connected. Nothing was sent."; return; }
    close();
    await messages.refresh({ whole: true });
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    if (event.key === "Enter" && !event.shiftKey && !isComposing(event)) { event.preventDefault(); change.requestSubmit(); }
  });
  change.querySelector("button[type=button]").addEventListener("click", close);
  bubble.hidden = true;
  bubble.after(change);
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

function speak(button) {
  const isSpeaking = button.getAttribute("aria-pressed") === "true";
  speechSynthesis.cancel();
  for (const each of document.querySelectorAll("[data-speak][aria-pressed=true]")) each.setAttribute("aria-pressed", "false");
  if (isSpeaking) return;
  const words = [...button.closest("li").querySelectorAll(".md")].map((each) => each.innerText).join("\n");
  const said = new SpeechSynthesisUtterance(words.slice(0, 20000));
  said.onend = () => button.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-pressed", "true");
  speechSynthesis.speak(said);
}
const showSpeakers = () => { if ("speechSynthesis" in window) for (const each of document.querySelectorAll("[data-speak]")) each.hidden = false; };
document.addEventListener("chat:fresh", showSpeakers);
showSpeakers();

document.querySelector(".talk").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  const item = event.target.closest("li.message");
  // Without a mouse, a tap shows what can be done with a message.
  if (!event.target.closest("button, a, summary, form, audio")) item?.toggleAttribute("data-tapped");
  if (!button || button.disabled) return;
  const { dataset } = button;
  if ("copyCode" in dataset) copy(button.closest(".code").querySelector("code").textContent, button);
  else if ("copy" in dataset) copy(rawText(item), button);
  else if ("edit" in dataset) edit(item);
  else if ("again" in dataset) act("again", { entry: item.dataset.seq });
  else if ("branch" in dataset) act("branch", { entry: item.dataset.seq });
  else if ("rate" in dataset) act("feedback", { turn: item.dataset.turn, rating: dataset.rate });
  else if ("version" in dataset) act("version", { version: dataset.version });
  else if ("command" in dataset) { button.disabled = true; act("command", { text: dataset.command }).then(() => { button.disabled = false; }); }
  else if (dataset.pending === "retry") outbox.retry(item.dataset.pendingId);
  else if (dataset.pending === "edit") takeBack(item.dataset.pendingId);
  else if (dataset.pending === "remove") { if (outbox.takeOut(item.dataset.pendingId)) messages.forget(item.dataset.pendingId); composer.text.focus(); }
  else if ("speak" in dataset) speak(button);
  else if (button.id === "open-settings") document.getElementById("settings").showModal();
  else if ("close" in dataset) button.closest("dialog").close();
});

document.querySelector(".talk").addEventListener("change", (event) => {
  if (event.target.id === "model") act("command", { text: `/model ${event.target.value}` });
});

document.querySelector(".talk").addEventListener("submit", async (event) => {
  if (event.target.id !== "instruct") return;
  event.preventDefault();
  const answer = await post(`/chat/-/${messages.session}/instructions`, new URLSearchParams(new FormData(event.target)));
  if (!answer?.ok) { event.target.querySelector("[data-problem]").textContent = answer ? await errorText(answer) : "Not connected. Nothing was saved."; return; }
  event.target.closest("dialog").close();
  toast(await answer.text());
});

// Keys, and the list on a small screen

const stop = () => { if (messages.head.dataset.running) act("command", { text: "/stop" }); };
document.getElementById("stop").addEventListener("click", () => { stop(); composer.text.focus(); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || isComposing(event) || document.querySelector("dialog[open]")) return;
  if (chat.classList.contains("side-shown")) chat.classList.remove("side-shown");
  else { hideToast(); stop(); }
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-side]")) chat.classList.toggle("side-shown");
  else if (chat.classList.contains("side-shown") && !event.target.closest("#chat-side, #toast")) chat.classList.remove("side-shown");
});

if (matchMedia("(min-width: 50rem)").matches) composer.text.focus();
offerNotifications(document.getElementById("notify-me"));
messages.readHead();
for (const item of outbox.items) if (isHere(item)) messages.showPending(item);
outbox.send();
stream.open();

// Tools that run show for how long.
setInterval(() => {
  for (const state of document.querySelectorAll("#messages [data-since]")) {
    state.textContent = `running, ${Math.max(0, Math.round(Date.now() / 1000 - Number(state.dataset.since)))} s`;
  }
}, 1000);
