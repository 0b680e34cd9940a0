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

// A browser asks only after a click.
export function offerNotifications(button) {
  if (!("Notification" in window) || Notification.permission !== "default") return;
  button.hidden = false;
  button.addEventListener("click", async () => { await Notification.requestPermission(); button.hidden = true; });
}
