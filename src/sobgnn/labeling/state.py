"""Labels, classes and skipped rows, as derived from a journal's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from sobgnn.labeling.journal import Event

By = Literal["file", "person", "model"]


@dataclass(frozen=True)
class Label:
    """The label of one row.

    Args:
        code: Number of its class.
        when: UTC, ISO 8601.
        by: ``"file"`` (it was in DATA), ``"person"``, or ``"model"``: a person accepted the model's guess.
        audit: Whether the row was drawn at random and first labeled without seeing the guess.
        guess: Class that the model predicted before the row had a label, or ``None``.
        event: Number of the journal's event.
        confirmed: Whether a person who saw the class gave it again.
    """

    code: int
    when: str
    by: By
    audit: bool = False
    guess: int | None = None
    event: int = 0
    confirmed: bool = False


@dataclass
class State:
    """The result of a journal's events.

    Args:
        classes: Name by number; numbers are never reused, so a rename changes no label.
        labels: By row.
        skipped: Rows that were skipped.
        undoable: Numbers of the events that can still be undone, oldest first.
    """

    classes: dict[int, str] = field(default_factory=dict)
    labels: dict[int, Label] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    undoable: list[int] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        """Apply one event; :func:`replay` handles undoing."""
        what = event["what"]
        if what == "class" or (what == "rename" and event["class"] in self.classes):
            self.classes[int(event["class"])] = str(event["name"])
        elif what == "label":
            guesses = event.get("guesses", {})
            for row in event["rows"]:
                before = self.labels.get(row)
                guess = guesses.get(str(row)) if before is None else before.guess
                audit = bool(event.get("audit")) if before is None else before.audit
                same = before is not None and before.code == event["class"]
                given = (event["class"], event["when"], event["by"], audit, guess, event["n"])
                self.labels[row] = Label(*given, confirmed=same)
                self.skipped.discard(row)
        elif what == "merge":
            self.classes.pop(event["class"], None)
            into = {event["class"]: event["into"]}
            for row, label in self.labels.items():
                guess = None if label.guess is None else into.get(label.guess, label.guess)
                self.labels[row] = replace(label, code=into.get(label.code, label.code), guess=guess)
        elif what == "clear":
            for row in event["rows"]:
                self.labels.pop(row, None)
        elif what == "skip":
            self.skipped.update(row for row in event["rows"] if row not in self.labels)
        if event.get("by") != "file" and what != "start":
            self.undoable.append(event["n"])


def replay(events: Iterable[Event]) -> State:
    """The state after the events, without those that a later event undid."""
    events = list(events)
    undone = {event["of"] for event in events if event["what"] == "undo"}
    state = State()
    for event in events:
        if event["what"] != "undo" and event["n"] not in undone:
            state.apply(event)
    return state
