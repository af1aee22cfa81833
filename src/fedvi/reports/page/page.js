"use strict";
/* Puts the page together: tabs, table, charts of the chosen partition, legends that hide and show. */

const data = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const GROUPS = { small: ["#E69F00", []], large: ["#0072B2", [4, 2]], all: ["#0072B2", []] };
let redraws = [];
let chosen = 0;
const redraw = () => redraws.forEach((draw) => draw());

function learning(partition) {
  const host = byId("learning-charts"), methods = {};
  host.replaceChildren();
  for (const measure of data.measures) {
    const found = partition.progress[measure.key];
    if (!found) continue;
    const marks = [];
    const series = Object.entries(found.curves).map(([method, [x, y, low, high]]) => {
      const { label, colour, dash } = data.methods[method], id = `m:${method}`;
      methods[method] = { id, label, colour, dash };
      (partition.ends[method] || []).forEach((moment, k) => marks.push({ id, colour, first: k === 0, x: moment, y: between(x, y, moment) }));
      return { id, label, colour, dash, x, y, low, high };
    });
    const spec = { title: measure.axis, xlabel: "communications (log scale)", log: true, digits: measure.digits, series, marks };
    if (found.broken) {
      const ends = ({ y }) => y[y.length - 1];
      const names = series.filter((one) => ends(one) < found.range[0]).map((one) => `${one.label} (ends at ${ends(one).toFixed(measure.digits)})`);
      Object.assign(spec, { range: found.range, aside: `Below this axis: ${[...names, "earlier parts of the curves"].join(", ")}.` });
    }
    redraws.push(lineChart(host, { ...spec, xname: (x) => `${count(x)} communications` }, hidden));
  }
  byId("learning").hidden = !host.children.length;
  byId("ends-note").hidden = !Object.values(partition.ends).some(Boolean);
  legend(byId("learning-legend"), Object.values(methods), hidden, redraw);
}

function between(x, y, at) {
  const k = x.findIndex((value) => value >= at);
  if (k <= 0) return y[k === 0 ? 0 : y.length - 1];
  return y[k - 1] + ((at - x[k - 1]) / (x[k] - x[k - 1])) * (y[k] - y[k - 1]);
}

function tradeoff(partition) {
  const host = byId("tradeoff-charts"), entries = {};
  host.replaceChildren();
  for (const measure of data.measures) {
    const found = partition.tradeoff[measure.key];
    if (!found) continue;
    const series = [], flats = [];
    const add = (base, points, hollow) => {
      const { label, colour } = data.bases[base], id = `${hollow ? "p" : "b"}:${base}`;
      entries[id] = { id, label: hollow ? `${label}: published` : label, colour, hollow };
      const [x, y, bars] = [0, 1, 2].map((part) => points.map((point) => point[part]));
      series.push({ ...entries[id], x, y, bars: hollow ? null : bars, dots: true, exact: true });
    };
    Object.entries(found.ours).forEach(([base, points]) => add(base, points, false));
    Object.entries(found.published).forEach(([base, points]) => add(base, points, true));
    for (const [method, y] of found.flat) {
      const { label, colour } = data.methods[method], id = `f:${method}`;
      entries[id] = { id, label: /not private/i.test(label) ? label : `${label}, not private`, colour, dash: [4, 2.5] };
      flats.push({ ...entries[id], y });
    }
    const ticks = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b).map((x) => [x, String(x)]);
    const values = series.flatMap((one) => one.y.flatMap((y, k) => { const bar = one.bars ? one.bars[k] : 0; return [y - bar, y + bar]; }));
    const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
    const [near, far] = [true, false].map((kind) => flats.filter(({ y }) => (y >= low - span && y <= high + 2.5 * span) === kind));
    const spec = { title: measure.axis, xlabel: "ε of every client (log scale)", log: true, xticks: ticks, digits: measure.digits, series, flats };
    if (far.length) {
      const kept = near.map(({ y }) => y), least = Math.min(low, ...kept), most = Math.max(high, ...kept);
      spec.aside = `Outside this axis: ${far.map(({ label, y }) => `${label} (${y.toFixed(measure.digits)})`).join(", ")}.`;
      spec.range = [least - 0.08 * (most - least), most + 0.08 * (most - least)];
    }
    redraws.push(lineChart(host, { ...spec, xname: (x) => `ε = ${x}` }, hidden));
  }
  byId("tradeoff").hidden = !host.children.length;
  legend(byId("tradeoff-legend"), Object.values(entries), hidden, redraw);
}

