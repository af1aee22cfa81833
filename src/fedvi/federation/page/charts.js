"use strict";
/* The charts of the live page: made when there is something to draw, then drawn again with new data in place. */

const looks = JSON.parse(byId("looks").textContent);
const look = (k) => ({ colour: looks.colours[k % looks.colours.length], dash: looks.dashes[k % looks.dashes.length] });
const hidden = new Set();
const charts = new Map();

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
  const { answers, scores, sites, version } = status;
  byId("history").hidden = !answers.length && !scores.length;
  if (byId("history").hidden) return;
  const named = sites.map((site, k) => ({ id: `s:${k}`, label: site.name, ...look(k) }));
  const start = status.started ?? answers[0]?.[1] ?? status.time, now = (status.over ? answers[answers.length - 1]?.[1] ?? status.time : status.time) - start;
  const applied = activity(status);
  const atVersion = { xlabel: "answers of all sites", xname: (x) => `after ${plural(x, "answer")}`, xend: version };
  chart("answers", {
    title: "Answers of each site", xlabel: "time since the first release", xname: (x) => `${clock(start + x)}, after ${duration(x)}`, xend: now, xmarks: timeTicks,
    text: count, digits: 0, ylow: 0, series: named.map((one, k) => ({ ...one, ...applied[k], steps: true, stays: true })),
  });
  chart("changes", {
    ...atVersion, title: "Change of q by a question [nats, log scale]", ymarks: powerTicks, text: (y) => `${power(10 ** y)} nats`, digits: 4,
    series: [{ id: "changes", label: "change", colour: looks.colours[0], dots: true, ...changes(status) }],
  });
  for (const [key, title, column, factor, digits] of [["accuracy", "Accuracy on the public test set [%]", 2, 100, 2], ["log-likelihood", "Log-likelihood per row of the public test set", 3, 1, 4]]) {
    const found = scores.filter((one) => known(one[column]));
    chart(key, { ...atVersion, title, digits, series: [{ id: key, label: key, colour: looks.colours[1], dots: found.length < 40, x: found.map(([x]) => x), y: found.map((one) => factor * one[column]) }] });
  }
  drawLegend(named.filter((_, k) => applied[k].x.length));
}

function drawLegend(all) {
  const key = JSON.stringify(all);
  if (drawLegend.last === key) return;
  drawLegend.last = key;
  legend(byId("legend"), all, hidden, () => charts.forEach(({ draw }) => draw()));
}
