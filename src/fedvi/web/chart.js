"use strict";
/* Line charts and heat maps as inline SVG. Text enters the page as text only, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

function node(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function html(name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

const byId = (id) => document.getElementById(id);
const ink = (colour) => (colour === "#000000" ? "var(--ink)" : colour);
const count = (value) => Math.round(value).toLocaleString("en");

function niceTicks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(k * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step)) + (Math.abs(step / power - 2.5) < 1e-9 ? 1 : 0));
  return ticks.map((value) => [value, value.toFixed(digits)]);
}

function logTicks(low, high) {
  const ticks = [];
  for (let k = Math.ceil(Math.log10(low) - 1e-9); 10 ** k <= high * 1.0001; k++) ticks.push([10 ** k, count(10 ** k)]);
  return ticks.length > 1 ? ticks : niceTicks(low, high, 4).filter(([value]) => value > 0);
}

function nearest(values, x, distance) {
  let best = 0;
  values.forEach((value, k) => { if (distance(value, x) < distance(values[best], x)) best = k; });
  return best;
}

/* The tooltip is one for the page. */
const tooltip = {
  show(event, title, lines) {
    const box = byId("tooltip");
    box.replaceChildren(html("strong", {}, title));
    for (const line of lines) {
      const row = html("div", line.ended ? { class: "ended" } : {});
      const dot = html("span", {}, "●");
      dot.style.color = ink(line.colour);
      row.append(dot, html("span", {}, line.label), html("span", {}, line.value));
      box.append(row);
    }
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = event.clientX + 18 + width > innerWidth ? event.clientX - width - 18 : event.clientX + 18;
    box.style.left = `${Math.max(6, left)}px`;
    box.style.top = `${Math.max(6, Math.min(event.clientY - 20, innerHeight - height - 6))}px`;
  },
  hide() { byId("tooltip").hidden = true; },
};

/* spec: title, xlabel, xname, log, xticks, ylow, ytop, digits, height, budget, series, flats, marks;
   range: the part of y to zoom to, with aside (what is said about it), zoom (the button's name), startFull.
   xend: where the axis ends at the least; xmarks, ymarks: (low, high) => ticks; text: (y) => what a value is called.
   A series: id, label, colour, dash, x, y, low, high, stays, steps, dots, cloud, bars, hollow, exact.
   cloud: the width of points without a line.
   Returns the function that draws it again, with what spec holds by then. */
