"use strict";
// The dialog that renames a class, or merges it into the class that has the name already.
let asked = ""; // the merge that the question in the dialog is about

function startRename() {
  if (!state.classes.length) return;
  $("rename-class").replaceChildren(...state.classes.map((entry) => new Option(entry.name, entry.code)));
  $("rename-name").value = "";
  sayRename("");
  $("rename-dialog").showModal();
}

/** Say something in the dialog; its button does what is asked. */
function sayRename(text, merge = "") {
  asked = merge;
  $("rename-said").textContent = text;
  $("rename-do").textContent = merge ? "Merge" : "Rename";
}

async function rename() {
  const code = Number($("rename-class").value), name = $("rename-name").value.trim().replace(/\s+/g, " ");
  const own = state.classes.find((entry) => entry.code === code);
  const other = state.classes.find((entry) => entry.name === name && entry.code !== code);
  const merge = other ? `${code} ${other.code}` : "";
  if (own && other && asked !== merge) {
    sayRename(`Merge '${own.name}' (${count(own.count)}) into '${other.name}' (${count(other.count)})?`, merge);
    return;
  }
  $("rename-do").disabled = true; // Enter again is no second change
  const content = await (other ? change("merge", { class: code, into: other.code }) : change("rename", { class: code, name }));
  $("rename-do").disabled = false;
  if (content) $("rename-dialog").close();
  else sayRename(alerts.change);
}

$("rename-form").addEventListener("submit", (event) => {
  event.preventDefault();
  rename();
});
$("rename-form").addEventListener("input", () => sayRename(""));
$("rename-cancel").addEventListener("click", () => $("rename-dialog").close());
$("rename").addEventListener("click", startRename);
