"use strict";
// The page: one point at a time. Keys never wait: the next point is shown at once, and "saved" when the server says so.
const $ = (id) => document.getElementById(id);
const REASONS = {
  suggested: "Suggested: its label would teach the model most.",
  audit: "Audit: drawn at random, without the model's guess, to measure how good it is.",
  random: "Drawn at random.",
  "asked for": "Opened by you.",
};
const TAB = tabName(); // two tabs are offered different rows, and each undoes its own changes
const HIDDEN_MS = 20000; // from one question to the next while the page is in the background
let state = null;
let upcoming = [];
let current = null;
let selection = [];
let chain = Promise.resolve();
let waiting = 0;
const alerts = { notice: "", change: "", model: "", server: "" };
let heard = 0; // when the server was asked last
let opening = 0; // rows on their way: keys wait for them
let kept = []; // keys that came meanwhile
let seen = { marks: "", map: 0, suspects: "", classes: "" };
const away = new Set(); // rows labeled or skipped here that the server may still list as upcoming

const map = new PointMap($("map"), select, (row) => act(() => openRow(row)));

/** The same after a reload, so that the rows that were shown are not kept for another tab. */
function tabName() {
  let name = String(Math.random()).slice(2);
  try {
    name = sessionStorage.tab || name;
    delete sessionStorage.tab; // a duplicate of this tab gets a copy of what is stored
    addEventListener("pagehide", () => { sessionStorage.tab = name; });
  } catch {
    // a frame without storage
  }
  return name;
}

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 300));
  return answer;
}

async function post(what, body) {
  const answer = await fetch("api/" + what, {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, tab: TAB, at: current ? current.row : null }),
  });
  let content = {};
  try {
    content = await answer.json();
  } catch {
    if (answer.ok) throw new Error("The server's answer was cut off. Reload the page to see what was saved.");
  }
  if (answer.ok) return content;
  const error = new Error(content.error || `Not saved: the server answered ${answer.status}.`);
  error.conflict = answer.status === 409; // labeled in another tab: nothing to try again
  throw error;
}

// One change after another, in the order of the keys; what fails comes back to the front.
function change(what, body, restore) {
  waiting += 1;
  say("");
  chain = chain.then(() => post(what, body)).then((content) => {
    waiting -= 1;
    alertText("change", "");
    take(content);
    return content;
  }, (error) => {
    waiting -= 1;
    const lost = error instanceof TypeError;
    alertText("change", lost ? "Not saved: the server does not answer. Is `sobgnn label` still running?" : error.message);
    if (restore && !error.conflict) restore();
    showSaved();
    return null;
  });
  return chain;
}

/** What went wrong, by its source: "change", "model" or "server"; an empty text takes it back. */
function alertText(source, text) {
  if (alerts[source] === text) return;
  alerts[source] = text;
  const lines = Object.values(alerts).filter(Boolean);
  $("alert").textContent = lines.join(" ");
  $("alert").hidden = !lines.length;
  showSaved();
}

function take(content) {
  if (state && content.state.saved < state.saved) return; // asked for before the last change
  state = content.state;
  if (!waiting) {
    away.clear(); // the server knows of all of them
    upcoming = content.upcoming.filter((point) => !current || point.row !== current.row);
  }
  if (!current) advance();
  hideAudits();
  show();
}

function advance() {
  do current = upcoming.shift() || null;
  while (current && away.has(current.row));
  if (current) prepare(upcoming);
  map.current = current ? current.row : -1;
  hideAudits();
  showPoint();
}

/** Rows drawn for the audit are gray on the map too. */
function hideAudits() {
  const rows = [current, ...upcoming].filter((point) => point && point.why === "audit").map((point) => point.row);
  if (rows.join() === [...map.blind].join()) return;
  map.blind = new Set(rows);
  map.draw();
}

function prepare(points) {
  for (const point of points) {
    if (point.content.some((part) => part.kind === "picture")) new Image().src = "picture/" + point.row;
  }
}

/** Act on the row that is shown, or on the one that is being opened as soon as it is shown. */
function act(action) {
  if (opening) kept.push(action);
  else action();
}

/** Keep keys back during some work, and drop them where it fails: they were meant for a row that is not shown. */
async function holdingKeys(work) {
  let done = false;
  opening += 1;
  try {
    done = await work();
  } finally {
    opening -= 1;
    if (!done) kept = [];
  }
  while (!opening && kept.length) kept.shift()();
  return done;
}

/** Do something when a button is clicked; after the mouse, unlike the keyboard, Enter is not the button's again. */
function onClick(button, action) {
  button.addEventListener("click", (event) => {
    if (event.detail) $("point").focus({ preventScroll: true }); // the next click is at the same place
    act(action);
  });
}

