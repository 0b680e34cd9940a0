// The composer: text that grows and survives a reload, files from anywhere, and commands.

import { hasKey, isComposing } from "./dom.js";

const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((each) => each.toString(16).padStart(2, "0")).join("");

// On a canvas: the page loads no picture that is not its own.
async function showThumbnail(canvas, file) {
  const picture = await createImageBitmap(file, { resizeHeight: 96, resizeQuality: "medium" }).catch(() => null);
  if (!picture) { canvas.remove(); return; }
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0);
}

export class Composer {
  // `hooks`: `send` gets each message; `editLast` edits the last one.
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
    this.input.addEventListener("change", () => { this.add([...this.input.files]); this.input.value = ""; });
    this.commands.addEventListener("mousedown", (event) => {
      const option = event.target.closest("[data-command]");
      if (option) { event.preventDefault(); this.take(option); }
    });
    this.listenForDrops();
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
      remove.addEventListener("click", () => { this.files.splice(at, 1); this.change(); this.showFiles(); this.text.focus(); });
      item.append(file.name.slice(0, 60), remove);
      return item;
    }));
  }

  problemNow() {
    const { largest, limit, most, longest } = this.form.dataset;
    const length = this.text.value.length > Number(longest) ? [...this.text.value].length : 0;
    if (length > Number(longest)) return `A message can have at most ${Number(longest).toLocaleString("en")} characters, not ${length.toLocaleString("en")}.`;
    const large = this.files.find((file) => file.size > Number(largest));
    if (large) return `${large.name.slice(0, 100)} is larger than ${limit}.`;
    return this.files.length > Number(most) ? `A message can have at most ${most} files, not ${this.files.length}.` : "";
  }

  // The draft

  save() {
    const { value } = this.text;
    // The browser keeps no key of a model provider.
    if (!value || value.length > 1e6 || hasKey(value)) sessionStorage.removeItem(this.key); else sessionStorage.setItem(this.key, value);
  }

  restore() { this.text.value = sessionStorage.getItem(this.key) || this.text.value; }

  change() {
    this.save();
    this.problem.textContent = this.problemNow();
  }

  grow() {
    this.text.style.setProperty("height", "auto");
    this.text.style.setProperty("height", `${this.text.scrollHeight}px`);
  }

  // Sending

  send() {
    const [text, files] = [this.text.value, this.files];
    this.problem.textContent = this.problemNow();
    if (this.problem.textContent || (!text.trim() && !files.length)) return;
    this.text.value = "";
    this.files = [];
    this.showChange();
    this.hooks.send({ id: newId(), text, files });
  }

  // Send a text of ours. What is being written stays.
  say(text) { this.hooks.send({ id: newId(), text, files: [] }); this.text.focus(); }

  // Take a message back, before what was written since.
  takeBack({ text, files }, problem = "") {
    this.text.value = [text, this.text.value].filter(Boolean).join("\n");
    this.files = [...(files || []), ...this.files];
    this.showChange();
    this.problem.textContent ||= problem;
    if (document.activeElement === document.body) this.text.focus();
  }

  get isEmpty() { return !this.text.value && !this.files.length; }

  showChange() {
    this.change();
    this.showFiles();
    this.complete();
    this.grow();
    this.text.dispatchEvent(new Event("palaver:changed"));
  }

  // Keys and commands

  onKey(event) {
    if (isComposing(event)) return;
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
