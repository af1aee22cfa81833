"use strict";
/* From the status to what is shown: words, numbers, curves. Nothing here touches the page. */

const known = (value) => value !== null && value !== undefined;
const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;
const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");
const moment = (time) => new Date(time * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function duration(seconds) {
  const [size, name] = UNITS.find(([unit]) => seconds >= unit) || [1, "s"];
  return `${Math.floor(seconds / size)} ${name}`;
}

const ago = (seconds) => (seconds < 2 ? "just now" : `${duration(seconds)} ago`);

/* 1e-5 is 10⁻⁵. */
function power(value) {
  if (!(value > 0)) return String(value);
  if (value >= 0.001 && value < 1e6) return String(Number(value.toPrecision(3)));
  const exponent = Math.floor(Math.log10(value) + 1e-9), factor = Number((value / 10 ** exponent).toPrecision(3));
  const raised = [...String(exponent)].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] || "⁻").join("");
  return `${factor === 1 ? "" : `${factor}·`}10${raised}`;
}

/* What the federation is doing: a key for its look, and words. */
function stateOf(status) {
  const why = status.stop ? `: ${status.stop}` : "";
  if (status.over) return ["ended", `Ended${why}`];
  if (status.stop) return ["stopping", `Stopping${why}`];
  return known(status.started) ? ["running", "Running"] : ["waiting", "Waiting for the first release"];
}

/* Whether q is where it should be, as the last reading says. */
const arrival = (status) => (known(status.arrived) ? (status.arrived ? "yes" : "not yet") : "–");

/* Answers of every site over seconds since the start. */
function activity(status) {
  const curves = status.sites.map(() => ({ x: [0], y: [0] })), first = status.started ?? status.answers[0]?.[1] ?? 0;
  for (const [, time, site] of status.answers) {
    const curve = curves[site];
    if (!curve) continue;
    curve.x.push(Math.max(0, time - first));
    curve.y.push(curve.y.length);
  }
  return curves.map((curve) => (curve.x.length > 1 ? curve : { x: [], y: [] }));
}

/* log10 of the change of q by every reading. */
function changes(status) {
  const found = status.readings.filter((one) => one[2] > 0);
  return { x: found.map(([version]) => version), y: found.map((one) => Math.log10(one[2])) };
}

/* Ticks of a time axis: whole seconds, minutes, hours, days. */
function timeTicks(low, high) {
  const steps = [1, 2, 5, 10, 20, 30].flatMap((n) => [n, n * 60]).concat([1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672].map((n) => n * 3600)).sort((a, b) => a - b);
  const step = steps.find((one) => (high - low) / one <= 5.5) || niceTicks(low, high, 5)[1]?.[0] || high;
  const [size, name] = UNITS.find(([unit]) => step >= unit) || [1, "s"];
  const ticks = [];
  for (let x = Math.ceil(low / step) * step; x <= high; x += step) ticks.push([x, x ? `${Number((x / size).toFixed(2))} ${name}` : "0"]);
  return ticks;
}

/* Ticks of an axis of logarithms: whole powers of ten, as many as fit; 1, 2 and 5 of each where it has few. */
function powerTicks(low, high) {
  const step = Math.max(1, Math.ceil((high - low) / 7)), parts = high - low < 2 ? [1, 2, 5] : [1], ticks = [];
  for (let k = Math.floor(low / step) * step; k <= high; k += step) ticks.push(...parts.map((part) => part * 10 ** k));
  const inside = ticks.map((value) => [Math.log10(value), power(value)]).filter(([y]) => y >= low && y <= high);
  return inside.length > 1 ? inside : niceTicks(low, high, 4).map(([y]) => [y, power(10 ** y)]);
}
