"use strict";
// What a person does: one point at a time. Keys never wait: the next point is shown at once, and "Saved" when the server says so.
const $ = (id) => document.getElementById(id);
const TAB = tabName(); // two tabs are offered different rows, and each undoes its own changes
let state = null;
let progress = null;
let upcoming = [];
let current = null;
let selection = [];
let saved = 0; // number of the newest change that this page knows of
let chain = Promise.resolve();
let waiting = 0; // changes on their way
let opening = 0; // rows on their way: keys wait for them
let kept = []; // keys that came meanwhile
let refilling = false;
const away = new Set(); // rows labeled or skipped here that the server may still list as upcoming
const map = new PointMap($("map"), { lasso: select, click: (row) => act(() => openRow(row)) });
map.message = "Placing points…";

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

// ---------------------------------------------------------------------------------------------- the server

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
    saved = Math.max(saved, content.saved);
    if (!waiting) offer(content.upcoming);
    showSaved();
    return content;
  }, (error) => {
    waiting -= 1;
    const lost = error instanceof TypeError;
    alertText("change", lost ? "Not saved: the server does not answer. Is sobgnn label still running?" : error.message);
    if (restore && !error.conflict) restore();
    showSaved();
    return null;
  });
  return chain;
}

/** Take the points that the server offers now; it knows of all that was done here. */
function offer(points) {
  away.clear();
  upcoming = points.filter((point) => !current || point.row !== current.row);
  if (!current) advance();
  else hideAudits();
}

async function refill() {
  if (refilling || waiting) return;
  refilling = true;
  try {
    const content = await post("next");
    if (!waiting && content.saved >= saved) offer(content.upcoming);
  } catch {
    // the stream of events says that the server does not answer
  }
  refilling = false;
  if (!current && state.labels + state.skipped < state.rows) setTimeout(refill, 1000);
}

const events = new EventSource("api/events?tab=" + TAB);
events.addEventListener("state", (event) => {
  const now = JSON.parse(event.data);
  if (now.saved < saved) return; // from before the last change
  const stale = !state || now.saved > saved || now.model.version !== state.model.version || !current;
  state = now;
  saved = now.saved;
  show();
  if (stale) refill();
});
events.addEventListener("progress", (event) => {
  progress = JSON.parse(event.data);
  showProgress();
});
events.addEventListener("open", () => alertText("server", ""));
events.addEventListener("error", () => alertText("server", "The server does not answer. Saved labels are safe; start sobgnn label again."));
addEventListener("beforeunload", (event) => {
  if (waiting) event.preventDefault();
});

// ---------------------------------------------------------------------------------------------- rows

function advance() {
  do current = upcoming.shift() || null;
  while (current && away.has(current.row));
  for (const point of upcoming) if (point.content.some((part) => part.kind === "picture")) new Image().src = "picture/" + point.row;
  hideAudits();
  showPoint();
}

/** Act on the row that is shown, or on the one that is being opened as soon as it is shown. */
function act(action) {
  if (opening) kept.push(action);
  else action();
}

/** Keep keys back until a change brings its row, and drop them where it fails: they were meant for that row. */
async function opened(work) {
  let done = false;
  opening += 1;
  try {
    const content = await work;
    done = Boolean(content);
    if (done && content.point) show1(content.point);
    return content;
  } finally {
    opening -= 1;
    if (!done) kept = [];
    while (!opening && kept.length) kept.shift()();
  }
}

function show1(point) {
  if (current && current.row !== point.row && current.label === null && !away.has(current.row)) upcoming.unshift(current);
  current = point;
  hideAudits();
  showPoint();
}

function openRow(row) {
  return opened(change("open", { row }));
}

