"use strict";
// What the page shows of its state; label.js holds the state and the ways to change it.
const REASONS = {
  suggested: "Suggested: its label would teach the model most.",
  audit: "Audit: drawn at random, without the model's guess, to measure how good it is.",
  random: "Drawn at random.",
  "asked for": "Opened by you.",
};
const TOUCH = matchMedia("(pointer: coarse)"); // no keys to press
const FEWEST_AUDITED = 5; // of fewer rows, the share that the model got right says nothing
const SPOKEN = 200; // characters of a row that are read out when it comes
const LOG_MS = 10000; // how long the log says what was done
const alerts = { change: "", model: "", server: "" };
const drawn = { marks: "", map: 0, suspects: "", classes: "" }; // what is on the screen
let marks = null; // labels and guesses of all points
let silence = 0; // the timer that ends what the log says
let later = []; // what waits for a state that has it

function nameOf(code) {
  const found = state.classes.find((entry) => entry.code === code);
  return found ? found.name : "?";
}

/** 100000 as 100,000, as the command prints it. */
function count(number) {
  return number.toLocaleString("en-US");
}

function many(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

function percent(share) {
  return Math.round(100 * share) + "%";
}

/** An element with properties and children. */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Change a text only if it is another: a screen reader would say it again. */
function write(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

/** Say what was done, until it is read or something else is done. */
function say(text) {
  clearTimeout(silence);
  if (text) silence = setTimeout(() => say(""), LOG_MS);
  write("log", text);
}

/** What went wrong, by its source: "change", "model" or "server"; an empty text takes it back. */
function alertText(source, text) {
  alerts[source] = text;
  const lines = Object.values(alerts).filter(Boolean);
  write("alert", lines.join(" "));
  $("alert").hidden = !lines.length;
  showSaved();
}

function showSaved() {
  const wrong = alerts.change || alerts.server;
  write("saved", waiting ? "Saving…" : saved && !wrong ? "Saved" : "");
  $("saved").className = waiting ? "waiting" : "";
  document.documentElement.dataset.waiting = waiting;
}

/** Do something with what a state will have, once there is one. */
function afterState(find, action) {
  later.push([find, action]);
  settle();
}

function settle() {
  later = later.filter(([find, action]) => {
    const found = find();
    if (found) action(found);
    return !found;
  });
}

function show() {
  const skips = state.skipped ? `, ${count(state.skipped)} skipped` : "";
  document.title = `Label ${state.name}`;
  write("name", state.name);
  write("counts", `${count(state.labels)} of ${count(state.rows)} rows labeled${skips}`);
  write("folder", state.folder);
  document.documentElement.dataset.labels = state.labels;
  document.documentElement.dataset.version = state.model.version;
  const windows = state.windows === 1 ? "another window" : `${state.windows} other windows`;
  write("windows", state.windows ? `This run is open in ${windows} too. Undo takes back changes of this window alone.` : "");
  $("undo").disabled = !state.undo;
  $("rename").disabled = !state.classes.length;
  $("lay-out").disabled = !state.model.layout;
  showSaved();
  showModel();
  showClasses();
  refreshMap();
  refreshSuspects();
  if (!current) showPoint();
  else showHint(); // a class may have another name
  settle();
}

function showModel() {
  const model = state.model, known = `The model knows ${count(model.known)} of ${many(state.labels, "label")}`;
  const says = model.guessing ? `${known}${model.dated ? ", and some that were taken back" : ""}.` : "The model starts once two classes have labels.";
  write("model", model.starting ? "Reading the data…" : says + (model.busy === "learn" ? " Learning…" : ""));
  $("retry").hidden = !model.stopped;
  $("finish").disabled = model.busy === "finish" || state.classes.filter((entry) => entry.count).length < 2;
  alertText("model", model.problem);
  const older = model.finished === state.saved ? "" : " It does not know the changes since; Finish again includes them.";
  const written = `Written to ${state.folder}.${older} sobgnn predict works on it.`;
  write("finished", model.busy === "finish" ? "Fitting and writing the run…" : model.finished === null ? "" : written);
  $("report").hidden = model.finished === null;
}

function showClasses() {
  const guess = current && current.guesses.length && !selection.length ? current.guesses[0].code : -1;
  const now = JSON.stringify([state.classes, guess]);
  if (now === drawn.classes) return;
  drawn.classes = now;
  renew($("classes"), state.classes.map(({ code, name, key, count: labels, color }) => {
    const button = make("button", { type: "button", className: "class" + (code === guess ? " guessed" : ""), title: name },
      make("kbd", { hidden: !key }, key.toUpperCase()), make("span", { className: "label", dir: "auto" }, name),
      make("span", { className: "number" }, count(labels)));
    button.dataset.key = code;
    button.style.setProperty("--class", color);
    button.setAttribute("aria-label", `${name}, ${many(labels, "label")}` + (key ? `, key ${key}` : ""));
    if (key) button.setAttribute("aria-keyshortcuts", key);
    onClick(button, () => give(code));
    return button;
  }));
}

function showPoint() {
  $("content").replaceChildren();
  $("accept").disabled = !current || !current.guesses.length;
  $("skip").disabled = !current;
  if (current) {
    write("point-title", current.title);
    write("why", REASONS[current.why] || "");
    $("content").append(make("dl", {}, ...current.content.flatMap(field)));
    $("work").scrollTop = 0;
    const { top, bottom } = $("point").getBoundingClientRect();
    if (top < 0 && bottom > 0) $("point").scrollIntoView(); // a narrow window, which does not show the map now
    // A row in one line for screen readers, which read all of it in the card.
    const parts = current.content.map((part) => part.kind === "picture" ? "picture" : `${part.name}: ${part.value.slice(0, SPOKEN)}`);
    const text = `${current.title}. ${parts.join(". ")}`.replace(/\s+/g, " ");
    write("spoken", text.length > SPOKEN ? text.slice(0, SPOKEN) + "…" : text);
    document.documentElement.dataset.row = current.row;
  } else {
    const done = state && state.labels + state.skipped >= state.rows;
    write("point-title", done ? "Every row is done" : "Choosing the first rows");
    write("why", "");
  }
  showHint();
  if (state) showClasses();
  showRings();
}

function field(part) {
  if (part.kind === "picture") {
    const image = make("img", { alt: `Picture of ${current.title}` }), value = make("dd", {}, image);
    image.addEventListener("load", () => {
      image.className = Math.max(image.naturalWidth, image.naturalHeight) < 200 ? "tiny" : "";
    });
    image.addEventListener("error", () => explainPicture(image.src, value));
    image.src = "picture/" + current.row;
    return [value];
  }
  const value = make("dd", { dir: "auto", className: part.value.length > 60 ? "long" : "" }, part.value);
  if (part.more) value.append(make("p", { className: "small", dir: "ltr" }, `… ${many(part.more, "more character")}`));
  return [make("dt", {}, part.name), value];
}

/** The guess, or what to press. */
function showHint() {
  if (!state) return;
  const classes = state.classes, label = current && current.label !== null ? `Labeled ${nameOf(current.label)}. ` : "";
  const guesses = current ? current.guesses.filter((guess, place) => place === 0 || guess.sure >= 0.05) : [];
  const first = classes.find((entry) => entry.key), by = (keys, taps) => TOUCH.matches ? taps : keys;
  let text = by("Press the key of its class, or click it. S skips the row.", "Tap its class, or skip the row.");
  if (!classes.length) text = by("Press N and type the first class, then Enter. Each class gets a key.", "Name the first class below, and tap Add.");
  else if (classes.length === 1 && first) text = by(`Press ${first.key.toUpperCase()} for ${first.name}, or N for another class.`, `Tap ${first.name}, or add another class.`);
  else if (!current) text = state.labels + state.skipped >= state.rows ? "Finish writes the model, the predictions and the report." : "One moment: the first rows are being chosen.";
  else if (guesses.length) text = "Guess: " + guesses.map((g) => `${nameOf(g.code)} (${percent(g.sure)})`).join(", ");
  write("hint", label + text);
}

/** Say in place of a picture why it is not shown. */
async function explainPicture(address, place) {
  let reason = "The browser cannot read it.";
  try {
    const answer = await fetch(address);
    if (!answer.ok) reason = await answer.text();
  } catch {
    reason = "The server does not answer.";
  }
  place.className = "small";
  place.textContent = `This picture is not shown. ${reason}`;
}

function showProgress() {
  const { advice, curve, audit } = progress, last = curve[curve.length - 1];
  write("advice", advice.sentence);
  $("advice").className = advice.enough ? "enough" : "";
  const between = ([low, high]) => `95% interval ${percent(low)} to ${percent(high)}`;
  if (curve.length >= 3) { // fewer say little about where it goes
    const series = { name: "accuracy", x: curve.map((p) => p.labels), y: curve.map((p) => p.accuracy), band: curve.map((p) => p.interval) };
    drawLines($("curve"), { series: [series], across: "labels", percent: true, whole: true });
  } else $("curve").replaceChildren();
  write("accuracy", last ? `Out-of-fold accuracy on your labels: ${percent(last.accuracy)} (${between(last.interval)}). Suggested rows are harder than most.` : "");
  const { judged, right, interval } = audit, so = judged ? `; ${count(judged)} of the first ${FEWEST_AUDITED} so far` : "";
  const drawing = `Random audit: one row in eight is drawn at random, once the model guesses${so}.`;
  write("audit", judged < FEWEST_AUDITED ? drawing : `Random audit: the model is right for ${right} of ${judged} rows drawn at random (${between(interval)}).`);
}

// ---------------------------------------------------------------------------------------------- the map

/** What the server has for a version; null where another was asked for meanwhile: answers come in any order. */
async function newest(what, version, path, form) {
  drawn[what] = version;
  try {
    const content = await (await get(path))[form]();
    return drawn[what] === version ? content : null;
  } catch {
    if (drawn[what] === version) drawn[what] = ""; // the next state asks again
    return null;
  }
}

async function refreshMap() {
  const before = drawn.map;
  if (before !== state.model.map && !map.start) { // points do not move while a lasso is drawn
    const buffer = await newest("map", state.model.map, "api/map", "arrayBuffer");
    if (buffer) {
      const place = new Float32Array(buffer);
      map.setPlace(place.subarray(0, place.length / 2), place.subarray(place.length / 2));
      if (before) say("The map was laid out again, by what the model has learned.");
    }
  }
  const now = `${state.saved} ${state.model.version}`;
  if (now === drawn.marks) return;
  const buffer = await newest("marks", now, "api/marks", "arrayBuffer");
  if (!buffer) return;
  const rows = buffer.byteLength / 5;
  marks = { given: new Int16Array(buffer, 0, rows), guess: new Int16Array(buffer, 2 * rows, rows), sure: new Uint8Array(buffer, 4 * rows, rows) };
  showMarks();
}

/** Rows drawn for the audit: their guess is not to be seen. */
function blindRows() {
  return new Set([current, ...upcoming].filter((point) => point && point.why === "audit").map((point) => point.row));
}

/** Labels are full, sure guesses half, others faint; what has no guess is gray. */
function showMarks() {
  if (!marks) return;
  const place = new Map(state.classes.map((entry, k) => [entry.code, k])), size = state.classes.length, blind = blindRows();
  const styles = [{ color: "var(--faint)", alpha: 0.45 }];
  for (const look of [{ alpha: 0.35 }, { alpha: 0.65 }, { alpha: 1, radius: map.radius() + 1.2 }])
    for (const entry of state.classes) styles.push({ ...look, color: entry.color });
  const group = new Uint16Array(marks.given.length);
  for (let row = 0; row < group.length; row++) {
    const labeled = marks.given[row] >= 0, k = place.get(labeled ? marks.given[row] : marks.guess[row]);
    if (k !== undefined && (labeled || !blind.has(row))) group[row] = 1 + k + size * (labeled ? 2 : marks.sure[row] > 200 ? 1 : 0);
  }
  map.setStyles(group, styles);
  showRings();
}

/** The row that is shown, but not one of the audit: the colors of its neighbors would give the guess away. */
function showRings() {
  const shown = current && !blindRows().has(current.row) ? [current.row] : [];
  map.rings = [{ rows: shown, apart: 4, width: 2 }, { rows: selection, apart: 1.5, width: 1.5 }];
  map.draw(false);
}

let hiddenAudits = "";
/** Rows drawn for the audit are gray on the map too. */
function hideAudits() {
  const now = [...blindRows()].join();
  if (now !== hiddenAudits) showMarks();
  hiddenAudits = now;
}

function showSelection() {
  const are = selection.length === 1 ? "is" : "are";
  write("selection-text", `${many(selection.length, "row")} without a label ${are} selected. Choose the class.`);
  $("selection").hidden = !selection.length;
  $("hint").hidden = selection.length > 0; // the selection takes its place
  document.documentElement.dataset.selected = selection.length;
  if (selection.length) $("answer").scrollIntoView({ block: "nearest" }); // in a narrow window the map is far below
  if (state) showClasses();
  showRings();
}

// ---------------------------------------------------------------------------------------------- lists

async function refreshSuspects() {
  const now = `${state.saved} ${state.model.version}`;
  if (now === drawn.suspects) return;
  const rows = await newest("suspects", now, "api/suspects", "json");
  if (!rows) return;
  $("doubts").hidden = !rows.length;
  fill($("suspects"), rows);
}

/** Put new elements into a place; the button that has the focus keeps it, by its key. */
function renew(place, elements) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...elements);
  if (key === undefined) return;
  ([...place.querySelectorAll("button")].find((button) => button.dataset.key === key) || $("point")).focus();
}

function fill(list, rows) {
  renew(list, rows.map((entry) => {
    const label = make("span", { className: "label" }, entry.label === null ? "" : ` · ${nameOf(entry.label)}`);
    const button = make("button", { type: "button", dir: "auto" }, entry.excerpt, label);
    button.dataset.key = entry.row;
    button.addEventListener("click", () => {
      $("point").focus(); // Enter accepts the guess
      endSearch();
      act(() => openRow(entry.row));
    });
    return make("li", {}, button);
  }));
}
