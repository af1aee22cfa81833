"use strict";
/* The parts of charts: legends, curves, markers, ranges, heat maps. */

/* How a series is drawn, in small. */
function sample({ colour, dash, hollow }) {
  const made = node("svg", { width: 26, height: 10, class: "series", "aria-hidden": "true" });
  const style = { stroke: ink(colour), "stroke-width": 2.2, "stroke-dasharray": (dash || []).map((part) => part * 1.6).join(" ") };
  made.append(hollow ? node("rect", { x: 8, y: 0.8, width: 9, height: 9, fill: "none", stroke: ink(colour), "stroke-width": 1.6 }) : node("line", { x1: 0, x2: 26, y1: 5, y2: 5, ...style }));
  return made;
}

/* Names that hide and show: hidden is the set of ids that are not drawn, redraw is called when it has changed. */
function legend(host, entries, hidden, redraw) {
  host.replaceChildren();
  for (const entry of entries) {
    const button = html("button", { type: "button", "aria-pressed": String(!hidden.has(entry.id)), "data-series": entry.id });
    button.append(sample(entry), html("span", {}, entry.label));
    button.addEventListener("click", () => {
      if (!hidden.delete(entry.id)) hidden.add(entry.id);
      button.setAttribute("aria-pressed", String(!hidden.has(entry.id)));
      redraw();
    });
    host.append(button);
  }
}

function extent(series, spec) {
  const values = series.flatMap((one) => [...one.y, ...(one.low || []), ...(one.high || [])]);
  const bars = series.flatMap((one) => (one.bars || []).flatMap((bar, k) => [one.y[k] - bar, one.y[k] + bar]));
  const all = values.concat(bars, spec.budget ? [spec.budget] : []);
  if (!all.length) return [0, 1];
  const low = Math.min(...all), high = Math.max(...all), pad = 0.06 * (high - low || Math.abs(high) || 1);
  return [spec.ylow ?? low - pad, Math.max(high, spec.ytop ?? high) + pad];
}

function drawSeries(body, one, px, py, spec, x1) {
  const group = node("g", { "data-series": one.id }), colour = ink(one.colour), last = one.x.length - 1;
  const at = (k, values) => `${px(one.x[k]).toFixed(1)},${py(values[k]).toFixed(1)}`;
  if (one.low) {
    const up = one.x.map((_, k) => at(k, one.high)), down = one.x.map((_, k) => at(last - k, one.low));
    group.append(node("polygon", { points: up.concat(down).join(" "), fill: colour, "fill-opacity": 0.14 }));
  }
  if (one.cloud) {
    const points = one.x.map((_, k) => `M${at(k, one.y)}h0`).join("");
    group.append(node("path", { d: points, fill: "none", stroke: colour, "stroke-width": one.cloud, "stroke-linecap": "round", "stroke-opacity": 0.6 }));
  } else if (!one.hollow) {
    let path = one.x.map((_, k) => (!k ? "M" : one.steps ? `H${px(one.x[k]).toFixed(1)}L` : "L") + at(k, one.y)).join("");
    if (one.stays) path += `H${px(x1).toFixed(1)}`;
    const dash = one.dash && one.dash.length ? { "stroke-dasharray": one.dash.map((part) => part * 1.6).join(" ") } : {};
    group.append(node("path", { d: path, fill: "none", stroke: colour, "stroke-width": one.stays && !one.steps ? 1.2 : 1.9, "stroke-linejoin": "round", ...dash }));
  }
  one.x.forEach((x, k) => {
    if (one.bars) group.append(node("line", { x1: px(x), x2: px(x), y1: py(one.y[k] - one.bars[k]), y2: py(one.y[k] + one.bars[k]), stroke: colour, "stroke-width": 1.3 }));
    if (one.hollow) group.append(node("rect", { x: px(x) - 5.5, y: py(one.y[k]) - 5.5, width: 11, height: 11, fill: "none", stroke: colour, "stroke-width": 1.6 }));
    else if (one.dots) group.append(node("circle", { cx: px(x), cy: py(one.y[k]), r: 3.4, fill: colour }));
  });
  if (one.stays) {
    const over = spec.budget && one.y[last] > spec.budget * (1 + 1e-9);
    group.append(node("circle", { cx: px(one.x[last]), cy: py(one.y[last]), r: over ? 4 : 3, fill: over ? "var(--bad)" : colour }));
  }
  body.append(group);
}

