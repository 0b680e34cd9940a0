// The model form shows only the fields that the chosen provider needs; the zone form offers the browser's.

const form = document.getElementById("model-form");
const provider = document.getElementById("provider");
const NEEDS = { echo: [], local: [], server: ["base_url", "model", "key"] };

function fit() {
  const needed = NEEDS[provider.value] ?? ["model", "key"];
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !needed.includes(part.dataset.for);
  document.getElementById("model-name").placeholder = provider.selectedOptions[0]?.dataset.example ?? "";
}

// The zone of this browser is the likely one.
const zone = document.getElementById("s-timezone");
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !zone.disabled && zone.value !== here && [...zone.options].some((each) => each.value === here)) {
  const take = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: `Use ${here}, as in this browser` });
  take.addEventListener("click", () => { zone.value = here; zone.dispatchEvent(new Event("input", { bubbles: true })); take.remove(); zone.focus(); });
  zone.after(take);
}

if (form) {
  form.addEventListener("change", fit);
  addEventListener("pageshow", fit);
  fit();
}
