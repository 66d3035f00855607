"use strict";
// Which key does what.
const LETTERS = "abcdefghijklopqtvwxyz"; // without those that mean something else: m n r s u

/** The key of each class by its number: a class named by a digit has that key, the others the free keys in order. */
function classKeys(classes) {
  const own = new Map(classes.filter((entry) => /^[0-9]$/.test(entry.name)).map((entry) => [entry.code, entry.name]));
  const taken = new Set(own.values());
  const free = [..."123456789", ...LETTERS].filter((key) => !taken.has(key));
  return new Map(classes.map((entry) => [entry.code, own.get(entry.code) || free.shift() || ""]));
}

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
    $("found").replaceChildren();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !state) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  const key = keyName(event);
  if (key === "enter") {
    if (event.target.closest("button, a")) return; // Enter on a button is that button's
    act(accept);
  } else if (key === "u") act(undo);
  else if (key === "n") $("new-name").focus();
  else if (key === "r") startRename();
  else if (key === "/") $("words").focus();
  else {
    const found = [...classKeys(state.classes)].find(([, own]) => own === key);
    if (key !== "s" && !found) return;
    // The row of a list that has the focus is not the one that is shown.
    if (event.target.closest(".list")) $("saved").textContent = "Press Enter to open that row first.";
    else act(key === "s" ? skip : () => give(found[0]));
  }
  event.preventDefault();
});
