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

/* The version of q at a time; between two updates that are drawn, in proportion. */
function versionAt(updates, time) {
  const next = updates.findIndex((one) => one[1] > time);
  if (next < 0) return updates.length ? updates[updates.length - 1][0] : 0;
  const [v1, t1] = updates[next], [v0, t0] = next ? updates[next - 1] : [v1 - 1, t1];
  return t1 > t0 ? v0 + Math.max(0, v1 - 1 - v0) * ((time - t0) / (t1 - t0)) : v0;
}

/* Updates per second over the last minute, or over all that has been if that is less; over everything once it is over. */
function rateOf(status) {
  const { updates, version } = status, first = status.started ?? updates[0]?.[1];
  if (!updates.length || !known(first)) return ["–", "updates per second, over the last minute"];
  const end = status.over ? updates[updates.length - 1][1] : status.time;
  const from = status.over ? first : Math.max(first, end - 60);
  const rate = (version - (from > first ? versionAt(updates, from) : 0)) / Math.max(end - from, 1);
  const over = status.over ? "from first to last" : "over the last minute";
  if (rate >= 0.1 || rate === 0) return [rate >= 100 ? count(rate) : rate.toFixed(rate >= 10 ? 1 : 2), `updates per second, ${over}`];
  return rate * 60 >= 0.1 ? [(rate * 60).toFixed(1), `updates per minute, ${over}`] : [(rate * 3600).toFixed(1), `updates per hour, ${over}`];
}

/* Updates of every site over seconds since the start. Of a long history some updates are left out; each one that is
   there stands for those before it, and every curve ends at what its site really has. */
function activity(status) {
  const curves = status.sites.map(() => ({ x: [0], y: [0] })), first = status.started ?? status.updates[0]?.[1] ?? 0;
  let last = 0;
  for (const [version, time, site] of status.updates) {
    const curve = curves[site];
    if (curve) {
      curve.x.push(Math.max(0, time - first));
      curve.y.push(curve.y[curve.y.length - 1] + Math.max(1, version - last));
    }
    last = version;
  }
  return curves.map(({ x, y }, k) => {
    const scale = x.length > 1 && known(status.sites[k].updates) ? status.sites[k].updates / y[y.length - 1] : 1;
    return x.length > 1 ? { x, y: y.map((value) => value * scale) } : { x: [], y: [] };
  });
}

/* log10 of the change of q by every update of every site, and, where there are enough, the median over neighbours. */
function changes(status) {
  const found = status.updates.filter((one) => one[3] > 0).map(([version, , site, change]) => [version, Math.log10(change), site]);
  const curves = status.sites.map((_, k) => found.filter((one) => one[2] === k)).map((own) => ({ x: own.map(([x]) => x), y: own.map(([, y]) => y) }));
  const reach = Math.max(2, Math.round(found.length / 40)), middle = { x: [], y: [] };
  for (let k = reach; found.length >= 20 && k < found.length - reach; k += Math.max(1, Math.floor(reach / 3))) {
    const near = found.slice(k - reach, k + reach + 1).map(([, y]) => y).sort((a, b) => a - b);
    middle.x.push(found[k][0]);
    middle.y.push(near[reach]);
  }
  return { curves, middle, width: 2 * reach + 1 };
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
