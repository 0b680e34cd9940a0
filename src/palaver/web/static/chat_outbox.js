// Messages on their way: kept in this tab until the gateway has stored them, sent in order, each once.

import { errorText, hasKey, post } from "./dom.js";

const KEY = "outbox";
const RETRY_MS = 2000;
const WAITING = "Not connected. It will be sent when the gateway is back.";

export class Outbox {
  // `hooks`: `changed` after each change of an item, `arrived` once it is stored, `refused` with the reason.
  constructor(chat, hooks) {
    [this.user] = chat.split("/");
    this.hooks = hooks;
    // Another person may have logged in since.
    this.items = JSON.parse(sessionStorage.getItem(KEY) || "[]").filter((item) => item.chat.split("/")[0] === this.user);
    for (const item of this.items) {
      if (item.state === "sending") item.state = "queued";
      if (item.names.length) Object.assign(item, { state: "failed", problem: "A reload removes files. Edit the message and add them again." });
    }
    addEventListener("online", () => this.send());
  }

  add(item) {
    this.items.push({ ...item, names: item.files.map((file) => file.name), state: "queued", problem: "" });
    this.set(this.items.at(-1), "queued");
    this.send();
  }

  // Whether it can be taken out: it waits, even while it is tried again, which can take minutes.
  waits(item) { return item.state !== "sending" || Boolean(item.problem); }

  // Returns the item, which is not sent any more; nothing while it is on its way.
  takeOut(id) {
    const item = this.items.find((each) => each.id === id && this.waits(each));
    if (item?.state === "sending") this.request.abort();
    if (item) this.remove(item);
    return item;
  }

  remove(item) {
    this.items = this.items.filter((each) => each !== item);
    this.save();
  }

  retry(id) {
    const item = this.items.find((each) => each.id === id);
    if (item) this.set(item, "queued");
    this.send();
  }

  save() {
    const kept = JSON.stringify(this.items.filter((item) => !hasKey(item.text)), (key, value) => (key === "files" ? undefined : value));
    try { sessionStorage.setItem(KEY, kept); } catch { /* Too much for the browser: it is still in memory. */ }
  }

  set(item, state, problem = "") {
    Object.assign(item, { state, problem });
    this.save();
    this.hooks.changed(item);
  }

  // Send what waits, one after the other.
  async send() {
    clearTimeout(this.timer);
    if (this.isSending) return;
    this.isSending = true;
    for (let item = this.next(); item && await this.sendOne(item); item = this.next());
    this.isSending = false;
  }

  next() { return this.items.find(({ state }) => state === "queued"); }

  // Returns whether to go on with the next one.
  async sendOne(item) {
    // What waits for the gateway goes on to say so while it is tried again.
    this.set(item, "sending", item.problem);
    const body = new FormData();
    body.append("id", item.id);
    body.append("text", item.text);
    for (const file of item.files || []) body.append("files", file, file.name);
    this.request = new AbortController();
    const answer = await post(item.action, body, this.request.signal);
    if (!this.items.includes(item)) return true;
    if (answer?.ok) {
      this.remove(item);
      this.hooks.arrived(item);
      return true;
    }
    if (!answer || answer.status > 501 || answer.status === 429) {
      this.set(item, "queued", answer?.status === 429 ? "Too many messages at once. It will be sent in a moment." : WAITING);
      this.timer = setTimeout(() => this.send(), 1000 * Number(answer?.headers.get("retry-after")) || RETRY_MS);
      return false;
    }
    if (answer.status === 401) {
      this.set(item, "queued", "You were logged out.");
      return false;
    }
    this.set(item, "failed", (await errorText(answer)).slice(0, 300));
    this.hooks.refused(item);
    return true;
  }
}
