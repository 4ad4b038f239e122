
"use strict";
// Asks the scheduler for JSON and patches the document. All texts are set as
// text: names of jobs, hosts and errors come from users.

const PARTS = ["compute", "push", "wait", "pull", "data"];
const PART_TITLES = {
  compute: "compute", push: "push", wait: "wait for others", pull: "pull",
  data: "data",
};
const PERIOD_MS = 2000;           // between two looks while somebody looks
const HIDDEN_PERIOD_MS = 60000;   // while the tab is in the background
const BACK_OFF_MAX_MS = 60000;    // while the scheduler is away
const LOG_PERIOD_MS = 4000;
const SHARES_OVER_MS = 10000;     // shares of time are over so long
const NOTICED_SHARE = 0.2;        // as `synctl top` has it
const BLAME_NODES_MAX = 10;
const CHAR_WIDTH = 10;            // of 16 px, the larger size of status.css
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function setClass(node, name) {
  if (node.className !== name) node.className = name;
}
function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}
function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
function draw(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  if (text !== undefined) node.textContent = text;
  return node;
}

// One child of `parent` for each item, kept by its key from look to look.
function patchList(parent, items, keyOf, create, update) {
  const there = new Map();
  for (const node of [...parent.children]) there.set(node.dataset.key, node);
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    let node = there.get(key);
    if (node) {
      there.delete(key);
    } else {
      node = create(item);
      node.dataset.key = key;
    }
    update(node, item);
    const place = before ? before.nextSibling : parent.firstChild;
    if (node !== place) parent.insertBefore(node, place);
    before = node;
  }
  for (const node of there.values()) node.remove();
}

function number(value) {
  if (value === null || value === undefined) return "–";
  return String(Number(value.toPrecision(4)));
}
function count(value) {
  return Math.round(value).toLocaleString("en-US");
}
function duration(seconds) {
  let s = Math.max(0, Math.round(seconds));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  s = Math.floor(s / 60);
  if (s < 1440) return Math.floor(s / 60) + " h " + (s % 60) + " min";
  return Math.floor(s / 1440) + " d " + Math.floor((s % 1440) / 60) + " h";
}
function percent(share) {
  return Math.round(100 * share) + "%";
}

// ---- Asking -----------------------------------------------------------------

let token = sessionStorage.getItem("syncline-token") || "";
let timer = 0;
let failures = 0;
let heardAt = 0;
let nextAt = 0;
let asking = false;

class Refused extends Error {
  constructor(code, text) {
    super(text.trim() || "HTTP " + code);
    this.code = code;
  }
}

async function ask(path) {
  const headers = token ? {Authorization: "Bearer " + token} : {};
  const response = await fetch(path, {
    headers, cache: "no-store", credentials: "omit",
    signal: AbortSignal.timeout(15000),
  });
  if (!response.ok) throw new Refused(response.status, await response.text());
  return response.json();
}

function schedule(delay) {
  clearTimeout(timer);
  nextAt = Date.now() + delay;
  timer = setTimeout(look, delay);
}

async function look() {
  if (asking) return schedule(200);
  asking = true;
  const used = token;
  try {
    const status = await ask("status.json");
    failures = 0;
    heardAt = Date.now();
    show(byId("token-form"), false);
    show(byId("main"), true);
    showStatus(status);
    await lookAtJob();
    schedule(document.hidden ? HIDDEN_PERIOD_MS : PERIOD_MS);
  } catch (error) {
    // Another token has been typed in meanwhile.
    if (token !== used) schedule(0);
    else onFailure(error);
  } finally {
    asking = false;
  }
  showConnection();
}

function onFailure(error) {
  if (error instanceof Refused && error.code === 401) {
    // Nothing is asked until there is another token.
    clearTimeout(timer);
    nextAt = 0;
    show(byId("main"), false);
    show(byId("token-form"), true);
    refusal = token ? error.message : "A token is needed.";
    token = "";
    sessionStorage.removeItem("syncline-token");
    return;
  }
  refusal = error instanceof Refused ? error.message : "";
  failures += 1;
  schedule(Math.min(BACK_OFF_MAX_MS, PERIOD_MS * 2 ** (failures - 1)));
}

let refusal = "";