function drawMark(body, mark, px, py) {
  const x = px(mark.x), y = py(mark.y), colour = ink(mark.colour), style = { stroke: colour, "stroke-width": 1.6 };
  if (mark.first) body.append(node("path", { d: `M${x - 5},${y - 4}h10l-5,9z`, fill: "var(--paper)", ...style }));
  else body.append(node("circle", { cx: x, cy: y, r: 4.5, fill: colour }));
}

/* What the axis leaves out is said, and one click shows it. */
function rangeNote(spec, state, redraw) {
  const note = html("p", { class: "aside" }), zoom = spec.zoom || "Zoom in";
  const text = html("span", {}, spec.aside);
  const button = html("button", { type: "button" });
  const show = () => {
    button.textContent = state.full ? zoom : "Show full range";
    text.hidden = state.full && !spec.startFull;
  };
  button.addEventListener("click", () => { state.full = !state.full; show(); redraw(); });
  show();
  note.append(text, button);
  return note;
}

/* Purple above zero, orange below; the page's paper at zero. */
function shade(value, most, compared, least) {
  const part = compared ? Math.min(1, Math.abs(value) / (most || 1)) : (value - least) / (most - least || 1);
  return { fill: compared && value < 0 ? "#E66101" : "#5E3C99", "fill-opacity": (0.04 + 0.86 * part).toFixed(3), dark: part > 0.55 };
}

function heatMap(host, grid, cells, measure) {
  const figure = html("figure");
  figure.append(html("figcaption", {}, measure.axis));
  const svg = node("svg", { class: "chart", role: "img", "aria-label": `${grid.title}: ${measure.axis}` });
  figure.append(svg);
  host.append(figure);
  const values = cells.map(([, , value]) => value);
  const most = grid.compared ? Math.max(...values.map(Math.abs)) : Math.max(...values), least = Math.min(...values);

  function draw() {
    const width = Math.max(svg.clientWidth || figure.clientWidth, 240), left = 52, top = 6;
    const wide = (width - left - 6) / grid.xs.length, high = Math.max(26, Math.min(44, wide * 0.6));
    const height = top + high * grid.ys.length + 44, row = (y) => top + high * (grid.ys.length - 1 - grid.ys.indexOf(y));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.height = `${height}px`;
    svg.replaceChildren();
    for (const [x, y, reason] of grid.skipped) {
      const group = node("g", { class: "cell" }), x0 = left + wide * grid.xs.indexOf(x), y0 = row(y);
      for (let k = 0; k < 4; k++) {
        const shift = (k + 0.5) * wide / 4;
        group.append(node("line", { class: "grid", x1: x0 + shift - 6, x2: x0 + shift + 6, y1: y0 + high - 4, y2: y0 + 4 }));
      }
      group.append(node("rect", { x: x0, y: y0, width: wide, height: high, fill: "transparent" }));
      listen(group, x, y, "cannot be", reason);
      svg.append(group);
    }
    const small = wide < 46, digits = Math.max(1, measure.digits - (small ? 2 : 1));
    for (const [x, y, value] of cells) {
      const group = node("g", { class: "cell" }), { dark, ...fill } = shade(value, most, grid.compared, least);
      group.append(node("rect", { x: left + wide * grid.xs.indexOf(x) + 1, y: row(y) + 1, width: wide - 2, height: high - 2, rx: 3, ...fill }));
      const text = node("text", { x: left + wide * (grid.xs.indexOf(x) + 0.5), y: row(y) + high / 2 + 4, "text-anchor": "middle" }, signed(value, digits, grid.compared));
      text.style.fill = dark ? "#ffffff" : "var(--ink)";
      if (wide < 40) text.style.fontSize = "10px";
      group.append(text);
      listen(group, x, y, signed(value, measure.digits, grid.compared), "");
      svg.append(group);
    }
    for (const x of grid.xs) svg.append(node("text", { x: left + wide * (grid.xs.indexOf(x) + 0.5), y: height - 24, "text-anchor": "middle" }, String(x)));
    for (const y of grid.ys) svg.append(node("text", { x: left - 8, y: row(y) + high / 2 + 4, "text-anchor": "end" }, String(y)));
    svg.append(node("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, grid.x));
    svg.append(node("text", { x: 12, y: (height - 40) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(height - 40) / 2})` }, grid.y));
  }

  function listen(group, x, y, value, label) {
    const title = `${grid.x} = ${x}, ${grid.y} = ${y}`;
    group.addEventListener("pointermove", (event) => tooltip.show(event, title, [{ label: label || grid.title, colour: "transparent", value }]));
    group.addEventListener("pointerleave", () => tooltip.hide());
  }
  new ResizeObserver(draw).observe(figure);
  draw();
}

const signed = (value, digits, compared) => (compared && value > 0 ? "+" : "") + value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
