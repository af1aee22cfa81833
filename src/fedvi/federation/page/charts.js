"use strict";
/* The charts of the live page: made when there is something to draw, then drawn again with new data in place. */

const looks = JSON.parse(byId("looks").textContent);
const look = (k) => ({ colour: looks.colours[k % looks.colours.length], dash: looks.dashes[k % looks.dashes.length] });
const hidden = new Set();
const charts = new Map();
const MEDIAN = { id: "median", label: "median", colour: "#000000" };

/* Draw a chart with what is new in its spec; empty ones are not made. */
function chart(key, spec) {
  if (!spec.series.some((one) => one.x.length)) return;
  if (charts.has(key)) {
    const { held, draw } = charts.get(key);
    Object.assign(held, spec);
    draw();
  } else {
    const held = { height: 270, ...spec };
    charts.set(key, { held, draw: lineChart(byId("charts"), held, hidden) });
  }
}

function drawHistory(status) {
  const { updates, scores, sites, version } = status;
  byId("history").hidden = !updates.length && !scores.length;
  if (byId("history").hidden) return;
  const named = sites.map((site, k) => ({ id: `s:${k}`, label: site.name, ...look(k) }));
  const start = status.started ?? updates[0]?.[1] ?? status.time, now = (status.over ? updates[updates.length - 1]?.[1] ?? status.time : status.time) - start;
  const applied = activity(status), { curves, middle, width } = changes(status);
  const atVersion = { xlabel: "posterior version", xname: (x) => `version ${count(x)}`, xend: version };
  chart("updates", {
    title: "Updates of each site", xlabel: "time since the first release", xname: (x) => `${clock(start + x)}, after ${duration(x)}`, xend: now, xmarks: timeTicks,
    text: count, digits: 0, ylow: 0, series: named.map((one, k) => ({ ...one, ...applied[k], steps: true, stays: true })),
  });
  chart("changes", {
    ...atVersion, title: "Change of q by an update [nats, log scale]", ymarks: powerTicks, text: (y) => `${power(10 ** y)} nats`, digits: 4,
    series: [...named.map((one, k) => ({ ...one, ...curves[k], cloud: updates.length > 400 ? 4 : 6, exact: true })), { ...MEDIAN, label: `median of ${width}`, ...middle }],
  });
  for (const [key, title, column, factor, digits] of [["accuracy", "Accuracy on the public test set [%]", 2, 100, 2], ["log-likelihood", "Log-likelihood per row of the public test set", 3, 1, 4]]) {
    const found = scores.filter((one) => known(one[column]));
    chart(key, { ...atVersion, title, digits, series: [{ id: key, label: key, colour: looks.colours[1], dots: found.length < 40, x: found.map(([x]) => x), y: found.map((one) => factor * one[column]) }] });
  }
  drawLegend(named.filter((_, k) => applied[k].x.length), middle.x.length ? [{ ...MEDIAN, label: "median change" }] : []);
  byId("thinned").textContent = updates.length < version ? `${count(updates.length)} of ${count(version)} updates are drawn.` : "";
}

function drawLegend(...entries) {
  const all = entries.flat(), key = JSON.stringify(all);
  if (drawLegend.last === key) return;
  drawLegend.last = key;
  legend(byId("legend"), all, hidden, () => charts.forEach(({ draw }) => draw()));
}