// Words that change once a second are not for the live region: it would be read
// out all the time.
function showConnection() {
  const line = byId("connection");
  if (!byId("token-form").hidden) {
    setClass(line, "away");
    setText(line, refusal);
  } else if (failures === 0) {
    setClass(line, "");
    setText(line, heardAt ? "Live" : "Asking the scheduler…");
  } else {
    setClass(line, "away");
    const wait = Math.max(0, Math.ceil((nextAt - Date.now()) / 1000));
    const since = heardAt
      ? " since " + new Date(heardAt).toLocaleTimeString() : "";
    setText(line, (refusal || "The scheduler does not answer" + since) +
      " · asked again " + (wait > 5 ? "in " + Math.ceil(wait / 5) * 5 + " s"
                                    : "soon"));
  }
}

// ---- Jobs and members -------------------------------------------------------

let chosenJob = "";

let scrollsToJob = false;  // a click on its name

function jobOfAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch (error) {
    return "";
  }
}

// Cells by their label; on a narrow screen it stands before them.
function makeRow(labels) {
  const row = make("tr");
  for (const [label, className] of labels) {
    const cell = make("td", className);
    if (label) cell.dataset.label = label;
    row.append(cell);
  }
  return row;
}

function makeJobRow(job) {
  const row = makeRow([["Job"], ["State"], ["Progress"], ["Loss", "number"],
                       ["Samples/s", "number"], ["Why"]]);
  const name = make("div");
  const link = make("a", "", job.id);
  link.href = "#" + encodeURIComponent(job.id);
  name.append(link, " ", make("span", "name"));
  row.cells[0].append(name);
  const state = make("div", "state");
  state.append(make("span"), make("br"), make("small"));
  row.cells[1].append(state);
  const progress = make("div");
  const bar = make("div", "bar");
  bar.setAttribute("role", "progressbar");
  bar.setAttribute("aria-valuemin", "0");
  bar.setAttribute("aria-valuemax", "100");
  bar.append(make("i"));
  progress.append(bar, make("span"));
  row.cells[2].append(progress);
  row.cells[3].append(make("span"));
  row.cells[4].append(make("span"));
  row.cells[5].append(make("span", "why"));
  return row;
}

function fillBar(bar, job) {
  const done = Math.min(1, job.clock / job.clocks_total);
  bar.firstChild.style.width = (100 * done).toFixed(1) + "%";
  bar.setAttribute("aria-valuenow", String(Math.floor(100 * done)));
  bar.setAttribute("aria-label", "Progress of " + job.id);
}

function progressText(job) {
  return "epoch " + job.epoch + "/" + job.epochs_total + ", step " +
    count(job.clock) + "/" + count(job.clocks_total);
}

function updateJobRow(row, job) {
  setClass(row, job.id === chosenJob ? "chosen" : "");
  const [name, state, progress, loss, speed, why] = row.cells;
  setText(name.querySelector(".name"), job.name);
  const word = state.querySelector("span");
  setText(word, job.state);
  setClass(word, job.state);
  setText(state.querySelector("small"),
          "for " + duration(job.state_seconds || 0));
  const has = job.clocks_total !== undefined;
  setClass(progress, has ? "" : "empty");
  show(progress.firstChild, has);
  if (has) {
    fillBar(progress.querySelector(".bar"), job);
    setText(progress.querySelector("span"), progressText(job));
  }
  setClass(loss, "number" + (job.loss === undefined ? " empty" : ""));
  setText(loss.firstChild, job.loss === undefined ? "" : number(job.loss));
  const runs = job.state === "running" && has;
  setClass(speed, "number" + (runs ? "" : " empty"));
  setText(speed.firstChild, runs ? count(job.samples_per_second) : "");
  setClass(why, job.reason ? "" : "empty");
  setText(why.firstChild, job.reason);
}

function makeMemberRow() {
  const row = makeRow([["Task"], ["Works for"], ["Address"],
                       ["Host, process"], ["GPU"], ["Last heard", "number"]]);
  for (const cell of row.cells) cell.append(make("span"));
  return row;
}

function updateMemberRow(row, member) {
  const texts = [member.task,
    (member.job || "free") +
      (member.use ? " · " + member.use +
        (member.use_reason ? ": " + member.use_reason : "") : ""),
    member.address, member.host + ", " + member.pid, member.gpu || "",
    member.silent_seconds.toFixed(1) + " s"];
  texts.forEach((text, i) => setText(row.cells[i].firstChild, text));
  setClass(row.cells[4], member.gpu ? "" : "empty");
}