function lineChart(host, spec, hidden) {
  const figure = html("figure");
  figure.append(html("figcaption", {}, spec.title));
  const svg = node("svg", { class: "chart", tabindex: "0", role: "img", "aria-label": spec.title });
  figure.append(svg);
  host.append(figure);
  const state = { full: !spec.range || Boolean(spec.startFull), at: null, event: null };
  const text = spec.text || ((y) => y.toFixed(spec.digits));
  const shown = () => spec.series.filter((one) => !hidden.has(one.id) && one.x.length);
  if (spec.range) figure.append(rangeNote(spec, state, () => draw()));
  let place = null;

  function draw() {
    const width = Math.max(svg.clientWidth || figure.clientWidth, 240), height = spec.height || 300;
    const left = spec.digits > 3 ? 62 : 52, right = width - 12, top = 10, bottom = height - 42;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.height = `${height}px`;
    const series = shown(), flats = (spec.flats || []).filter((one) => !hidden.has(one.id));
    const xs = spec.series.flatMap((one) => one.x).concat(spec.xticks ? spec.xticks.map(([x]) => x) : [], spec.xend ?? []);
    const pad = spec.xticks ? 1.18 : 1;
    const x0 = Math.min(...xs, spec.log ? Infinity : 0) / pad, x1 = Math.max(...xs) * pad || 1;
    let [y0, y1] = state.full ? extent(series.concat(flats.map((one) => ({ y: [one.y] }))), spec) : spec.range;
    if (!(y1 > y0)) [y0, y1] = [y0 - 0.5, y0 + 0.5];
    const scale = spec.log ? Math.log : (x) => x;
    const px = (x) => left + ((scale(x) - scale(x0)) / (scale(x1) - scale(x0) || 1)) * (right - left);
    const py = (y) => bottom - ((y - y0) / (y1 - y0)) * (bottom - top);
    place = { px, py, left, right, top, bottom };
    svg.replaceChildren();
    const clip = `clip-${lineChart.made = (lineChart.made || 0) + 1}`;
    const cut = node("clipPath", { id: clip });
    cut.append(node("rect", { x: left, y: top - 4, width: right - left + 6, height: bottom - top + 8 }));
    svg.append(cut);
    for (const [y, name] of spec.ymarks ? spec.ymarks(y0, y1) : niceTicks(y0, y1, 7)) {
      svg.append(node("line", { class: "grid", x1: left, x2: right, y1: py(y), y2: py(y) }));
      svg.append(node("text", { x: left - 8, y: py(y) + 4, "text-anchor": "end" }, name.replace("-", "−")));
    }
    let free = -Infinity;
    for (const [x, name] of spec.xticks || (spec.xmarks ? spec.xmarks(x0, x1) : spec.log ? logTicks(x0, x1) : niceTicks(x0, x1, 5))) {
      svg.append(node("line", { class: "axis", x1: px(x), x2: px(x), y1: bottom, y2: bottom + 4 }));
      const wide = name.length * 7;
      if (px(x) - wide / 2 < free) continue;
      free = px(x) + wide / 2 + 5;
      const anchor = px(x) + wide / 2 > width ? "end" : "middle";
      svg.append(node("text", { x: anchor === "end" ? right + 10 : px(x), y: bottom + 18, "text-anchor": anchor }, name));
    }
    svg.append(node("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    svg.append(node("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, spec.xlabel));
    const body = node("g", { class: "series", "clip-path": `url(#${clip})` });
    for (const one of flats) {
      body.append(node("line", { x1: left, x2: right, y1: py(one.y), y2: py(one.y), stroke: ink(one.colour), "stroke-dasharray": "7 4", "stroke-width": 1.5, "data-series": one.id }));
    }
    series.forEach((one) => drawSeries(body, one, px, py, spec, x1));
    if (spec.budget) {
      body.append(node("line", { x1: left, x2: right, y1: py(spec.budget), y2: py(spec.budget), stroke: "var(--ink)", "stroke-dasharray": "6 4", "stroke-width": 1.6 }));
    }
    for (const mark of (spec.marks || []).filter((mark) => !hidden.has(mark.id))) drawMark(body, mark, px, py);
    svg.append(body);
    svg.append(node("g", { class: "hover" }));
    if (state.event && svg.isConnected) point(state.event, state.at);
  }

  function point(event, x) {
    const { px, py, top, bottom } = place, series = shown(), layer = svg.querySelector(".hover");
    const far = (a, b) => Math.abs(px(a) - px(b));
    const all = series.flatMap((one) => one.x);
    if (!all.length) return;
    state.at = all[nearest(all, x, far)];
    state.event = { clientX: event.clientX, clientY: event.clientY };
    layer.replaceChildren(node("line", { class: "guide", x1: px(state.at), x2: px(state.at), y1: top, y2: bottom }));
    const lines = series.map((one) => {
      const k = one.steps ? Math.max(0, one.x.filter((value) => value <= state.at).length - 1) : nearest(one.x, state.at, far);
      if (one.exact && one.x[k] !== state.at) return null;
      const ended = one.x[one.x.length - 1] < state.at && !one.exact && !one.stays;
      const spread = one.bars ? ` ± ${text(one.bars[k])}` : "";
      if (!ended) layer.append(node("circle", { cx: px(one.steps ? state.at : one.stays ? Math.max(one.x[k], Math.min(state.at, k === one.x.length - 1 ? state.at : one.x[k])) : one.x[k]), cy: py(one.y[k]), r: 3.5, fill: ink(one.colour) }));
      return { label: one.label, colour: one.colour, ended, order: one.y[k], value: text(one.y[k]) + spread + (ended ? ", ended" : "") };
    }).filter(Boolean).sort((a, b) => b.order - a.order);
    for (const one of (spec.flats || []).filter((one) => !hidden.has(one.id))) {
      lines.push({ label: one.label, colour: one.colour, value: text(one.y) });
    }
    const more = lines.length - 16;
    if (more > 0) lines.splice(16, more, { label: `and ${more} more`, colour: "transparent", value: "" });
    tooltip.show(event, spec.xname(state.at), lines);
  }

  const leave = () => { state.event = null; tooltip.hide(); svg.querySelector(".hover")?.replaceChildren(); };
  svg.addEventListener("pointermove", (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left, { px } = place;
    const all = shown().flatMap((one) => one.x);
    if (all.length) point(event, all[nearest(all, at, (value, pixel) => Math.abs(px(value) - pixel))]);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) { if (event.key === "Escape") leave(); return; }
    event.preventDefault();
    const all = [...new Set(shown().flatMap((one) => one.x))].sort((a, b) => a - b);
    const k = state.at === null ? (step > 0 ? 0 : all.length - 1) : all.indexOf(state.at) + step;
    const x = all[Math.max(0, Math.min(all.length - 1, k))], box = svg.getBoundingClientRect();
    if (x !== undefined) point({ clientX: box.left + place.px(x), clientY: box.top + 40 }, x);
  });
  new ResizeObserver(draw).observe(figure);
  draw();
  return draw;
}
