"use strict";
// What the page shows of its state; label.js holds the state and the ways to change it.
const SPOKEN = 200; // characters of a row that are read out when it comes
const SAID_MS = 10000; // how long the status line says what was done
let said = ""; // what it says now
let silence = 0; // the timer that ends it

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
  return Math.round(100 * share) + " %";
}

/** Say something in the status line, where it stays until it is read or something is changed. */
function say(text) {
  said = text;
  clearTimeout(silence);
  if (text) silence = setTimeout(() => say(""), SAID_MS);
  showSaved();
}

function showSaved() {
  const wrong = alerts.change || alerts.server;
  const text = waiting ? "Saving…" : said || (state && state.saved && !wrong ? "All saved" : "");
  if ($("saved").textContent !== text) $("saved").textContent = text; // or a screen reader says it again
  $("saved").className = waiting ? "waiting" : "";
  document.documentElement.dataset.waiting = waiting;
}

function show() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.title = `Label ${state.name}`;
  $("name").textContent = state.name;
  const skips = state.skipped ? `, ${count(state.skipped)} skipped` : "";
  $("counts").textContent = `${count(state.labels)} of ${count(state.rows)} rows labeled${skips}`;
  $("folder").textContent = state.folder;
  document.documentElement.dataset.labels = state.labels;
  document.documentElement.dataset.version = state.model.version;
  showSaved();
  showModel();
  map.colors = new Map(state.classes.map((entry) => [entry.code, dark ? entry.dark : entry.light]));
  showClasses(dark);
  showProgress();
  refreshMap();
  refreshSuspects();
  $("undo").disabled = !state.undo;
  $("lay-out").disabled = !state.model.layout;
  const windows = state.windows ? `This run is open in ${state.windows === 1 ? "another window" : `${state.windows} other windows`} too. ` +
    "Undo takes back changes of this window alone." : "";
  if ($("windows").textContent !== windows) $("windows").textContent = windows;
  if (!current) showPoint();
  else showGuess(); // a class may have another name
}

function showModel() {
  const model = state.model;
  let text = model.starting ? "Reading the data…" : "";
  if (model.version) {
    const known = model.guessing ? `The model knows ${count(model.known)} of ${many(state.labels, "label")}${model.dated ? ", and some that were taken back" : ""}.` :
      "The model starts once two classes have labels.";
    text = known + (model.busy === "fit" ? " Learning…" : "");
  }
  $("model").textContent = text;
  $("retry").hidden = !model.stopped;
  $("finish").disabled = model.busy === "finish";
  alertText("model", model.problem);
  alertText("notice", state.notice);
  const older = model.finished && model.finished.knows !== state.saved ?
    " There have been changes since, which it does not know. Finish again to include them." : "";
  $("finished").textContent = model.busy === "finish" ? "Fitting and writing the run…" :
    model.finished ? `Written to ${model.finished.folder}. \`sobgnn predict\` works on it.${older}` : "";
}

function showClasses(dark) {
  const guess = current && current.guesses.length ? current.guesses[0].code : -1;
  const now = JSON.stringify([state.classes, guess, dark]);
  if (now === seen.classes) return;
  seen.classes = now;
  renew($("classes"), state.classes.map((entry) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.key = entry.code;
    button.className = "class" + (entry.code === guess ? " guessed" : "");
    button.style.setProperty("--class", dark ? entry.dark : entry.light);
    const key = entry.key;
    const [kbd, label, number] = ["kbd", "span", "span"].map((tag) => document.createElement(tag));
    kbd.textContent = key.toUpperCase();
    kbd.hidden = !key;
    label.className = "label";
    label.dir = "auto";
    label.textContent = entry.name;
    number.className = "number";
    number.textContent = count(entry.count);
    button.title = entry.name;
    button.setAttribute("aria-label", `${entry.name}, ${many(entry.count, "label")}` + (key ? `, key ${key}` : ""));
    if (key) button.setAttribute("aria-keyshortcuts", key);
    button.append(kbd, label, number);
    onClick(button, () => give(entry.code));
    return button;
  }));
}

