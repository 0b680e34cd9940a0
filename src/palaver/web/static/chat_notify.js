// Say that something waits while nobody looks: in the title, on the icon, and as a notification if the person wants it.

let count = 0;

export function setCount(number) {
  count = number;
  document.title = document.title.replace(/^\(\d+\) /, "");
  if (count) document.title = `(${count}) ${document.title}`;
  if (navigator.setAppBadge) (count ? navigator.setAppBadge(count) : navigator.clearAppBadge()).catch(() => {});
}

export const setTitle = (text) => { document.title = `${count ? `(${count}) ` : ""}${text} · Palaver`; };

export function notify(title, body, address) {
  if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
  const shown = new Notification(title, { body, tag: address, icon: document.querySelector("link[rel~=icon]")?.href });
  shown.addEventListener("click", () => { window.focus(); if (address) location.assign(address); shown.close(); });
}

// Ask once, when a person has sent something: only then is there something to wait for.
export function askToNotify() {
  if ("Notification" in window && Notification.permission === "default" && !localStorage.getItem("asked-to-notify")) {
    localStorage.setItem("asked-to-notify", "1");
    Notification.requestPermission().catch(() => {});
  }
}
