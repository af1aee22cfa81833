"use strict";
/* Asks the coordinator once a second and shows what it says, changing only what is different. All that it says enters
   the page as text: names and reasons come from sites that nobody vouches for. */

const EVERY = 1000, PATIENCE = 5000, SILENCE = 3;
const last = { status: null, at: performance.now(), asked: null, failure: "", shown: {} };
const passed = (since) => (performance.now() - since) / 1000;

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/* Whether what is given differs from what was given last under this key. */
function differs(key, value) {
  const text = JSON.stringify(value), before = last.shown[key];
  last.shown[key] = text;
  return text !== before;
}

function cell(row, name, ...parts) {
  const made = html("td", { role: "cell", "data-name": name });
  made.append(...parts);
  row.append(made);
  return made;
}

function dated(element, time) {
  element.dateTime = new Date(time * 1000).toISOString();
  element.title = moment(time);
  return element;
}

/* Header, health, large numbers */

function showState() {
  const silent = isSilent(), { status } = last;
  const [key, words] = status ? stateOf(status) : ["asking", "Asking the coordinator"];
  byId("state").dataset.state = silent ? "silent" : key;
  put(byId("state"), !silent ? words : status ? `Not reached. Last known: ${words}` : "Not reached");
  if (!status) return;
  document.title = silent ? `Not reached: ${status.name}` : `${status.name}: question ${count(status.asked)} of ${count(status.questions)}`;
  const end = status.over ? status.answers[status.answers.length - 1]?.[1] ?? status.time : now();
  const ran = known(status.started) ? duration(Math.max(0, end - status.started)) : "";
  put(byId("since"), !ran ? "" : status.over ? `after ${ran}, from ${moment(status.started)}` : `for ${ran}, since ${moment(status.started)}`);
}

function showHealth() {
  const silent = isSilent(), { status } = last, sentences = status?.health || [];
  document.body.classList.toggle("silent", silent);
  byId("health").className = silent || sentences.length ? "bad" : status ? "good" : "asking";
  byId("silence").hidden = !silent;
  put(byId("silence-what"), !silent ? "" : last.failure || "The coordinator does not answer.");
  const held = status ? ` What is shown is from ${clock(status.time)}.` : "";
  put(byId("silence-since"), !silent ? "" : `No answer since ${duration(passed(last.at))}.${held}`);
  const shown = sentences.length || silent ? sentences : status ? ["Nothing wrong that the coordinator can see."] : ["Asking the coordinator."];
  if (differs("health", shown)) byId("health-list").replaceChildren(...shown.map((one) => html("li", {}, one)));
}

function showNumbers(status) {
  put(byId("asked"), `${count(status.asked)} of ${count(status.questions)}`);
  put(byId("version"), count(status.version));
  put(byId("arrived"), arrival(status));
  put(byId("working"), `${status.sites.filter(({ state }) => state === "working").length} of ${status.sites.length}`);
  const score = status.scores[status.scores.length - 1] || [];
  for (const [id, value] of [["accuracy", known(score[2]) ? `${(100 * score[2]).toFixed(2)}%` : null], ["log-likelihood", known(score[3]) ? score[3].toFixed(4).replace("-", "−") : null]]) {
    byId(id).parentElement.hidden = value === null;
    put(byId(id), value ?? "–");
    put(byId(`${id}-name`), `${id} on the public test set, after ${plural(score[0] ?? 0, "answer")}`);
  }
}

/* Sites */

function gauge(part, kind) {
  const made = html("div", { class: `gauge${kind}`, "aria-hidden": "true" }), filling = html("i");
  filling.style.width = `${Math.max(0, Math.min(100, 100 * part)).toFixed(1)}%`;
  made.append(filling);
  return made;
}

function budget({ epsilon, epsilon_max: most, delta }) {
  if (!known(epsilon) || !known(most)) return [html("span", { class: "quiet" }, known(epsilon) ? `ε = ${power(epsilon)}, limit not declared` : "not declared")];
  const part = most > 0 ? epsilon / most : 1, over = epsilon > most * (1 + 1e-9);
  const text = html("span", {}, `ε ${epsilon.toFixed(most < 0.1 ? 4 : 3)} of ${power(most)}${over ? ", over" : ""}`);
  if (known(delta)) text.append(html("small", {}, ` at δ = ${power(delta)}`));
  const box = html("div", { class: "budget" });
  box.append(gauge(part, over ? " over" : part > 0.999 ? " full" : ""), text);
  return [box];
}

function siteRow(site, k) {
  const row = html("tr", { role: "row" }), head = html("th", { role: "rowheader", scope: "row" });
  const number = (value, otherwise = "–") => (known(value) ? count(value) : html("span", { class: "quiet" }, otherwise));
  const named = html("div", { class: "site" });
  named.append(sample(look(k)), html("bdi", {}, site.name));
  head.append(named);
  row.append(head);
  cell(row, "State", html("span", { class: "mark", "data-state": known(site.last_seen) ? site.state : "unseen", "aria-hidden": "true" }), site.state);
  cell(row, "Last seen", html("time"));
  cell(row, "Answers", number(site.answered));
  cell(row, "Rows declared", number(site.rows, "not declared"));
  cell(row, "Budget used, as the site declares it", ...budget(site));
  cell(row, "Repeated", number(site.repeated));
  const refused = cell(row, "Refused", number(site.refused));
  if (site.refused) refused.className = "some";
  return row;
}