function give(code, how = "key") {
  if (selection.length) {
    const rows = selection;
    select([]);
    rows.forEach((row) => away.add(row));
    if (current && away.has(current.row)) advance();
    change("label", { rows, class: code, how: "lasso", was: null }, () => rows.forEach((row) => away.delete(row)));
    return;
  }
  if (!current) return;
  const point = current;
  away.add(point.row);
  advance();
  const body = { rows: [point.row], class: code, how, was: point.label, blind: point.why === "audit" };
  change("label", body, () => { away.delete(point.row); upcoming.unshift(point); });
}

function accept() {
  if (!selection.length && current && current.guesses.length) give(current.guesses[0].code, "accept");
}

function skip() {
  if (!current) return;
  const point = current;
  away.add(point.row);
  advance();
  change("skip", { rows: [point.row] }, () => { away.delete(point.row); upcoming.unshift(point); });
}

function undo() {
  return holdingKeys(async () => {
    const content = await change("undo");
    if (!content) return false;
    if (!content.undone) {
      say("Nothing to undo.");
      return true;
    }
    content.undone.rows.forEach((row) => away.delete(row));
    const opened = !content.undone.rows.length || await openRow(content.undone.rows[0]);
    say(`Undone: ${content.undone.said}`);
    return opened;
  });
}

function openRow(row) {
  return holdingKeys(() => fetchRow(row));
}

async function fetchRow(row) {
  try {
    const point = await (await get("api/point/" + row)).json();
    if (current && current.row !== point.row && current.label === null && !away.has(current.row)) upcoming.unshift(current);
    current = point;
    map.current = row;
    hideAudits();
    showPoint();
    return true;
  } catch (error) {
    alertText("change", error.message);
    return false;
  }
}

function select(rows) {
  selection = map.given ? rows.filter((row) => map.given[row] < 0) : rows;
  map.selected = new Set(selection);
  map.draw();
  $("selection").hidden = !selection.length;
  $("selection-text").textContent = `${many(selection.length, "row")} without a label ${selection.length === 1 ? "is" : "are"} selected. Choose the class.`;
  document.documentElement.dataset.selected = selection.length;
  if (selection.length) $("selection").scrollIntoView({ block: "nearest" }); // in a narrow window the map is far below
}

async function addClass(event) {
  event.preventDefault();
  const name = $("new-name").value;
  if (!name.trim()) return;
  $("new-name").value = "";
  const known = state && classNamed(name);
  if (known) say(`"${known.name}" is already a class: ${howToGive(known)}.`);
  else {
    const content = await change("class", { name }, () => { $("new-name").value = name; });
    const added = content && content.state.classes.find((entry) => entry.code === content.added);
    if (added) say(`Added "${added.name}": ${howToGive(added)}.`);
  }
  $("new-name").blur();
}

/** The class that the server would take for the same name. */
function classNamed(name) {
  const plain = (text) => text.replace(/[\u200c\u200d]/g, "").trim().replace(/\s+/g, " ");
  return state.classes.find((entry) => plain(entry.name) === plain(name));
}

function howToGive(entry) {
  return entry.key ? `press ${entry.key.toUpperCase()} to give it` : "click it to give it";
}

$("new-class").addEventListener("submit", addClass);
onClick($("accept"), accept);
onClick($("skip"), skip);
onClick($("undo"), undo);
$("finish").addEventListener("click", () => change("finish"));
$("lay-out").addEventListener("click", () => change("layout"));
$("retry").addEventListener("click", () => change("retry"));
$("selection-cancel").addEventListener("click", () => select([]));
$("zoom-in").addEventListener("click", () => map.zoom(1.5));
$("zoom-out").addEventListener("click", () => map.zoom(1 / 1.5));
$("zoom-all").addEventListener("click", () => map.fit());
$("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const { found, rows } = await (await get("api/search?q=" + encodeURIComponent($("words").value))).json();
    fill($("found"), rows);
    const first = $("found").querySelector("button");
    if (first) first.focus();
    const listed = found > rows.length ? ` The first ${rows.length} are listed.` : "";
    say(found ? `${many(found, "row")} found.${listed} Enter opens the one in focus.` : "Nothing found");
  } catch (error) {
    alertText("change", error.message);
  }
});

window.addEventListener("pagehide", () => { // what this window did may be undone in another from here on
  fetch("api/leave", {
    method: "POST", keepalive: true, headers: { "content-type": "application/json" }, body: JSON.stringify({ tab: TAB }),
  }).catch(() => {});
});

window.addEventListener("beforeunload", (event) => {
  if (waiting) event.preventDefault();
});

async function poll() {
  try {
    if (!waiting && (!document.hidden || Date.now() - heard > HIDDEN_MS)) {
      heard = Date.now();
      const content = await (await get(`api/next?tab=${TAB}&at=${current ? current.row : ""}`)).json();
      if (!waiting) {
        alertText("server", "");
        take(content);
      }
    }
  } catch {
    if (!waiting) alertText("server", "The server does not answer. Saved labels are safe; start `sobgnn label` again.");
  }
  const busy = !state || state.model.busy || state.model.starting || !state.model.map || !current;
  setTimeout(poll, busy ? 700 : 2500);
}

poll();
