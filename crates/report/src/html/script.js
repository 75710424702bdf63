// Replaces the browser's tooltips with ones that appear at once, and highlights one allocator in
// all plots.
(() => {
  "use strict";
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  tip.hidden = true;
  const texts = new WeakMap();
  for (const title of document.querySelectorAll(".plot title")) {
    const owner = title.parentElement;
    texts.set(owner, title.textContent);
    owner.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const show = (event) => {
    const owner = event.target.closest(".point, .bar");
    const text = owner && texts.get(owner);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const room = 14, box = tip.getBoundingClientRect();
    const left = event.clientX + room + box.width > innerWidth ? event.clientX - room - box.width : event.clientX + room;
    const top = Math.min(event.clientY + room, innerHeight - box.height - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const marked = document.querySelectorAll(".plot [data-a]");
  const buttons = document.querySelectorAll(".legend button");
  const pinned = new Set();
  const light = (hovered) => {
    const lit = hovered ? new Set([...pinned, hovered]) : pinned;
    for (const part of marked) part.classList.toggle("dim", lit.size > 0 && !lit.has(part.dataset.a));
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerover", (event) => light(event.target.closest("[data-a]")?.dataset.a));
  document.documentElement.addEventListener("pointerleave", () => { tip.hidden = true; light(); });
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const name = button.dataset.a;
      if (!pinned.delete(name)) pinned.add(name);
      button.setAttribute("aria-pressed", String(pinned.has(name)));
      light();
    });
  }
})();
