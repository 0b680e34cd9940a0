// The list of messages: fresh from the server, growing, sent but not stored yet, and older ones as one scrolls up.

import { fetchFragment, hideKeys, loginPath, mergeList, morph } from "./dom.js";

const PAUSE_MS = 150;
const EDGE = 120;
// How much is kept above and below what one sees.
const AROUND = "300% 0px";

export class Messages {
  // `onHead` gets the state of the conversation each time it is fresh.
  constructor(onHead) {
    this.scroll = document.getElementById("scroll");
    this.onHead = onHead;
    this.pending = new Map();
    this.isFollowing = true;
    this.lastTop = 0;
    this.pages = new Map();
    this.watched = new IntersectionObserver((seen) => seen.forEach((each) => this.onSight(each)), { root: this.scroll, rootMargin: AROUND });
    this.scroll.addEventListener("scroll", () => this.onScroll(), { passive: true });
    // The window and each message can become taller: by a picture, or once it is really laid out.
    const resized = new ResizeObserver(() => { if (this.isFollowing) this.toEnd(); });
    resized.observe(this.scroll);
    resized.observe(this.list);
    document.getElementById("newest").addEventListener("click", () => { this.isFollowing = true; this.dropOlder(); this.toEnd(); this.onScroll(); });
    this.toEnd();
    this.announce();
  }

  get list() { return document.getElementById("messages"); }
  get head() { return document.getElementById("chat-head"); }
  get session() { return this.head.dataset.session; }

  // Older pages stay together while somebody edits a message in one of them: one that went would come back elsewhere.
  get isEditingOlder() { return Boolean(this.list.querySelector(":scope > [data-older] form.edit")); }

  readHead() { this.onHead(this.head.dataset); }

  // Scrolling

