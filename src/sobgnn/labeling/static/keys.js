"use strict";
// Which key does what.

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
    const found = state.classes.find((entry) => entry.key === key);
    if (key !== "s" && !found) return;
    // The row of a list that has the focus is not the one that is shown.
    if (event.target.closest(".list")) say("Press Enter to open that row first.");
    else act(key === "s" ? skip : () => give(found.code));
  }
  event.preventDefault();
});
