// The model form: show only the fields that the chosen provider needs, with an example of its models.

const form = document.getElementById("model-form");
const provider = document.getElementById("provider");
const NEEDS = { echo: [], local: [], server: ["base_url", "model", "key"] };

function fit() {
  const needed = NEEDS[provider.value] ?? ["model", "key"];
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !needed.includes(part.dataset.for);
  document.getElementById("model-name").placeholder = provider.selectedOptions[0]?.dataset.example ?? "";
}

if (form) {
  form.addEventListener("change", fit);
  addEventListener("pageshow", fit);
  fit();
}