  // Less content moves the end up: that is not a person who scrolls.
  toEnd() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.lastTop = this.scroll.scrollTop;
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const left = scrollHeight - scrollTop - clientHeight;
    // Only a person scrolls up; all else that moves the end away is new content.
    if (left < EDGE) this.isFollowing = true; else if (scrollTop < this.lastTop - 2) this.isFollowing = false;
    this.lastTop = scrollTop;
    document.getElementById("newest").hidden = left < 2 * EDGE;
    // Two screens ahead, so that a reader does not meet the end of what is loaded.
    if (scrollTop < 2 * clientHeight) this.loadEarlier();
  }

  async loadEarlier() {
    const { earlier } = this.list.dataset;
    if (!earlier || this.loading) return;
    this.loading = true;
    const fresh = await fetchFragment(`${this.head.dataset.path}?before=${earlier}`).catch(() => null);
    this.loading = false;
    const older = fresh?.getElementById("messages");
    if (!older || this.list.dataset.earlier !== earlier) return;
    const from = this.scroll.scrollHeight - this.scroll.scrollTop;
    const page = new Page([...older.children].filter((each) => each.id !== "empty" && !document.getElementById(each.id)));
    this.pages.set(page.item, page);
    this.list.prepend(page.item);
    this.watched.observe(page.item);
    this.list.dataset.earlier = older.dataset.earlier;
    this.scroll.scrollTop = this.scroll.scrollHeight - from;
  }

  onSight({ target, isIntersecting }) {
    const page = this.pages.get(target);
    if (isIntersecting) page?.fill(); else page?.empty();
  }

  // A reader who is back at the end does not pay for all they have read: it loads again when they scroll up.
  dropOlder() {
    const older = [...this.list.querySelectorAll(":scope > [data-older]")];
    if (!older.length || this.isEditingOlder) return;
    for (const each of older) { each.remove(); this.watched.unobserve(each); this.pages.delete(each); }
    this.list.dataset.earlier = this.list.dataset.first;
  }

  // Fresh from the server, a few times per second at most

  // Resolves once what is shown is not older than this call.
  refresh({ whole = false } = {}) {
    this.dropsOlder ||= whole;
    this.wanted ||= new Promise((done) => { this.shown = done; });
    const { wanted } = this;
    if (!this.isFetching) this.fetchFresh();
    return wanted;
  }

  async fetchFresh() {
    this.isFetching = true;
    while (this.wanted) {
      const { shown } = this;
      this.wanted = null;
      await fetchFragment(location.pathname).then((fresh) => fresh && this.show(fresh)).catch((error) => this.onError(error));
      shown();
      await new Promise((done) => { setTimeout(done, PAUSE_MS); });
    }
    this.isFetching = false;
  }

  onError(error) {
    if (error.status && error.status < 500) return;
    setTimeout(() => this.refresh(), 1000);
  }

  show(fresh) {
    const [head, messages] = [fresh.getElementById("chat-head"), fresh.getElementById("messages")];
    const isOther = head.dataset.session !== this.session;
    const stays = this.isEditingOlder || (!this.dropsOlder && !isOther);
    this.dropsOlder = stays && (this.dropsOlder || isOther);
    if (!isOther && head.dataset.running) this.keepGrowing(messages);
    mergeSettings(fresh);
    document.getElementById("offers").replaceWith(fresh.getElementById("offers"));
    const model = head.querySelector("#model")?.value;
    morph(this.head, head);
    // A browser keeps what was chosen by hand, even if another model was chosen elsewhere since.
    const choice = document.getElementById("model");
    if (choice && choice !== document.activeElement) choice.value = model;
    const first = Number(messages.dataset.first);
    const keeps = (each) => (stays && ("older" in each.dataset || ("seq" in each.dataset && Number(each.dataset.seq) < first)))
      || each.classList.contains("pending") || Boolean(each.querySelector(":scope > form.edit"));
    const { earlier } = this.list.dataset;
    const hasOlder = stays && [...this.list.children].some(keeps) && this.list.querySelector("[data-older]");
    mergeList(this.list, messages, keeps);
    this.list.dataset.first = messages.dataset.first;
    this.list.dataset.earlier = hasOlder ? earlier : messages.dataset.earlier;
    this.dropStored();
    if (isOther) this.isFollowing = true;
    if (this.isFollowing) { this.dropOlder(); this.toEnd(); }
    this.readHead();
    this.announce();
    document.dispatchEvent(new CustomEvent("chat:fresh"));
  }

  // People who do not see the page hear how the last answer goes on.
  announce() {
    const answer = [...this.list.querySelectorAll(".message.answer")].at(-1);
    const [before, now] = [this.heard, { turn: Number(answer?.dataset.turn), state: answer ? stateOf(answer) : "" }];
    this.heard = now;
    if (before && (now.turn > (before.turn || 0) || (now.turn === before.turn && now.state !== before.state))) {
      document.getElementById("heard").textContent = now.state;
    }
  }

  // What has grown since the page was made is not taken back.
  keepGrowing(messages) {
    for (const body of this.list.querySelectorAll(".running > .md.growing")) {
      const shown = body.parentElement;
      const item = messages.querySelector(`#${shown.id}`);
      if (!item) { messages.append(shown.cloneNode(true)); continue; }
      if (!item.classList.contains("running")) continue;
      const known = item.querySelector(".md.growing");
      if (!known) {
        if (item.querySelectorAll(".md").length > Number(body.dataset.part)) continue;
        item.insertBefore(body.cloneNode(true), item.querySelector(".thinking"));
      } else if (known.dataset.part === body.dataset.part && known.textContent.length < body.textContent.length) known.replaceWith(body.cloneNode(true));
    }
  }

  // Messages that are not on the page of the server yet

  isStored(id) { return Boolean(this.list.querySelector(`[data-message="${CSS.escape(id)}"]`)); }

  showPending({ id, text, names, state, problem }) {
    // A command that is sent at once shows by what it does.
    if (this.isStored(id) || (text.startsWith("/") && state === "sending" && !problem)) { this.forget(id); return; }
    document.getElementById("empty")?.remove();
    if (!this.pending.has(id)) {
      this.pending.set(id, this.list.appendChild(newPending(id, text, names)));
      this.isFollowing = true;
    }
    const item = this.pending.get(id);
    item.dataset.state = state;
    const waiting = problem || (state === "sending" ? "Sending …" : "Waits to be sent");
    this.setState(id, state === "failed" ? `Not sent: ${problem}` : waiting);
    for (const button of item.querySelectorAll("[data-pending]")) {
      button.hidden = button.dataset.pending === "retry" ? state !== "failed" : state === "sending" && !problem;
    }
    item.querySelector("a").hidden = problem !== "You were logged out.";
    if (this.isFollowing) this.toEnd();
  }

  setState(id, state) {
    const item = this.pending.get(id);
    if (item && item.querySelector(".state").textContent !== state) item.querySelector(".state").textContent = state;
  }

  dropStored() {
    for (const id of [...this.pending.keys()]) if (this.isStored(id)) this.forget(id);
    // Moving an element takes the focus from it.
    const last = [...this.pending.values()];
    if ([...this.list.children].slice(this.list.children.length - last.length).some((each, at) => each !== last[at])) this.list.append(...last);
  }

  forget(id) { this.pending.get(id)?.remove(); this.pending.delete(id); }

  // An answer that grows: finished blocks stay, only the last one is replaced

  grow({ session, turn, part, after, closed, open }) {
    if (session !== this.session) return;
    let item = document.getElementById(`t-${turn}`);
    if (!item) {
      item = document.getElementById("growing-answer").content.firstElementChild.cloneNode(true);
      item.id = `t-${turn}`;
      this.list.append(item);
      item.querySelector(".md").remove();
    }
    if (!item.classList.contains("running") || part < item.querySelectorAll(".md:not(.growing)").length) return;
    let body = item.querySelector(".md.growing");
    if (!body || Number(body.dataset.part) !== part) {
      if (after) { this.refresh(); return; }
      body?.remove();
      body = Object.assign(document.createElement("div"), { className: "md growing" });
      Object.assign(body.dataset, { part, closed: 0 });
      item.insertBefore(body, item.querySelector(".thinking"));
    }
    if (Number(body.dataset.closed) < after) { this.refresh(); return; }
    const fresh = document.createElement("template");
    fresh.innerHTML = closed.join("") + open;
    const blocks = [...fresh.content.children];
    blocks.forEach((block, at) => {
      const before = body.children[after + at];
      if (before) morph(before, block); else body.append(block);
    });
    for (const gone of [...body.children].slice(after + blocks.length)) gone.remove();
    body.dataset.closed = after + closed.length;
    if (this.isFollowing) this.toEnd();
    document.dispatchEvent(new CustomEvent("chat:grown"));
  }
}

