// The model form shows the fields that the chosen provider needs, and its models; the zone form offers the browser's.

import { post } from "./dom.js";

const form = document.getElementById("model-form");
const provider = document.getElementById("provider");
const choice = document.getElementById("model-choice");
const name = document.getElementById("model-name");
const NEEDS = { echo: [], guide: [], local: ["model"], server: ["base_url", "key", "model"] };
const ANOTHER = "another";
let asked = "";

function fit() {
  const needed = NEEDS[provider.value] ?? ["key", "model"];
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !needed.includes(part.dataset.for);
  const { example, keys } = provider.selectedOptions[0]?.dataset ?? {};
  name.placeholder = example ?? "";
  const link = document.getElementById("key-page");
  link.hidden = !keys;
  link.href = keys ?? "";
}

// Ask for the models again where the provider, its address or the key changed.
async function list() {
  const { base_url: address, key } = form.elements;
  const wanted = [provider.value, address.value, key.value].join(" ");
  if (wanted === asked || provider.disabled) return;
  asked = wanted;
  show([], "", "");
  if (!(NEEDS[provider.value] ?? ["model"]).includes("model") || (provider.value === "server" && !address.validity.valid)) return;
  // Without a key there is no list, unless one is set for this provider.
  const isKept = form.dataset.kept === `${provider.value} ${provider.value === "server" ? address.value : ""}` && document.getElementById("key-set").textContent.startsWith("A key");
  if (!["server", "local"].includes(provider.value) && !key.value && !isKept) { help("With your key, the models that it can use are listed here."); return; }
  help("Looking for its models …");
  const body = new URLSearchParams(new FormData(form));
  if (provider.value !== "server") body.set("base_url", "");
  const answer = await post("/settings/model/choices", body);
  if (wanted !== asked) return;
  const { choices = [], usual = "", says = "" } = answer?.ok ? await answer.json() : {};
  show(choices, usual, says);
}

const help = (text) => { document.getElementById("model-help").textContent = text; };

function show(choices, usual, says) {
  help(says || "The name that the provider uses.");
  choice.hidden = !choices.length;
  choice.replaceChildren(...[...choices, [ANOTHER, "Another …"]].map(([value, label]) => new Option(label, value)));
  if (!choices.length) { name.hidden = false; return; }
  if (!name.value) name.value = usual;
  choice.value = choices.some(([value]) => value === name.value) ? name.value : ANOTHER;
  name.hidden = choice.value !== ANOTHER;
  explain();
}

// Say more of the chosen model than fits into the list.
function explain() {
  const label = choice.selectedOptions[0]?.textContent ?? "", count = choice.options.length - 1;
  if (provider.value === "local" && !name.hidden) help("A GGUF file on this machine, or OWNER/REPOSITORY of the hub.");
  else if (provider.value === "local") help(`${label}. Size and licence are shown before anything is downloaded.`);
  else help(count === 1 ? "It offers one model." : `${count} models to choose from.`);
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
  provider.addEventListener("change", () => { name.value = ""; });
  choice.addEventListener("change", () => {
    name.hidden = choice.value !== ANOTHER;
    name.value = name.hidden ? choice.value : "";
    explain();
    if (!name.hidden) name.focus();
  });
  form.addEventListener("change", () => { fit(); list(); });
  addEventListener("pageshow", () => { fit(); list(); });
  fit();
  list();
}
