// The stream of events: what changed, and answers as they grow. It resumes where it was.

export class Stream {
  // With `notifies`, one hidden tab keeps its stream, to notify its owner.
  constructor(address, handlers, { notifies = false } = {}) {
    this.place = new URL(address, location.href);
    this.handlers = handlers;
    this.notifies = notifies;
    document.addEventListener("visibilitychange", () => this.adjust());
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => { this.open(); if (event.persisted) this.handlers.shown?.(); });
  }

  // Show growing answers of this session.
  watch(session) {
    if (this.place.searchParams.get("watch") === session) return;
    this.place.searchParams.set("watch", session);
    this.close();
    this.open();
  }

  // Browsers limit connections per host, so of all hidden tabs at most one stays connected: the next when it is gone.
  adjust() {
    this.hiding?.abort();
    if (!document.hidden) { this.open(); this.handlers.shown?.(); return; }
    this.close();
    if (!this.notifies) return;
    this.hiding = new AbortController();
    const { signal } = this.hiding;
    navigator.locks?.request("palaver-hidden-stream", { signal }, () => {
      if (signal.aborted) return undefined;
      this.open();
      return new Promise((done) => { signal.addEventListener("abort", done); });
    }).catch(() => {});
  }

  open() {
    if (this.source || (document.hidden && !this.notifies)) return;
    this.source = new EventSource(this.place);
    this.source.onopen = () => this.handlers.connected?.();
    this.source.onerror = () => {
      this.handlers.lost?.();
      if (this.source?.readyState === EventSource.CLOSED) this.again();
    };
    for (const name of ["entries", "changed", "chat", "growth", "draft", "reset"]) {
      this.source.addEventListener(name, (event) => {
        this.place.searchParams.set("after", event.lastEventId);
        this.handlers[name]?.(JSON.parse(event.data));
      });
    }
  }

  get isOpen() { return this.source?.readyState === EventSource.OPEN; }

  close() { this.source?.close(); this.source = null; }

  // A browser gives up if the response was no stream: the login expired, or the gateway is starting.
  async again() {
    this.close();
    const answer = await fetch("/api/v1/me").catch(() => null);
    if (answer?.status === 401) this.handlers.loggedOut?.(); else setTimeout(() => this.open(), 3000);
  }
}