// Older messages stand in pages. A page far out of sight is empty, so that a browser does not pay for all that was read.
class Page {
  constructor(messages) {
    this.item = Object.assign(document.createElement("li"), { className: "page" });
    this.item.dataset.older = "";
    this.list = this.item.appendChild(document.createElement("ol"));
    this.list.append(...messages);
  }

  fill() {
    if (this.list.isConnected) return;
    this.item.append(this.list);
    this.item.style.height = "";
  }

  empty() {
    if (!this.list.isConnected || this.item.contains(document.activeElement) || this.item.querySelector("form.edit")) return;
    this.item.style.height = `${this.item.offsetHeight}px`;
    this.list.remove();
  }
}

function stateOf(answer) {
  if (answer.classList.contains("running")) return "Answering.";
  if (answer.querySelector(".asks")) return "Waits for you.";
  if (answer.querySelector(".failed")) return "Not answered.";
  return answer.querySelector(".stopped") ? "Stopped." : "Answered.";
}

// A person who writes instructions keeps what they wrote.
function mergeSettings(fresh) {
  const [old, next] = [document.getElementById("settings"), fresh.getElementById("settings")];
  if (old?.open) return;
  if (old && next) old.replaceWith(next); else if (next) document.getElementById("chat-head").after(next); else old?.remove();
}

function newPending(id, text, names) {
  const item = document.getElementById("pending-message").content.firstElementChild.cloneNode(true);
  item.id = `pending-${id}`;
  item.dataset.pendingId = id;
  item.querySelector(".plain").textContent = hideKeys(text);
  item.querySelector(".bubble").append(...names.map((name) => Object.assign(document.createElement("span"), { className: "file", textContent: name.slice(0, 80) })));
  item.querySelector("a").href = loginPath();
  return item;
}