function spending(partition) {
  const host = byId("spending-charts"), groups = {};
  host.replaceChildren();
  const top = Math.max(...partition.spending.flatMap(({ budget, clients }) => [budget, ...clients.flatMap(({ y }) => y)]));
  for (const { method, budget, clients } of partition.spending) {
    const series = clients.map(({ name, rows, group, x, y }) => {
      const [colour, dash] = GROUPS[group], id = `g:${group}`;
      groups[group] = { id, label: group === "all" ? "clients" : `${group} clients`, colour, dash };
      return { id, label: `${name} (${count(rows)} rows)`, colour, dash, x, y, stays: true };
    });
    const title = data.methods[method].label, xname = (x) => `${count(x)} communications, budget ${budget}`;
    const largest = Math.max(...clients.map(({ y }) => y[y.length - 1])), over = largest > budget * (1 + 1e-9);
    const wide = 1.4 * Math.max(top / budget - 1, 0.01), range = [budget * (1 - wide), budget * (1 + wide)];
    const aside = `Largest ε: ${largest.toFixed(4)}, ${over ? "over" : "within"} the budget.`;
    const spec = { title, xlabel: "communications", xname, digits: 4, height: 270, ylow: 0, ytop: top, budget, series };
    redraws.push(lineChart(host, { ...spec, range, aside, zoom: "Zoom to the budget", startFull: true }, hidden));
  }
  byId("spending").hidden = !host.children.length;
  legend(byId("spending-legend"), Object.values(groups), hidden, redraw);
}

function table() {
  const all = byId("all-rows").getAttribute("aria-pressed") === "true", name = data.partitions[chosen]?.name;
  for (const body of document.querySelectorAll("#table tbody")) {
    body.hidden = !all && body.dataset.partition !== name;
    body.querySelector(".group").hidden = !all;
  }
  document.querySelector("#results .where").hidden = all;
}

function choose(index, focus) {
  chosen = index;
  redraws = [];
  tooltip.hide();
  const partition = data.partitions[index], several = data.partitions.length > 1;
  [...byId("tabs").children].forEach((tab, k) => {
    tab.setAttribute("aria-selected", String(k === index));
    tab.tabIndex = k === index ? 0 : -1;
    if (focus && k === index) tab.focus();
  });
  document.querySelectorAll(".where").forEach((where) => { where.textContent = several ? `on ${partition.name}` : ""; });
  table();
  learning(partition);
  tradeoff(partition);
  spending(partition);
}

function start() {
  data.partitions.forEach(({ name }, k) => {
    const tab = html("button", { type: "button", role: "tab", "aria-selected": "false", "aria-controls": "results" }, name);
    tab.addEventListener("click", () => choose(k, false));
    byId("tabs").append(tab);
  });
  byId("tabs").addEventListener("keydown", (event) => {
    const total = data.partitions.length;
    const next = { ArrowRight: (chosen + 1) % total, ArrowLeft: (chosen + total - 1) % total, Home: 0, End: total - 1 }[event.key];
    if (next !== undefined) { event.preventDefault(); choose(next, true); }
  });
  byId("picker").hidden = byId("all-rows").hidden = data.partitions.length < 2;
  byId("all-rows").addEventListener("click", ({ target }) => {
    target.setAttribute("aria-pressed", String(target.getAttribute("aria-pressed") !== "true"));
    target.textContent = target.getAttribute("aria-pressed") === "true" ? "Show the chosen one only" : "Show all partitions";
    table();
  });
  if (data.partitions.length) choose(0, false);
  else byId("results").hidden = true;
  if (data.grid) {
    byId("grid").hidden = false;
    byId("grid-note").textContent = `${data.grid.title}, in every setting of ${data.grid.x} and ${data.grid.y}.`;
    for (const measure of data.measures) if (data.grid.maps[measure.key].length) heatMap(byId("grid-charts"), data.grid, data.grid.maps[measure.key], measure);
  }
}

start();
