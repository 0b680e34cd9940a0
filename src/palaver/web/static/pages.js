// The dashboard pages: notices, keyboard navigation, light and dark, and growing answers.
"use strict";
(() => {
  const notice = document.getElementById("notice");
  const keys = document.getElementById("keys");
  let noticeTimer;

  // Notices

  function showNotice(text) {
    if (!notice) return;
    notice.textContent = text;
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(() => { notice.textContent = ""; }, 8000);
  }
  document.addEventListener("palaver:done", ({ target, detail }) => {
    const answer = target.querySelector?.("[data-answer]");
    if (answer) answer.textContent = detail.ok ? detail.text : "";
    else if (detail.text && (target === document || detail.ok || !target.querySelector("[data-problem]"))) showNotice(detail.text);
    const copy = target.querySelector?.("[data-copy-link]");
    if (copy) copy.hidden = !detail.ok;
    if (detail.ok) target.closest?.("details")?.removeAttribute("open");
  });

  document.addEventListener("click", async ({ target }) => {
    if (!target.matches("[data-copy-link]")) return;
    const link = target.parentElement.querySelector("[data-answer]").textContent.match(/https?:\S+/)[0];
    await navigator.clipboard.writeText(link).then(() => showNotice("Copied."), () => showNotice("The browser does not allow copying."));
  });

  // An address can name a field: show it, and put the cursor there.

  function visitField() {
    const field = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (!field?.matches("input, select, textarea")) return;
    field.closest("details")?.setAttribute("open", "");
    field.focus();
  }
  addEventListener("hashchange", visitField);
  visitField();

  // A filter loads the page again: the focus stays where it was, but for a field that would swallow the keys.

  const filters = [...document.querySelectorAll("form[method=get]")];
  const where = (form) => `focus ${location.pathname} ${filters.indexOf(form)}`;
  for (const form of filters) {
    form.addEventListener("submit", ({ submitter }) => {
      const held = form.contains(document.activeElement) ? document.activeElement : submitter;
      sessionStorage.setItem(where(form), String([...form.elements].indexOf(held)));
    });
    const held = form.elements[sessionStorage.getItem(where(form)) ?? -1];
    sessionStorage.removeItem(where(form));
    if (held?.matches("select, button")) held.focus({ preventScroll: true });
  }

  document.querySelector(".sections [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // Light and dark: like the system until the user chooses

  const theme = document.getElementById("theme");
  function switchTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `palaver-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  }
  if (theme) { theme.hidden = false; theme.addEventListener("click", switchTheme); }

  // Keys

  const stops = () => [...document.querySelectorAll("[data-stop]")];
  function step(by) {
    const list = stops();
    if (!list.length) return false;
    const at = list.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(at + by, 0), list.length - 1);
    list[next].focus();
    list[next].scrollIntoView({ block: "nearest" });
    return true;
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable || keys?.open) return;
    const onStop = event.target.matches?.("[data-stop]");
    const by = { j: 1, k: -1, ...(onStop ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
    if (by && step(by)) event.preventDefault();
    else if (event.key === "?" && keys) { keys.showModal(); event.preventDefault(); }
    else if (event.key === "t" && theme) switchTheme();
    else if (event.key === "/" && !document.querySelector("[data-chat]")) {
      const search = document.getElementById("f-q");
      if (search) search.focus(); else location.assign("/search");
      event.preventDefault();
    }
  });

  // The end of a long output

  for (const output of document.querySelectorAll(".output")) output.scrollTop = output.scrollHeight;

  // Growing answers, and scrolling with the end of a transcript

  const entries = document.getElementById("entries");
  if (entries && "follow" in entries.dataset) {
    const isAtEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 120;
    const scrollToEnd = () => scrollTo(0, document.documentElement.scrollHeight);
    let isFollowing = true;
    addEventListener("scroll", () => { isFollowing = isAtEnd(); }, { passive: true });
    if (!location.hash) scrollToEnd();
    document.addEventListener("palaver:fresh", () => { if (isFollowing) scrollToEnd(); });
    document.addEventListener("palaver:draft", ({ detail }) => {
      if (detail.session !== entries.dataset.session || !detail.text) return;
      const last = [...entries.querySelectorAll(".entry.assistant:not(.growing)")].pop();
      const begins = last?.dataset.begins.slice(0, detail.text.length);
      if (last?.dataset.turn === String(detail.turn) && begins && detail.text.startsWith(begins)) return;
      let draft = document.getElementById("draft");
      if (!draft) {
        draft = document.createElement("li");
        draft.id = "draft";
        draft.className = "entry assistant growing";
        draft.innerHTML = "<header><strong>Agent</strong> <span>is writing</span></header><div class=\"plain\"></div>";
        entries.append(draft);
      }
      draft.querySelector(".plain").textContent = detail.text;
      if (isFollowing) scrollToEnd();
    });
  }
})();