function showStatus(status) {
  setText(byId("version"), status.version);
  setText(byId("where"), "scheduler at " + status.scheduler);
  const states = {};
  for (const job of status.jobs) states[job.state] = (states[job.state] || 0) + 1;
  setText(byId("jobs-count"), ["running", "preparing", "queued", "failed"]
    .filter((s) => states[s]).map((s) => states[s] + " " + s).join(", "));
  show(byId("jobs-none"), status.jobs.length === 0);
  show(byId("jobs"), status.jobs.length > 0);
  const wanted = jobOfAddress();
  const chosen = status.jobs.find((job) => job.id === chosenJob);
  const running = status.jobs.find((job) => job.state === "running");
  // One that waits, and that nobody has asked for, gives way to one that runs.
  const givesWay = chosen && chosen.id !== wanted && chosen.state === "queued" && running;
  if (!chosen || givesWay) {
    const first = status.jobs.find((job) => job.id === wanted) || running || status.jobs[0];
    choose(first ? first.id : "");
  }
  patchList(byId("jobs").tBodies[0], status.jobs, (job) => job.id, makeJobRow,
            updateJobRow);
  setText(byId("jobs-older"), status.older_jobs
    ? "and " + count(status.older_jobs) + " older ones: synctl list" : "");
  setText(byId("members-count"), status.members.length + status.more_members +
    ", " + status.free_members + " free");
  show(byId("members-none"), status.members.length === 0);
  show(byId("members"), status.members.length > 0);
  patchList(byId("members").tBodies[0], status.members,
            (m) => m.task, makeMemberRow, updateMemberRow);
  setText(byId("members-more"), status.more_members
    ? "and " + count(status.more_members) + " more: synctl cluster" : "");
}

// ---- One job ----------------------------------------------------------------

let samples = [];  // of the workers' seconds, the oldest first

function choose(id) {
  if (id === chosenJob) return;
  chosenJob = id;
  samples = [];
  logsTask = "";
  setText(byId("logs-text"), "");
  show(byId("job"), false);
}

async function lookAtJob() {
  if (!chosenJob) return show(byId("job"), false);
  const id = chosenJob;
  const job = await ask("jobs/" + encodeURIComponent(id) + ".json");
  if (id !== chosenJob) return;
  show(byId("job"), true);
  showJob(job);
  if (scrollsToJob) byId("job").scrollIntoView({block: "start"});
  scrollsToJob = false;
}

// "3 workers, 1 lost, 2 ps".
function membersText(job) {
  const lost = job.workers.filter((worker) => worker.lost).length;
  return job.workers.length - lost + " workers, " +
    (lost > 0 ? lost + " lost, " : "") + job.ps.length + " ps";
}

function showNumbers(job) {
  const numbers = [];
  if (job.clocks_total !== undefined) {
    numbers.push(["Progress", progressText(job)]);
    if (job.loss !== undefined) numbers.push(["Loss", number(job.loss)]);
    if (job.state === "running") {
      numbers.push(["Samples/s", count(job.samples_per_second)]);
    }
  }
  if (job.seconds_left !== undefined) {
    numbers.push(["Time left", duration(job.seconds_left)]);
  }
  if (job.regime) numbers.push(["Mode", job.regime]);
  numbers.push(["Attempt", String(job.attempt)],
    ["Members", membersText(job) +
      (job.evaluator ? ", " + job.evaluator : "")],
    ["Files", String(job.artifacts.length)]);
  if (job.trace) numbers.push(["Trace", job.trace]);
  patchList(byId("job-numbers"), numbers, (n) => n[0], () => {
    const group = make("div");
    group.append(make("dt"), make("dd"));
    return group;
  }, (group, [title, value]) => {
    setText(group.firstChild, title);
    setText(group.lastChild, value);
  });
}

