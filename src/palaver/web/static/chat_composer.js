// The composer: text that grows and survives a reload, files from anywhere, commands, and sending exactly once.

import { errorText, post } from "./chat_dom.js";

const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((each) => each.toString(16).padStart(2, "0")).join("");
const RETRY_MS = 2000;

// On a canvas: the page loads no picture that is not its own.
async function showThumbnail(canvas, file) {
  const picture = await createImageBitmap(file, { resizeHeight: 96, resizeQuality: "medium" }).catch(() => null);
  if (!picture) { canvas.remove(); return; }
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0);
}

export class Composer {
  // `hooks`: sent, arrived and failed say what became of a message; editLast edits the last one.
  constructor(form, key, hooks) {
    this.form = form;
    this.text = form.elements.text;
    this.input = form.elements.files;
    this.problem = form.querySelector("[data-problem]");
    this.chosen = document.getElementById("chosen");
    this.commands = document.getElementById("commands");
    this.key = `draft ${key}`;
    this.hooks = hooks;
    this.files = [];
    this.listen();
    this.restore();
    this.grow();
  }

  listen() {
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    this.text.addEventListener("input", () => { this.change(); this.complete(); this.grow(); });
    this.text.addEventListener("keydown", (event) => this.onKey(event));
    this.text.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files || [])];
      if (files.length) { event.preventDefault(); this.add(files); }
    });
    this.input.addEventListener("change", () => { this.files = []; this.add([...this.input.files]); });
    this.commands.addEventListener("mousedown", (event) => {
      const option = event.target.closest("[data-command]");
      if (option) { event.preventDefault(); this.take(option); }
    });
    this.listenForDrops();
    // What waits after a reload or a time without connection is sent as soon as there is one.
    addEventListener("online", () => { if (this.waits) this.send(); });
  }

  listenForDrops() {
    const cover = document.getElementById("drop");
    const hasFiles = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
    document.addEventListener("dragover", (event) => { if (hasFiles(event)) { event.preventDefault(); cover.hidden = false; } });
    document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) cover.hidden = true; });
    document.addEventListener("drop", (event) => {
      cover.hidden = true;
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
      this.text.focus();
    });
  }

  // Files

  add(files) {
    this.files.push(...files);
    this.change();
    this.showFiles();
  }

  showFiles() {
    this.chosen.replaceChildren(...this.files.map((file, at) => {
      const item = document.createElement("li");
      if (/^image\/(png|jpeg|gif|webp)$/.test(file.type)) {
        showThumbnail(item.appendChild(document.createElement("canvas")), file);
      }
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "icon";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `Remove ${file.name.slice(0, 80)}`);
      remove.addEventListener("click", () => { this.files.splice(at, 1); this.input.value = ""; this.change(); this.showFiles(); this.text.focus(); });
      item.append(file.name.slice(0, 60), remove);
      return item;
    }));
  }

  fileProblem() {
    const { largest, limit, most } = this.form.dataset;
    const large = this.files.find((file) => file.size > Number(largest));
    if (large) return `${large.name.slice(0, 100)} is larger than ${limit}.`;
    return this.files.length > Number(most) ? `A message can have at most ${most} files, not ${this.files.length}.` : "";
  }

  // The draft. A retry with the same id is the same message; changed text gets a new id.

  save(waits) {
    this.waits = waits;
    const value = this.text.value;
    if (!value || value.length > 1e6) sessionStorage.removeItem(this.key);
    else sessionStorage.setItem(this.key, JSON.stringify({ id: this.form.elements.id.value, text: value, waits }));
  }

  restore() {
    const kept = JSON.parse(sessionStorage.getItem(this.key) || "null");
    if (!kept) return;
    this.text.value = kept.text;
    this.form.elements.id.value = kept.id;
    if (kept.waits) this.send();
  }

  change() {
    clearTimeout(this.timer);
    this.form.elements.id.value = newId();
    this.save(false);
    this.problem.textContent = this.fileProblem();
  }

  grow() {
    this.text.style.setProperty("height", "auto");
    this.text.style.setProperty("height", `${this.text.scrollHeight}px`);
  }

  // Sending

  async send() {
    clearTimeout(this.timer);
    const [id, words, files] = [this.form.elements.id.value, this.text.value, this.files];
    this.problem.textContent = this.fileProblem();
    if (this.problem.textContent || (!words.trim() && !files.length) || this.sending === id) return;
    this.sending = id;
    const body = new FormData();
    body.append("id", id);
    body.append("text", words);
    for (const file of files) body.append("files", file, file.name);
    this.hooks.sent(id, words, files);
    const answer = await post(this.form.action, body);
    this.sending = "";
    if (answer?.ok) { this.clear(id, words, files); return; }
    const isSame = id === this.form.elements.id.value;
    if (!answer || answer.status > 501) {
      this.problem.textContent = isSame ? "Not connected. Your message will be sent when the gateway is back." : "Not connected. Nothing was sent yet.";
      this.hooks.failed(id);
      if (isSame) { this.save(true); this.timer = setTimeout(() => this.send(), RETRY_MS); }
      return;
    }
    this.hooks.failed(id);
    await this.showProblem(answer);
  }

  async showProblem(answer) {
    if (answer.status !== 401) { this.problem.textContent = (await errorText(answer)).slice(0, 300); return; }
    const link = document.createElement("a");
    link.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Log in";
    this.problem.replaceChildren("You were logged out. ", link);
  }

  clear(id, words, files) {
    this.problem.textContent = "";
    this.hooks.arrived(id);
    if (this.text.value === words) this.text.value = "";
    if (this.files === files) { this.files = []; this.input.value = ""; this.showFiles(); }
    this.form.elements.id.value = newId();
    this.save(false);
    this.complete();
    this.grow();
  }

  // Keys and commands

  onKey(event) {
    if (event.isComposing) return;
    const open = !this.commands.hidden;
    if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const list = this.choices();
      const step = event.key === "ArrowDown" ? 1 : list.length - 1;
      this.choose(list[(list.indexOf(this.picked()) + step) % list.length]);
      event.preventDefault();
    } else if (open && event.key === "Tab" && this.picked()) { this.take(this.picked()); event.preventDefault();
    } else if (open && event.key === "Escape") { this.commands.hidden = true; this.choose(null); event.stopPropagation();
    } else if (event.key === "ArrowUp" && !this.text.value) { if (this.hooks.editLast()) event.preventDefault();
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      const picked = this.picked();
      if (open && picked && picked.dataset.command !== this.text.value) this.take(picked); else this.form.requestSubmit();
    }
  }

  choices() { return [...this.commands.children].filter((each) => !each.hidden); }
  picked() { return this.commands.querySelector("[aria-selected=true]"); }

  choose(option) {
    this.picked()?.removeAttribute("aria-selected");
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.text.setAttribute("aria-activedescendant", option.id); else this.text.removeAttribute("aria-activedescendant");
  }

  complete() {
    const open = /^\/[a-z-]*$/.test(this.text.value);
    for (const each of this.commands.children) each.hidden = !each.dataset.command.startsWith(this.text.value);
    this.commands.hidden = !open || !this.choices().length;
    this.choose(this.commands.hidden ? null : this.choices()[0]);
  }

  take(option) { this.text.value = `${option.dataset.command} `; this.text.focus(); this.change(); this.complete(); }
}
