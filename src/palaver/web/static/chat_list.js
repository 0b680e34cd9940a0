// The list of conversations: search while typing, marks, renaming, deleting with a way back, and what waits there.

import { fetchFragment, morph, post, announceProblem, toast } from "./dom.js";

const DELETE_SECONDS = 8;

export class ChatList {
  constructor(here, onWaiting) {
    this.list = document.getElementById("chat-list");
    this.search = document.getElementById("chat-search");
    this.here = here;
    this.onWaiting = onWaiting;
    this.archived = "";
    this.pages = 1;
    this.deleting = new Map();
    this.search.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.refresh(), 120); });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.search.value) { this.search.value = ""; this.refresh(); event.stopPropagation(); }
      if (event.key === "ArrowDown") { event.preventDefault(); this.links()[0]?.focus(); }
    });
    this.list.addEventListener("click", (event) => this.onClick(event));
    document.addEventListener("click", (event) => {
      for (const menu of this.list.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    });
    this.list.addEventListener("keydown", (event) => {
      const at = this.links().indexOf(event.target);
      if (at >= 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
        event.preventDefault();
        (this.links()[at + (event.key === "ArrowDown" ? 1 : -1)] || (event.key === "ArrowUp" ? this.search : event.target)).focus();
      }
      const menu = event.key === "Escape" && event.target.closest("details.menu[open]");
      if (!menu) return;
      event.stopPropagation();
      menu.open = false;
      menu.querySelector("summary").focus();
    });
    // A conversation whose deletion waits is deleted when the page goes.
    addEventListener("pagehide", () => { for (const finish of this.deleting.values()) finish(); });
  }

  address(after = "") {
    const asked = new URLSearchParams({ here: this.here(), ...(this.search.value.trim() && { q: this.search.value.trim() }), ...(this.archived && { archived: "1" }), ...(after && { after }) });
    return `/chat/-/list?${asked}`;
  }

  // Resolves once what is shown is not older than this call.
  refresh() { this.reading = this.read(); return this.reading; }

  async read() {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    const fresh = await this.fetchPages(signal).catch(() => null);
    if (signal.aborted) { await this.reading; return; }
    if (!fresh || this.list.querySelector("form.rename")) return;
    for (const id of this.deleting.keys()) fresh.getElementById(`c-${id}`)?.remove();
    const before = new Set(this.waiting());
    const focused = document.activeElement;
    const held = focused?.closest("#chat-list li")?.id;
    const isInside = this.list.contains(focused);
    morph(this.list, Object.assign(this.list.cloneNode(false), { innerHTML: fresh.body.innerHTML }));
    if (isInside && focused.isConnected) focused.focus();
    if (isInside && !this.list.contains(document.activeElement)) this.focusRow(held);
    this.onWaiting(this.waiting().filter((key) => !before.has(key)));
  }

  // Read the list again once it is read: what happens faster than it loads must not keep it from being shown.
  async catchUp() {
    this.isStale = true;
    if (this.isCatchingUp) return;
    this.isCatchingUp = true;
    try {
      while (this.isStale) { this.isStale = false; await this.refresh(); }
    } finally { this.isCatchingUp = false; }
  }

  // As many pages as are shown, so that what somebody unfolded stays.
  async fetchPages(signal) {
    const fresh = await fetchFragment(this.address(), signal);
    for (let page = 1; page < this.pages; page += 1) {
      const after = fresh?.querySelector("[data-more]")?.dataset.more;
      const more = after && await fetchFragment(this.address(after), signal);
      if (!more) break;
      for (const control of fresh.querySelectorAll("button.more")) control.remove();
      // What was used meanwhile has moved up.
      for (const row of more.querySelectorAll("li[id]")) if (fresh.getElementById(row.id)) row.remove();
      // A page goes on in the group in which the one before ends.
      const [group, rest] = [[...fresh.querySelectorAll("h2")].at(-1), more.querySelector("h2")];
      if (group && rest?.textContent === group.textContent) {
        group.nextElementSibling.append(...rest.nextElementSibling.children);
        rest.nextElementSibling.remove();
        rest.remove();
      }
      fresh.body.append(...more.body.childNodes);
    }
    return fresh;
  }

  links() { return [...this.list.querySelectorAll("li:not([hidden]) > a")]; }

  // Keep the focus in the list, at a row if it is still there; somebody who went on elsewhere stays there.
  focusRow(id) {
    if (document.activeElement !== document.body && !document.activeElement?.closest("#chat-list, #toast")) return;
    (document.getElementById(id || "")?.querySelector("a") || this.links()[0] || this.search).focus();
  }

  // What waits for its reader, as keys that change when something new waits.
  waiting() {
    return [...this.list.querySelectorAll("[data-asks], [data-unread]")].map((row) => `${"asks" in row.dataset ? "asks" : "unread"} ${row.dataset.session}`);
  }

  titleOf(session) { return document.querySelector(`#c-${CSS.escape(session)} .name`)?.textContent || "A conversation"; }

  async onClick(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const row = button.closest("li[data-session]");
    const menu = button.closest("details");
    if (menu) menu.open = false;
    if ("mark" in button.dataset) { await this.mark(row.dataset.session, button.dataset.mark); await this.refresh(); this.focusRow(row.id); }
    else if ("rename" in button.dataset) this.rename(row);
    else if ("delete" in button.dataset) this.remove(row);
    else if ("archived" in button.dataset) { this.archived = button.dataset.archived; this.pages = 1; this.search.value = ""; await this.refresh(); this.focusRow(); }
    else if ("more" in button.dataset) await this.more();
  }

  async mark(session, change) {
    const answer = await post(`/chat/-/${session}/mark`, new URLSearchParams(change));
    if (!answer?.ok) await announceProblem(answer);
  }

  async more() {
    const { length } = this.links();
    this.pages += 1;
    await this.refresh();
    this.focusRow(this.links()[length]?.parentElement.id);
  }

  rename(row) {
    const link = row.querySelector("a");
    const form = document.createElement("form");
    form.className = "rename";
    const input = Object.assign(document.createElement("input"), { value: row.querySelector(".name").textContent, maxLength: 100 });
    input.setAttribute("aria-label", "Title");
    form.append(input);
    let isDone = false;
    const done = async (save) => {
      if (isDone) return;
      isDone = true;
      form.replaceWith(link);
      if (save && input.value.trim() && input.value !== row.querySelector(".name").textContent) {
        row.querySelector(".name").textContent = input.value;
        const answer = await post(`/chat/-/${row.dataset.session}/rename`, new URLSearchParams({ title: input.value }));
        if (!answer?.ok) await announceProblem(answer);
      }
      this.focusRow(row.id);
      await this.refresh();
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); done(true); });
    input.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); done(false); } });
    input.addEventListener("blur", () => done(true));
    link.replaceWith(form);
    input.select();
    input.focus();
  }

  remove(row) {
    const { session } = row.dataset;
    const isShown = row.querySelector("a[aria-current]");
    const next = row.nextElementSibling?.id;
    const title = row.querySelector(".name").textContent;
    row.hidden = true;
    const finish = () => {
      if (!this.deleting.delete(session)) return;
      if (document.activeElement?.closest("#toast")) this.focusRow(next);
      clearTimeout(timer);
      fetch(`/chat/-/${session}/delete`, { method: "POST", keepalive: true, headers: { "x-csrf-token": document.querySelector("meta[name=csrf]").content } })
        .then(async (answer) => { if (!answer.ok) await announceProblem(answer); else if (isShown) location.assign("/chat"); this.refresh(); })
        .catch(() => { toast("Not connected. Nothing was deleted."); this.refresh(); });
    };
    const timer = setTimeout(finish, DELETE_SECONDS * 1000);
    this.deleting.set(session, finish);
    toast(`Deleted “${title.slice(0, 40)}”.`, "Undo", () => {
      this.deleting.delete(session);
      clearTimeout(timer);
      row.hidden = false;
      this.refresh().then(() => this.focusRow(`c-${session}`));
    }, DELETE_SECONDS).focus();
  }
}

