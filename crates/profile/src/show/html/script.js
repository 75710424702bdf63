// The flame graph: callers above, what they called below; widths by the figure that is shown. Only
// frames that are wide enough to be seen become elements.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("profile").textContent);
  const ROW = 20, WIDTH_PX_MIN = 1.2, TEXT_PX = 22;
  const flame = document.getElementById("flame"), detail = document.getElementById("detail");
  const search = document.getElementById("search"), matched = document.getElementById("matched");
  const reset = document.getElementById("reset");
  const count = data.parent.length, inlined = new Set(data.inlined), library = new Set(data.library);
  const children = Array.from({ length: count }, () => []);
  for (let node = 1; node < count; node++) children[data.parent[node]].push(node);
  const name = (node) => data.names[data.name[node]];
  let view = data.views[0], zoomed = 0, current = 0, wanted = null;

  const digits = (v) => String(v >= 99.95 ? Math.round(v) : Number(v.toFixed(v >= 9.995 ? 1 : 2)));
  const scaled = (value, step, units) => {
    let place = 0, v = Math.abs(value);
    while (v >= 999.5 && place + 1 < units.length) { v /= step; place++; }
    return `${value < 0 ? "−" : ""}${digits(v)} ${units[place]}`.trim();
  };
  const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
  const amount = (value) => {
    if (view.unit === "count") return scaled(value, 1000, ["", "k", "M", "G", "T"]);
    return bytes(value * view.scale) + (view.unit === "bytes/s" ? "/s" : "");
  };
  const duration = (ns) => {
    for (const [size, unit] of [[864e11, "d"], [36e11, "h"], [6e10, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
      if (ns >= size) return `${digits(ns / size)} ${unit}`;
    return `${digits(ns)} ns`;
  };
  const percent = (share) => `${share >= 0.0995 || share === 0 ? (share * 100).toFixed(0) : (share * 100).toFixed(1)} %`;

  const value = (node) => Math.max(0, data.columns[view.column][node]);
  const hue = (text) => {
    let hash = 7;
    for (const c of text) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
    return hash % 360;
  };
  const hues = data.modules.map(hue);

  // Growth from the earlier to the later profile.
  const growth = (node) => {
    const [own, other] = [data.columns[view.column][node], data.columns[view.other][node]];
    return view.later ? own - other : other - own;
  };

  const describe = (node) => {
    const total = value(0) || 1, parts = [`${amount(value(node))} (${percent(value(node) / total)})`];
    if (view.other !== null) {
      const change = growth(node);
      parts.push(`${change > 0 ? "+" : ""}${amount(change)}`);
    }
    if (view.mean !== null && value(node) > 0)
      parts.push(`mean lifetime ${duration(data.columns[view.mean][node] / value(node))}`);
    const module = data.modules[data.module[node]];
    if (module) parts.push(module);
    if (inlined.has(node)) parts.push("inlined");
    return parts.join(" · ");
  };
  const tell = (node) => {
    const bold = document.createElement("b");
    bold.textContent = name(node);
    detail.replaceChildren(bold, ` ${describe(node)}`);
  };

  const element = (node, left, width, row, above) => {
    const frame = document.createElement("div");
    frame.className = "frame";
    frame.id = `n${node}`;
    frame.setAttribute("role", "treeitem");
    frame.setAttribute("aria-label", `${data.short[data.name[node]]}, ${describe(node)}`);
    frame.setAttribute("aria-level", String(row + 1));
    // Shares of the graph, which is narrower on paper.
    const share = (length) => `${(length / flame.clientWidth) * 100}%`;
    frame.style.left = share(left);
    frame.style.width = share(width);
    frame.style.top = `${row * ROW}px`;
    if (view.other !== null) {
      const change = growth(node), total = Math.max(value(0), 1);
      frame.classList.add("delta");
      frame.style.setProperty("--to", change > 0 ? "var(--grown)" : "var(--shrunk)");
      // The root of the share shows small changes too.
      frame.style.setProperty("--much", `${Math.min(85, Math.sqrt(Math.abs(change) / total) * 100)}%`);
    } else if (library.has(node)) {
      frame.classList.add("plain");
    } else {
      frame.style.setProperty("--h", String(hues[data.module[node]] + (hue(name(node)) % 50) - 25));
    }
    if (above) frame.classList.add("above");
    if (width < TEXT_PX) frame.classList.add("narrow"); else frame.textContent = data.short[data.name[node]];
    if (wanted && wanted(name(node))) frame.classList.add("match");
    if (node === current) frame.classList.add("current");
    frame.dataset.node = String(node);
    return frame;
  };

  const draw = () => {
    const width = flame.clientWidth, parts = document.createDocumentFragment();
    const path = [];
    for (let node = zoomed; node !== 0; node = data.parent[node]) path.unshift(data.parent[node]);
    path.forEach((node, row) => parts.append(element(node, 0, width, row, true)));
    let rows = path.length;
    const all = value(zoomed);
    const place = (node, left, row) => {
      const wide = all > 0 ? (value(node) / all) * width : 0;
      if (wide < WIDTH_PX_MIN) return;
      parts.append(element(node, left, wide, row, false));
      rows = Math.max(rows, row + 1);
      const below = children[node].slice().sort((a, b) => value(b) - value(a));
      let x = left;
      for (const child of below) {
        place(child, x, row + 1);
        x += (value(child) / all) * width;
      }
    };
    place(zoomed, 0, path.length);
    flame.replaceChildren(parts);
    flame.style.height = `${Math.max(rows, 1) * ROW}px`;
    flame.setAttribute("aria-activedescendant", `n${current}`);
    reset.disabled = zoomed === 0;
    tell(current);
  };

  // Frames below a matching one are counted with it.
  const match = () => {
    if (!wanted) { matched.textContent = ""; return; }
    let sum = 0, found = 0;
    const under = new Uint8Array(count);
    for (let node = 1; node < count; node++) {
      const parent = data.parent[node];
      if (under[parent]) { under[node] = 1; continue; }
      if (wanted(name(node))) { under[node] = 1; sum += value(node); found++; }
    }
    matched.textContent = found ? `matched ${percent(sum / (value(0) || 1))} · ${amount(sum)}` : "nothing matches";
  };

  const zoom = (node) => { zoomed = node; current = node; draw(); };
  const move = (node) => {
    current = node;
    if (!document.getElementById(`n${node}`)) zoomed = node;
    draw();
    document.getElementById(`n${node}`)?.scrollIntoView({ block: "nearest" });
  };
  const shown = (nodes) => nodes.filter((node) => value(node) > 0).sort((a, b) => value(b) - value(a));

  const views = document.querySelector(".views");
  for (const each of data.views) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = each.name;
    button.setAttribute("aria-pressed", String(each === view));
    button.addEventListener("click", () => {
      view = each;
      for (const other of views.children) other.setAttribute("aria-pressed", String(other === button));
      if (value(zoomed) === 0) zoomed = current = 0;
      match();
      draw();
    });
    views.append(button);
  }
  if (data.views.some((each) => each.other !== null)) {
    const key = document.createElement("span");
    key.className = "key";
    for (const [color, text] of [["--grown", "grew"], ["--shrunk", "shrank"]]) {
      const sign = document.createElement("i"), item = document.createElement("span");
      sign.style.background = `var(${color})`;
      item.append(sign, text);
      key.append(item);
    }
    views.after(key);
  }

  const node_of = (event) => {
    const frame = event.target.closest(".frame");
    return frame ? Number(frame.dataset.node) : null;
  };
  flame.addEventListener("click", (event) => { const node = node_of(event); if (node !== null) zoom(node); });
  flame.addEventListener("pointerover", (event) => { const node = node_of(event); if (node !== null) tell(node); });
  flame.addEventListener("pointerleave", () => tell(current));
  flame.addEventListener("keydown", (event) => {
    const parent = data.parent[current], row = shown(children[parent]), place = row.indexOf(current);
    const below = shown(children[current]);
    const keys = {
      ArrowUp: () => move(parent),
      ArrowDown: () => below.length && move(below[0]),
      ArrowLeft: () => current !== 0 && place > 0 && move(row[place - 1]),
      ArrowRight: () => current !== 0 && place + 1 < row.length && move(row[place + 1]),
      Home: () => zoom(0),
      Enter: () => zoom(current),
      " ": () => zoom(current),
      Escape: () => zoom(data.parent[zoomed]),
      Backspace: () => zoom(data.parent[zoomed]),
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  reset.addEventListener("click", () => { zoom(0); flame.focus(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { search.value = ""; search.dispatchEvent(new Event("input")); flame.focus(); }
  });
  search.addEventListener("input", () => {
    const text = search.value.trim().toLowerCase();
    wanted = text ? (name) => name.toLowerCase().includes(text) : null;
    match();
    draw();
  });
  if (data.views.length && count > 1) {
    let width = 0;
    new ResizeObserver(() => {
      if (flame.clientWidth !== width) { width = flame.clientWidth; draw(); }
    }).observe(flame);
  } else {
    detail.textContent = "The profile has no samples.";
  }
})();