function showPoint() {
  const card = $("content");
  card.replaceChildren();
  if (!current) {
    $("point-title").textContent = state && state.labels + state.skipped >= state.rows ? "Every row is done" : "One moment";
    $("why").textContent = "";
    $("guess").textContent = "";
    $("accept").disabled = true;
    return;
  }
  $("point-title").textContent = `Row ${current.id}`;
  $("why").textContent = REASONS[current.why] || "";
  const list = document.createElement("dl");
  for (const part of current.content) {
    const [name, value] = [document.createElement("dt"), document.createElement("dd")];
    name.textContent = part.name;
    if (part.kind === "picture") {
      const image = document.createElement("img");
      image.src = "picture/" + current.row;
      image.alt = `Picture of row ${current.id}`;
      image.addEventListener("error", () => explainPicture(image.src, value));
      value.append(image);
    } else {
      value.textContent = part.value;
      value.dir = "auto";
      if (part.more) {
        const cut = document.createElement("p");
        cut.className = "hint";
        cut.dir = "ltr";
        cut.textContent = `… ${count(part.more)} more ${part.more === 1 ? "character" : "characters"}`;
        value.append(cut);
      }
      if (part.value.length > 60) value.className = "long";
    }
    list.append(name, value);
  }
  card.append(list);
  $("point").scrollTop = 0;
  $("accept").disabled = !current.guesses.length;
  showGuess();
  $("spoken").textContent = spoken(current);
  document.documentElement.dataset.row = current.row;
  if (state) showClasses(matchMedia("(prefers-color-scheme: dark)").matches);
  map.draw(false);
}

function showGuess() {
  if (!current || !state) return;
  const guesses = current.guesses.filter((guess, place) => place === 0 || guess.sure >= 0.05);
  let text = guesses.length ? "Guess: " + guesses.map((g) => `${nameOf(g.code)} ${percent(g.sure)}`).join(", ") : "";
  if (current.label !== null) text = `Labeled ${nameOf(current.label)}. ` + text;
  if ($("guess").textContent !== text) $("guess").textContent = text; // or a screen reader says it again
}

/** A row in one line for screen readers, which read all of it in the card. */
function spoken(point) {
  const parts = point.content.map((part) => part.kind === "picture" ? "picture" : `${part.name}: ${part.value.slice(0, SPOKEN)}`);
  const text = `Row ${point.id}. ${parts.join(". ")}`.replace(/\s+/g, " ");
  return text.length > SPOKEN ? text.slice(0, SPOKEN) + "…" : text;
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
  place.className = "hint";
  place.textContent = `This picture is not shown. ${reason}`;
}

function showProgress() {
  $("advice").textContent = state.advice.sentence;
  $("advice").className = state.advice.enough ? "enough" : "";
  drawCurve($("curve"), state.curve);
  const last = state.curve[state.curve.length - 1];
  $("accuracy").textContent = last ? `Out-of-fold accuracy on your labels: ${percent(last.accuracy)} ` +
    `(95 % interval ${percent(last.interval[0])} to ${percent(last.interval[1])}). Suggested rows are harder than most.` : "";
  $("curve").setAttribute("aria-label", last ? `Estimated accuracy over ${state.curve.length} fits, ` +
    `now ${percent(last.accuracy)} with ${last.labels} labels` : "Estimated accuracy: not known yet");
  const audit = state.audit;
  $("audit").textContent = audit.judged ? `Random audit: the model is right for ${audit.right} of ${audit.judged} rows ` +
    `drawn at random (95 % interval ${percent(audit.interval[0])} to ${percent(audit.interval[1])}).` :
    "Random audit: one row in eight is drawn at random, once the model guesses.";
}

async function refreshMap() {
  if (!state.model.map) return;
  const now = `${state.saved} ${state.model.version}`;
  try {
    if (seen.map !== state.model.map && !map.start) { // points do not move while a lasso is drawn
      const before = seen.map;
      seen.map = state.model.map;
      try {
        map.setPlace(await (await get("api/map")).arrayBuffer());
      } catch (error) {
        seen.map = before; // the next answer asks again
        throw error;
      }
      if (before && !said) say("The map was laid out again, by what the model has learned.");
    }
    if (now !== seen.marks) {
      seen.marks = now;
      map.setMarks(await (await get("api/marks")).arrayBuffer());
    } else map.draw(false);
  } catch {
    seen.marks = "";
  }
}

async function refreshSuspects() {
  const now = `${state.saved} ${state.model.version}`;
  if (now === seen.suspects) return;
  seen.suspects = now;
  try {
    const rows = await (await get("api/suspects")).json();
    $("no-suspects").hidden = rows.length > 0;
    fill($("suspects"), rows);
  } catch {
    seen.suspects = "";
  }
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
    const item = document.createElement("li"), button = document.createElement("button");
    const label = document.createElement("span");
    button.type = "button";
    button.dataset.key = entry.row;
    button.dir = "auto";
    label.className = "label";
    label.textContent = entry.label === null ? "" : ` · ${nameOf(entry.label)}`;
    button.append(entry.excerpt, label);
    button.addEventListener("click", () => {
      $("point").focus(); // Enter accepts the guess
      act(() => openRow(entry.row));
    });
    item.append(button);
    return item;
  }));
}
