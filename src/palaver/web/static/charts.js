// Plots: show the figure under the pointer or the arrow keys. Listeners are on the document: plots are replaced live.

function tell(plot, bar) {
  const tip = plot.querySelector(".tip");
  for (const each of plot.querySelectorAll(".is-chosen")) each.classList.remove("is-chosen");
  bar?.classList.add("is-chosen");
  tip.textContent = bar ? bar.dataset.tip : tip.dataset.usual;
}

document.addEventListener("pointermove", ({ target }) => {
  const plot = target.closest?.("[data-plot]");
  for (const each of document.querySelectorAll("[data-plot]")) if (each !== plot && each.querySelector(".is-chosen")) tell(each, null);
  if (plot) tell(plot, target.closest("[data-tip]"));
});

document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const drawing = event.target.closest?.("[data-plot] svg");
  if (!step || !drawing) return;
  const bars = [...drawing.querySelectorAll("[data-tip]")];
  const at = bars.findIndex((bar) => bar.classList.contains("is-chosen"));
  const next = at < 0 ? (step > 0 ? 0 : bars.length - 1) : Math.min(Math.max(at + step, 0), bars.length - 1);
  tell(drawing.closest("[data-plot]"), bars[next]);
  event.preventDefault();
});