function showJob(job) {
  setText(byId("job-title"), job.id + " · " + job.name);
  const state = byId("job-state");
  setText(state, job.state + " for " + duration(job.state_seconds || 0));
  setClass(state, "state " + job.state);
  setText(byId("job-reason"), job.reason);
  show(byId("job-reason"), job.reason !== "");
  setText(byId("job-skipped"), job.skipped || "");
  show(byId("job-skipped"), Boolean(job.skipped));
  showNumbers(job);
  showCurve(job);
  const shares = sharesOf(job);
  showSplit(job, shares);
  showBlame(job, shares);
  showEvaluations(job);
  patchList(byId("events"), [...job.events].reverse().slice(0, 100),
    (e) => e.time + e.kind + e.text, () => {
      const item = make("li");
      item.append(make("time"), make("b"), make("span"));
      return item;
    }, (item, event) => {
      const time = item.firstChild;
      time.dateTime = event.time;
      time.title = event.time;
      setText(time, new Date(event.time).toLocaleTimeString("en-GB"));
      setText(item.children[1], event.kind);
      setText(item.lastChild, event.text);
    });
  showLogs(job);
}

function showCurve(job) {
  const box = byId("curve");
  const curve = job.curve;
  if (curve.length < 2) {
    box.replaceChildren(make("p", "quiet", job.state === "running"
      ? "No step is reported yet." : "None is kept of this job here."));
    return;
  }
  const width = 480, height = 220, right = 8, top = 10, bottom = 26;
  let low = Infinity, high = -Infinity;
  for (const [, loss] of curve) {
    low = Math.min(low, loss);
    high = Math.max(high, loss);
  }
  const span = high > low ? high - low : 1;
  const lossAt = (part) => high - part * span;
  const parts = high > low ? [0, 0.5, 1] : [0];
  // As wide as the longest number is on a phone, where letters are largest.
  const left = Math.max(64, 10 + CHAR_WIDTH *
    Math.max(...parts.map((part) => number(lossAt(part)).length)));
  const first = curve[0][0], last = curve[curve.length - 1][0];
  const x = (clock) => left + (width - left - right) *
    (clock - first) / Math.max(1, last - first);
  const y = (loss) => top + (height - top - bottom) * (high - loss) / span;
  const label = "Training loss from " + number(curve[0][1]) + " to " +
    number(curve[curve.length - 1][1]) + " over clocks " + count(first) +
    " to " + count(last);
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
                           "aria-label": label});
  for (const part of parts) {
    const loss = lossAt(part);
    svg.append(draw("line", {class: "grid", x1: left, x2: width - right,
                             y1: y(loss), y2: y(loss)}),
               draw("text", {x: left - 6, y: y(loss) + 4, "text-anchor": "end"},
                    number(loss)));
  }
  svg.append(
    draw("text", {x: left, y: height - 6}, "step " + count(first)),
    draw("text", {x: width - right, y: height - 6, "text-anchor": "end"},
         count(last)),
    draw("polyline", {class: "curve", points: curve.map(
      ([clock, loss]) => x(clock).toFixed(1) + "," + y(loss).toFixed(1))
      .join(" ")}));
  box.replaceChildren(svg);
}

// Of each worker the shares of its time over the last seconds, by rank; before
// that, since the job's start.
function sharesOf(job) {
  const now = Date.now();
  const seconds = new Map(job.workers.filter((w) => w.compute !== undefined)
    .map((w) => [w.rank, PARTS.map((part) => w[part])]));
  const newest = samples[samples.length - 1];
  // A later attempt counts from 0 again.
  if (newest && (newest.attempt !== job.attempt)) samples = [];
  samples.push({time: now, attempt: job.attempt, seconds});
  while (samples.length > 2 && samples[1].time < now - SHARES_OVER_MS) {
    samples.shift();
  }
  const shares = new Map();
  for (const [rank, current] of seconds) {
    const before = job.state === "running" && samples.length > 1
      ? samples[0].seconds.get(rank) : undefined;
    let parts = current.map((s, i) => s - (before ? before[i] : 0));
    if (parts.some((p) => p < 0) || parts.every((p) => p <= 0)) parts = current;
    const total = parts.reduce((a, b) => a + b, 0);
    if (total > 0) shares.set(rank, parts.map((p) => p / total));
  }
  return shares;
}