function showSites(sites) {
  const body = byId("sites").tBodies[0];
  while (body.rows.length > sites.length) body.rows[body.rows.length - 1].remove();
  sites.forEach((site, k) => {
    if (!differs(`site ${k}`, { ...site, last_seen: null }) && body.rows[k]) return;
    const row = siteRow(site, k);
    if (body.rows[k]) body.rows[k].replaceWith(row);
    else body.append(row);
  });
  byId("sites").hidden = !sites.length;
  byId("no-sites").hidden = Boolean(sites.length);
}

function showLastSeen() {
  [...byId("sites").tBodies[0].rows].forEach((row, k) => {
    const seen = last.status.sites[k]?.last_seen, shown = row.querySelector("time");
    put(shown, known(seen) ? ago(Math.max(0, now() - seen)) : "never");
    if (known(seen)) dated(shown, seen);
  });
}

/* Contributions */

function contributionRow(each, most) {
  const row = html("tr", { role: "row" }), head = html("th", { role: "rowheader", scope: "row" });
  const digits = (value) => (known(value) ? String(Number(value.toPrecision(3))) : "–");
  head.append(html("bdi", {}, each.tables.join(", ")), ...(known(each.withdrawn) ? [html("small", { class: "quiet" }, ` withdrawn ${moment(each.withdrawn)}`)] : []));
  row.append(head);
  const nats = html("div", { class: "budget" });
  nats.append(...(known(each.kl) ? [gauge(most > 0 ? each.kl / most : 0, ""), html("span", {}, digits(each.kl))] : [html("span", { class: "quiet" }, each.problem)]));
  cell(row, "KL, nats", nats);
  cell(row, "Evidence kept without it", known(each.evidence_kept) ? `${Math.round(100 * each.evidence_kept)}%` : "–");
  cell(row, "Predictions change by, mean", digits(each.mean_prediction));
  cell(row, "Largest", digits(each.largest_prediction));
  const changes = each.changes.map((one) => `${one.feature} ${one.mean_change < 0 ? "−" : "+"}${digits(Math.abs(one.mean_change))}`);
  const last = cell(row, "Coefficients that change most", html("bdi", {}, changes.join(", ") || "–"));
  if (each.withdrawal) last.append(html("p", {}, each.withdrawal.words));
  return row;
}

function showContributions(contributions = []) {
  if (!differs("contributions", contributions)) return;
  const most = Math.max(0, ...contributions.map(({ kl }) => kl ?? 0));
  byId("contributions").tBodies[0].replaceChildren(...contributions.map((each) => contributionRow(each, most)));
  byId("contributing").hidden = !contributions.length;
}

/* Refusals, footer */

function showRefusals(refusals) {
  if (!differs("refusals", refusals)) return;
  const rows = [...refusals].sort((a, b) => b.time - a.time).map(({ time, site, code, reason }) => {
    const row = html("tr", { role: "row" });
    cell(row, "Time", dated(html("time", {}, moment(time)), time));
    cell(row, "Site", html("bdi", {}, site));
    cell(row, "Error", html("bdi", {}, code));
    cell(row, "Reason", html("bdi", {}, reason));
    return row;
  });
  byId("refusals").tBodies[0].replaceChildren(...rows);
  byId("refusals").hidden = !rows.length;
  byId("no-refusals").hidden = Boolean(rows.length);
}

function show(status) {
  put(byId("name"), status.name);
  put(byId("predicts"), status.predicts);
  showNumbers(status);
  showSites(status.sites);
  showContributions(status.contributions);
  showRefusals(status.refusals);
  const schema = status.schema ? `, feature schema ${status.schema}` : "";
  put(byId("about"), `Model ${status.model}, ${plural(status.features, "feature")}${schema}.`);
  tick();
  if (differs("drawn", [status.version, status.scores.length, status.over, Math.floor(status.time / 5)])) drawHistory(status);
}

/* The coordinator's time: that of its last answer, and what has passed since; while it is silent, that of the answer. */
const now = () => last.status.time + (isSilent() ? 0 : passed(last.at));
const isSilent = () => passed(last.at) > SILENCE && Boolean(last.failure || (last.asked && passed(last.asked) > SILENCE));

function tick() {
  showState();
  showHealth();
  if (last.status) showLastSeen();
}

async function ask() {
  const began = performance.now();
  last.asked = began;
  try {
    const answer = await fetch("status.json", { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status === 401) throw new Error("The coordinator asks for another token: open the link that it gave last.");
    if (!answer.ok) throw new Error(`The coordinator could not say how it is: ${(await answer.json()).error}.`);
    const status = await answer.json();
    Object.assign(last, { status, at: performance.now(), failure: "" });
  } catch (error) {
    last.failure = error.constructor === Error ? error.message : "The coordinator does not answer.";
  }
  last.asked = null;
  setTimeout(ask, Math.max(200, EVERY - (performance.now() - began)));
  if (last.failure) tick();
  else show(last.status);
}

setInterval(tick, 500);
ask();
