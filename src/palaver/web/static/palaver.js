// The one script of the window: live parts, forms without a new page, and the web chat.
// An element with an id and data-live="topics" is fetched again and replaced when one of its topics changes.
"use strict";
(() => {
  const csrf = document.querySelector("meta[name=csrf]")?.content;
  const status = document.getElementById("connection");
  const stale = new Map();
  let fetching = false;

  const say = (words) => { if (status && status.textContent !== words) status.textContent = words; };

  // Live parts

  // Whether the gateway has answered, be it that there is no such page any more.
  async function refresh(address, ids) {
    const answer = await fetch(address, { headers: { "x-fragment": ids.join(" ") }, credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return true; }
    if (!answer.ok) return answer.status < 500;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ids) swap(document.getElementById(id), fresh.getElementById(id));
    return true;
  }

  function swap(old, fresh) {
    if (!old || !fresh || old.isEqualNode(fresh)) return;
    const held = old.contains(document.activeElement) ? document.activeElement.id : "";
    if ("keyed" in old.dataset) { merge(old, fresh); old.dispatchEvent(new CustomEvent("palaver:fresh", { bubbles: true })); return; }
    const atEnd = old.scrollHeight - old.scrollTop - old.clientHeight < 40;
    old.replaceWith(document.adoptNode(fresh));
    if (held) document.getElementById(held)?.focus();
    if (atEnd) fresh.scrollTop = fresh.scrollHeight;
    fresh.dispatchEvent(new CustomEvent("palaver:fresh", { bubbles: true }));
  }

  // Of a list with data-keyed only what is different changes, so that focus, folds and places stay as they are.
  function merge(old, fresh) {
    const held = old.contains(document.activeElement) ? document.activeElement.id : "";
    const known = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
    let place = old.firstElementChild;
    for (const each of [...fresh.children]) {
      const before = each.id && known.get(each.id);
      if (before) {
        known.delete(each.id);
        const folds = [...before.querySelectorAll("details")];
        [...each.querySelectorAll("details")].forEach((fold, at) => { fold.open = folds[at]?.open ?? fold.open; });
      }
      const keeps = before && before.isEqualNode(each);
      const shown = keeps ? before : document.adoptNode(each);
      if (before && !keeps) { if (place === before) place = before.nextElementSibling; before.remove(); }
      if (shown === place) place = place.nextElementSibling; else old.insertBefore(shown, place);
    }
    while (place) { const next = place.nextElementSibling; place.remove(); place = next; }
    for (const gone of known.values()) gone.remove();
    for (const { name, value } of [...fresh.attributes]) old.setAttribute(name, value);
    if (held && document.activeElement?.id !== held) document.getElementById(held)?.focus({ preventScroll: true });
  }

  function touch(topics) {
    for (const part of document.querySelectorAll("[data-live][id]")) {
      if (!part.dataset.live.split(/\s+/).some((topic) => topics.includes(topic) || topics.includes("*"))) continue;
      mark(part.dataset.src || location.href, [part.id]);
    }
    catchUp();
  }

  const mark = (address, ids) => stale.set(address, new Set([...(stale.get(address) || []), ...ids]));
  const pause = (time) => new Promise((done) => setTimeout(done, time));

  // However much happens, a page is fetched a few times in a second, and not while nobody sees it.
  async function catchUp() {
    if (fetching) return;
    fetching = true;
    let fails = false;
    while (stale.size && !fails && !document.hidden) {
      const [address, ids] = stale.entries().next().value;
      stale.delete(address);
      fails = !(await refresh(address, [...ids]).catch(() => false));
      if (fails) mark(address, ids); else await pause(200);
    }
    fetching = false;
    if (fails) setTimeout(catchUp, 1000);
  }

  // A browser has few connections to one place: a page that nobody sees holds none, and goes on from where it was.
  function listen(address) {
    const place = new URL(address, location.href);
    let source;
    const open = () => { if (!source && !document.hidden) source = connect(place); };
    const close = () => { source?.close(); source = null; };
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { close(); return; }
      open();
      catchUp();
    });
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
  }

  function connect(place) {
    const source = new EventSource(place);
    const on = (name, does) => source.addEventListener(name, (event) => {
      place.searchParams.set("after", event.lastEventId);
      does(JSON.parse(event.data));
    });
    source.onopen = () => { say(""); catchUp(); };
    source.onerror = () => {
      say("Not connected; trying again …");
      // A browser gives up for good where the answer was no stream: a login that has ended, or a gateway that starts.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 3000);
    };
    on("entries", (body) => touch(["sessions", `session:${body.session}`]));
    on("changed", (body) => touch(body.topics));
    on("reset", () => location.reload());
    on("chat", (body) => document.dispatchEvent(new CustomEvent("palaver:chat", { detail: body })));
    on("draft", (body) => document.dispatchEvent(new CustomEvent("palaver:draft", { detail: body })));
    return source;
  }

  function problemIn(said) {
    try { return JSON.parse(said).error || said; } catch { return said; }
  }

  // Whoever was logged out elsewhere is shown the way back to this page.
  function tellOf(answer, words, place) {
    if (!place) return;
    const way = document.createElement("a");
    way.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
    way.textContent = "Log in";
    if (answer.status === 401) place.replaceChildren("You were logged out. ", way); else place.textContent = words;
  }

  // Forms: data-quiet sends without leaving the page

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.dataset.ask && !confirm(form.dataset.ask)) { event.preventDefault(); return; }
    if (form.getAttribute("action") === "/logout") sessionStorage.clear();
    if (!("quiet" in form.dataset)) return;
    event.preventDefault();
    const buttons = form.querySelectorAll("button");
    const body = new FormData(form, event.submitter);
    for (const button of buttons) button.disabled = true;
    try {
      const answer = await fetch(form.action, {
        method: "POST", credentials: "same-origin", headers: { "x-csrf-token": csrf || "" },
        body: form.enctype === "multipart/form-data" ? body : new URLSearchParams(body),
      });
      const problem = form.querySelector("[data-problem]");
      const said = await answer.text();
      const words = answer.ok || answer.status === 401 ? "" : problemIn(said).slice(0, 500);
      if (problem || !answer.ok) tellOf(answer, words, problem || status);
      if (answer.ok && form.dataset.quiet === "reset") form.reset();
      // A live part may have taken the form away meanwhile.
      (form.isConnected ? form : document).dispatchEvent(new CustomEvent("palaver:done", { bubbles: true, detail: { ok: answer.ok, said: answer.ok ? said : words } }));
      const elsewhere = answer.headers.get("x-goto");
      if (answer.ok && elsewhere) location.assign(elsewhere); else if (answer.ok) touch(["*"]);
    } catch { say("Not connected; nothing was sent."); } finally { for (const button of buttons) button.disabled = false; }
  });

  // The web chat: what is said and sent appears as it comes, and is made whole by the next look

  const chat = document.querySelector("[data-chat]");
  if (chat) {
    const text = document.getElementById("text");
    const compose = document.getElementById("compose");
    const commands = document.getElementById("commands");
    const typing = document.getElementById("typing");
    const toEnd = () => scrollTo(0, document.documentElement.scrollHeight);
    // What cannot be seen, or turns text around, is written as its number, as on the page itself.
    const unsafe = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
    let silence;

    document.addEventListener("palaver:chat", ({ detail }) => {
      if (detail.chat !== chat.dataset.chat) return;
      clearTimeout(silence);
      typing.textContent = detail.typing ? "Palaver is writing …" : "";
      if (detail.typing) { silence = setTimeout(() => { typing.textContent = ""; }, 6000); return; }
      show(detail);
      if (!detail.grows) touch(["chat", "turns"]);
    });

    // What was shown as it came stays until the page has it, which then shows it with its time and its files.
    const early = new Map();
    let follows = true;
    addEventListener("scroll", () => { follows = innerHeight + scrollY > document.documentElement.scrollHeight - 200; }, { passive: true });
    document.addEventListener("palaver:fresh", ({ target }) => {
      if (target.id !== "talk") return;
      for (const [id, line] of early) {
        if (document.getElementById(id) && document.getElementById(id) !== line) early.delete(id); else target.append(line);
      }
      if ([...early.values()].some((line) => !line.classList.contains("growing"))) setTimeout(() => touch(["chat"]), 500);
      if (follows) toEnd();
    });

    function show({ id, text: words, mine, grows }) {
      const talk = document.getElementById("talk");
      let line = document.getElementById(`m-${id}`);
      if (!line) {
        for (const hint of talk.querySelectorAll("li.faint")) hint.remove();
        line = document.createElement("li");
        line.id = `m-${id}`;
        line.appendChild(document.createElement("div")).className = "plain";
        early.set(line.id, line);
        talk.append(line);
      }
      line.className = `said${mine ? " mine" : ""}${grows ? " growing" : ""}`;
      const body = line.querySelector(".plain") || line.appendChild(document.createElement("div"));
      body.className = "plain";
      body.textContent = words.slice(0, 20000).replace(/\r\n/g, "\n").replace(unsafe, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
      if (follows) toEnd();
    }

    // What is not safe yet stays in the tab. The same id makes a second try the same message; other words are another.
    const files = document.getElementById("files");
    const problem = compose.querySelector("[data-problem]");
    const draft = `draft ${chat.dataset.chat}`;
    let again;

    function keep(waits) {
      if (!text.value || text.value.length > 1e6) sessionStorage.removeItem(draft);
      else sessionStorage.setItem(draft, JSON.stringify({ id: compose.elements.id.value, text: text.value, waits }));
    }
    const begin = () => { compose.elements.id.value = [...crypto.getRandomValues(new Uint8Array(12))].map((each) => each.toString(16).padStart(2, "0")).join(""); };

    function tooMuch() {
      const { largest, limit, most } = compose.dataset;
      const large = [...files.files].find((file) => file.size > Number(largest));
      if (large) return `${large.name.slice(0, 100)} is larger than ${limit}.`;
      return files.files.length > Number(most) ? `A message has at most ${most} files, not ${files.files.length}.` : "";
    }

    function change() {
      clearTimeout(again);
      begin();
      keep(false);
      problem.textContent = tooMuch();
    }

    async function send() {
      clearTimeout(again);
      const body = new FormData(compose);
      const [words, chosen] = [text.value, files.files];
      problem.textContent = tooMuch();
      if (problem.textContent || (!text.value.trim() && !files.files.length)) return;
      const answer = await fetch(compose.action, { method: "POST", body, headers: { "x-csrf-token": csrf || "" } }).catch(() => null);
      if (!answer || answer.status > 501) {
        const isSame = body.get("id") === compose.elements.id.value;
        problem.textContent = isSame ? "Not connected: this is sent as soon as the gateway is back." : "Not connected: nothing was sent yet.";
        if (isSame) { keep(true); again = setTimeout(send, 2000); }
        return;
      }
      tellOf(answer, answer.ok ? "" : (await answer.text()).slice(0, 300), problem);
      if (!answer.ok) return;
      if (text.value === words) text.value = "";
      if (files.files === chosen) files.value = "";
      begin();
      keep(false);
      complete();
    }

    compose.addEventListener("submit", (event) => { event.preventDefault(); send(); });
    text.addEventListener("input", change);
    files.addEventListener("change", change);

    function restore() {
      const kept = JSON.parse(sessionStorage.getItem(draft) || "null");
      if (!kept) return;
      text.value = kept.text;
      compose.elements.id.value = kept.id;
      if (kept.waits) send();
    }

    const choices = () => [...commands.children].filter((each) => !each.hidden);
    const chosen = () => commands.querySelector("[aria-selected=true]");
    function choose(option) {
      chosen()?.removeAttribute("aria-selected");
      option?.setAttribute("aria-selected", "true");
      option?.scrollIntoView({ block: "nearest" });
      if (option) text.setAttribute("aria-activedescendant", option.id); else text.removeAttribute("aria-activedescendant");
    }
    function complete() {
      const open = /^\/[a-z]*$/.test(text.value);
      for (const each of commands.children) each.hidden = !each.dataset.command.startsWith(text.value);
      commands.hidden = !open || !choices().length;
      choose(commands.hidden ? null : choices()[0]);
    }
    function take(option) { text.value = `${option.dataset.command} `; text.focus(); change(); complete(); }

    text.addEventListener("input", complete);
    commands.addEventListener("mousedown", (event) => {
      const option = event.target.closest("[data-command]");
      if (option) { event.preventDefault(); take(option); }
    });
    text.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      const open = !commands.hidden;
      const list = choices();
      if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
        const step = event.key === "ArrowDown" ? 1 : list.length - 1;
        choose(list[(list.indexOf(chosen()) + step) % list.length]);
        event.preventDefault();
      } else if (open && event.key === "Tab" && chosen()) { take(chosen()); event.preventDefault();
      } else if (open && event.key === "Escape") { commands.hidden = true; choose(null);
      } else if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        if (open && chosen() && chosen().dataset.command !== text.value) take(chosen()); else compose.requestSubmit();
      }
    });
    restore();
    toEnd();
    if (matchMedia("(min-width: 50rem)").matches) text.focus();
  }

  // A login link carries its code behind the #, which only this script sees

  const login = document.getElementById("login");
  function enter() {
    if (!login || location.hash.length < 2) return;
    login.elements.code.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
    login.submit();
  }
  addEventListener("hashchange", enter);
  enter();
  if (document.body.dataset.events) listen(document.body.dataset.events);
})();