function showSplit(job, shares) {
  const workers = job.workers.filter((w) => shares.has(w.rank)).slice(0, 32);
  const box = byId("split");
  if (workers.length === 0) {
    box.replaceChildren(make("p", "quiet", "No worker has reported its time."));
    return;
  }
  if (box.firstChild && box.firstChild.className !== "split") {
    box.replaceChildren();
  }
  patchList(box, workers, (w) => String(w.rank), (worker) => {
    const row = make("div", "split");
    const label = make("div", "label");
    label.append(make("span"), make("span", "quiet"));
    const parts = make("div", "parts");
    parts.setAttribute("role", "img");
    for (const part of PARTS) parts.append(make("i", part));
    row.append(label, parts);
    return row;
  }, (row, worker) => {
    const split = shares.get(worker.rank);
    const words = PARTS.map((part, i) => [PART_TITLES[part], split[i]])
      .filter(([, share]) => share >= 0.005)
      .map(([title, share]) => title + " " + percent(share));
    const [label, parts] = row.children;
    setText(label.firstChild, worker.task);
    setText(label.lastChild, words.join(", "));
    parts.setAttribute("aria-label", worker.task + ": " + words.join(", "));
    PARTS.forEach((part, i) => {
      parts.children[i].style.width = (100 * split[i]).toFixed(1) + "%";
      parts.children[i].title = PART_TITLES[part] + " " + percent(split[i]);
    });
  });
}

// The worker that waits at most half as much as every other, where each of these
// waits a fifth of its time or more: the second rule of `synctl top` and
// `synctl why`.
// Where a step ends without some workers, nobody waits for a slow one.
function stragglerOf(job, workers, shares) {
  if (workers.length < 2 || /SYNC_WITH_/.test(job.regime || "")) return null;
  const wait = (w) => shares.get(w.rank)[2];
  const slow = workers.reduce((a, b) => (wait(b) < wait(a) ? b : a));
  const others = Math.min(...workers.filter((w) => w !== slow).map(wait));
  return others >= NOTICED_SHARE && wait(slow) <= others / 2 ? slow : null;
}

function showBlame(job, shares) {
  const workers = job.workers.filter((w) => shares.has(w.rank));
  const box = byId("blame");
  if (workers.length < 2) {
    box.replaceChildren();
    setText(byId("blame-text"), job.workers.length === 0
      ? "The job has no workers yet." : job.workers.length < 2
      ? "The job has one worker: it waits for nobody."
      : "The workers have not reported their time yet.");
    return;
  }
  const wait = (w) => shares.get(w.rank)[2];
  const slow = stragglerOf(job, workers, shares);
  const others = workers.filter((w) => w !== slow)
    .sort((a, b) => wait(b) - wait(a));
  const shown = others.slice(0, BLAME_NODES_MAX);
  const words = slow
    ? others.length + (others.length === 1 ? " worker waits" : " workers wait") +
      " for " + slow.task + " (" + slow.address + "), up to " +
      percent(wait(others[0])) + " of the time."
    : "Nobody is waited for in particular: the most that a worker waits is " +
      percent(wait(others[0])) + " of its time.";
  setText(byId("blame-text"), words + (others.length > shown.length
    ? " The " + shown.length + " that wait most are shown." : ""));
  const width = 480, height = slow ? 190 : 90, step = width / shown.length;
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
                           "aria-label": words});
  const bottom = {x: width / 2, y: 148};
  shown.forEach((worker, i) => {
    const x = step * (i + 0.5), y = 30;
    if (slow) {
      const share = wait(worker);
      const dx = bottom.x - x, dy = bottom.y - 24 - (y + 38);
      const length = Math.hypot(dx, dy);
      const endX = bottom.x - 6 * dx / length;
      const endY = bottom.y - 24 - 6 * dy / length;
      svg.append(draw("line", {class: "arrow", x1: x, y1: y + 38, x2: endX,
                               y2: endY, "stroke-width":
                                 (1 + 5 * share).toFixed(1)}));
    }
    drawNode(svg, worker, x, y, percent(wait(worker)), shown.length);
  });
  if (slow) {
    svg.append(draw("path", {class: "head", d:
      `M${bottom.x - 9} ${bottom.y - 32} L${bottom.x + 9} ${bottom.y - 32} ` +
      `L${bottom.x} ${bottom.y - 18} Z`}));
    drawNode(svg, slow, bottom.x, bottom.y, percent(wait(slow)), 1, true);
  }
  box.replaceChildren(svg);
}