function give(code, how = "key") {
  if (selection.length) {
    const rows = selection;
    select([]);
    rows.forEach((row) => away.add(row));
    if (current && away.has(current.row)) advance();
    change("label", { rows, class: code, how: "lasso", was: null }, () => rows.forEach((row) => away.delete(row)))
      .then((content) => content && say(`Labeled ${many(rows.length, "row")} “${nameOf(code)}”. Undo takes it back.`));
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

async function undo() {
  const content = await opened(change("undo"));
  if (content) say(content.undone ? `Undone: ${content.undone.message}.` : "Nothing to undo.");
}

function select(rows) {
  selection = marks ? rows.filter((row) => marks.given[row] < 0) : rows;
  showSelection();
}

async function addClass(event) {
  event.preventDefault();
  const name = $("new-name").value;
  if (!name.trim()) return;
  $("new-name").value = "";
  const plain = (text) => text.replace(/[\u200c\u200d]/g, "").trim().replace(/\s+/g, " ");
  const known = state && state.classes.find((entry) => plain(entry.name) === plain(name)); // as the server compares them
  if (known) say(`“${known.name}” is already a class: ${howToGive(known)}.`);
  else {
    const content = await change("class", { name }, () => { $("new-name").value = name; });
    if (content) afterState(() => state.classes.find((entry) => entry.code === content.added), (added) => say(`Added “${added.name}”: ${howToGive(added)}.`));
  }
  $("new-name").blur();
}

function howToGive(entry) {
  if (TOUCH.matches) return "tap it to give it";
  return entry.key ? `press ${entry.key.toUpperCase()} to give it` : "click it to give it";
}

async function search(event) {
  event.preventDefault();
  try {
    const { found, rows } = await (await get("api/search?q=" + encodeURIComponent($("words").value))).json();
    const listed = found > rows.length ? ` The first ${rows.length} are listed.` : "";
    const opens = TOUCH.matches ? "" : " Enter opens the one in focus.";
    write("matches", found ? `${many(found, "row")} found.${listed}${opens}` : "Nothing found.");
    fill($("found"), rows);
    const first = $("found").querySelector("button");
    if (first) first.focus();
  } catch (error) {
    alertText("change", error.message);
  }
}

function endSearch() {
  $("found").replaceChildren();
  write("matches", "");
}

// ---------------------------------------------------------------------------------------------- renaming

let asked = ""; // the merge that the question in the dialog is about

function startRename() {
  if (!state.classes.length) return;
  $("rename-class").replaceChildren(...state.classes.map((entry) => new Option(entry.name, entry.code)));
  $("rename-name").value = "";
  ask("");
  $("rename-dialog").showModal();
}

/** Say something in the dialog; its button does what is asked. */
function ask(text, merge = "") {
  asked = merge;
  $("rename-message").textContent = text;
  $("rename-do").textContent = merge ? "Merge" : "Rename";
}

/** Rename a class, or merge it into the class that has the name already. */
async function rename(event) {
  event.preventDefault();
  const code = Number($("rename-class").value), name = $("rename-name").value.trim().replace(/\s+/g, " ");
  const own = state.classes.find((entry) => entry.code === code);
  const other = state.classes.find((entry) => entry.name === name && entry.code !== code);
  const merge = other ? `${code} ${other.code}` : "";
  if (own && other && asked !== merge) {
    ask(`Merge “${own.name}” (${count(own.count)}) into “${other.name}” (${count(other.count)})?`, merge);
    return;
  }
  $("rename-do").disabled = true; // Enter again is no second change
  const content = await (other ? change("merge", { class: code, into: other.code }) : change("rename", { class: code, name }));
  $("rename-do").disabled = false;
  if (!content) return ask(alerts.change);
  $("rename-dialog").close();
  $("point").focus({ preventScroll: true }); // not left in the closed dialog, where keys are ignored
}

// ---------------------------------------------------------------------------------------------- keys and buttons

/** The key that was pressed; by its place on the keyboard where the layout has other letters, or digits with Shift. */
function keyName(event) {
  const key = event.key.toLowerCase();
  const [, letter, digit] = /^(?:Key([A-Z])|Digit(\d))$/.exec(event.code) || [];
  if (letter && key.length === 1 && key > "~") return letter.toLowerCase();
  if (digit && !event.shiftKey && !/^[a-z/]$/.test(key)) return digit;
  return key;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    select([]);
    if (event.target.closest("#found, #search")) $("point").focus();
    else if (event.target.matches("input")) event.target.blur();
    endSearch();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  const key = keyName(event);
  const keys = { u: () => act(undo), n: () => $("new-name").focus(), r: startRename, "/": () => $("words").focus() };
  if (key === "enter") {
    if (event.target.closest("button, a")) return; // Enter on a button is that button's
    act(accept);
  } else if (keys[key]) keys[key]();
  else {
    const found = state.classes.find((entry) => entry.key === key);
    if (key !== "s" && !found) return;
    // The row of a list that has the focus is not the one that is shown.
    if (event.target.closest(".list")) say("Press Enter to open that row first.");
    else act(key === "s" ? skip : () => give(found.code));
  }
  event.preventDefault();
});

/** Do something when a button is clicked; after the mouse, unlike the keyboard, Enter is not the button's again. */
function onClick(button, action) {
  button.addEventListener("click", (event) => {
    if (event.detail) $("point").focus({ preventScroll: true }); // the next click is at the same place
    act(action);
  });
}

for (const [id, action] of Object.entries({ accept, skip, undo })) onClick($(id), action);
for (const [id, action] of Object.entries({
  finish: () => change("finish"), "lay-out": () => change("layout"), retry: () => change("retry"), rename: startRename,
  "selection-cancel": () => select([]), "rename-cancel": () => $("rename-dialog").close(),
  "zoom-in": () => map.zoom(1.5), "zoom-out": () => map.zoom(1 / 1.5), "zoom-all": () => map.reset(),
  draw: () => $("draw").setAttribute("aria-pressed", (map.drawing = !map.drawing)),
})) $(id).addEventListener("click", action);
$("new-class").addEventListener("submit", addClass);
$("search").addEventListener("submit", search);
$("rename-form").addEventListener("submit", rename);
$("rename-form").addEventListener("input", () => ask(""));