function drawNode(svg, worker, x, y, share, neighbours, isSlow) {
  const width = Math.min(92, 480 / neighbours - 6);
  svg.append(
    draw("rect", {class: "node" + (isSlow ? " slow" : ""), x: x - width / 2,
                  y: y - 16, width, height: 24, rx: 6}),
    draw("text", {class: "name", x, y}, neighbours > 5
      ? worker.task.replace("worker:", "w:").replace("chief:", "c:")
      : worker.task),
    draw("text", {class: "share", x, y: y + 24}, isSlow
      ? "waits " + share + ": the slowest" : neighbours > 5
        ? share : "waits " + share));
}

// A job that trains nothing has no epochs.
function showEvaluations(job) {
  show(byId("evaluations-figure"), job.evaluations.length > 0);
  const hasEpochs = job.evaluations.some((e) => e.epoch !== undefined);
  setText(byId("evaluations").tHead.rows[0].cells[0],
          hasEpochs ? "Epoch" : "Clock");
  patchList(byId("evaluations").tBodies[0],
    [...job.evaluations].reverse().slice(0, 12),
    (e) => e.epoch + "/" + e.clock, () => {
      const row = makeRow([["", "number"], ["", "number"], [""]]);
      for (const cell of row.cells) cell.append(make("span"));
      return row;
    }, (row, evaluation) => {
      const texts = [
        hasEpochs ? String(evaluation.epoch) : count(evaluation.clock),
        number(evaluation.loss),
        evaluation.metrics.map((m) => m.name + " " + number(m.value))
          .join(", ") + (evaluation.best ? " (best)" : "")];
      texts.forEach((text, i) => setText(row.cells[i].firstChild, text));
    });
}

// ---- Logs -------------------------------------------------------------------

let logsTask = "";
let logsAt = 0;
let logsAsking = false;

function showLogs(job) {
  show(byId("logs"), job.logs);
  show(byId("logs-off"), !job.logs);
  if (!job.logs) {
    setText(byId("logs-off"), "They are not shown here: synctl logs " + job.id);
    return;
  }
  const tasks = [...job.workers, ...job.ps].map((m) => m.task);
  if (job.evaluator) tasks.push(job.evaluator);
  show(byId("logs"), tasks.length > 0);
  const select = byId("logs-task");
  patchList(select, tasks, (task) => task, (task) => make("option", "", task),
    (option, task) => { option.value = task; });
  if (!tasks.includes(logsTask)) {
    logsTask = tasks[0] || "";
    logsAt = 0;
  }
  select.value = logsTask;
  if (document.hidden || Date.now() - logsAt < LOG_PERIOD_MS) return;
  if (logsAt === 0 || (byId("logs-follow").checked && job.state !== "queued")) {
    lookAtLogs(job.id, logsTask);
  }
}

async function lookAtLogs(id, task) {
  if (!task || logsAsking) return;
  logsAsking = true;
  logsAt = Date.now();
  try {
    const answer = await ask("jobs/" + encodeURIComponent(id) +
      "/logs.json?task=" + encodeURIComponent(task));
    if (id !== chosenJob || task !== logsTask) return;
    const text = answer.logs.map((log) => log.text).join("");
    const box = byId("logs-text");
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
    setText(box, text || "Nothing yet.");
    if (atEnd) box.scrollTop = box.scrollHeight;
    setText(byId("logs-state"), "");
  } catch (error) {
    setText(byId("logs-state"), "not read: " + error.message);
  } finally {
    logsAsking = false;
  }
}

// ---- Begin ------------------------------------------------------------------

for (const part of PARTS) {
  const item = make("li");
  item.append(make("i", part), PART_TITLES[part]);
  byId("split-legend").append(item);
}
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  sessionStorage.setItem("syncline-token", token);
  schedule(0);
});
byId("logs-task").addEventListener("change", (event) => {
  logsTask = event.target.value;
  logsAt = 0;
  setText(byId("logs-text"), "");
  lookAtLogs(chosenJob, logsTask);
});
window.addEventListener("hashchange", () => {
  choose(jobOfAddress());
  scrollsToJob = true;
  schedule(0);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && byId("token-form").hidden) schedule(0);
});
setInterval(showConnection, 1000);
look();
