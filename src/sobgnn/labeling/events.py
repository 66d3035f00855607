"""Which events a journal of labels may hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from sobgnn.labeling.journal import Event


def check_events(events: Sequence[Event], path: Path) -> None:
    """Raise a ValueError that names the line if it is valid JSON, but not an event that a session writes."""
    classes: set[int] = set()
    for event in events:
        if not (_begins(event) if event["n"] == 1 else _follows(event, events, classes)):
            text = repr(event)
            text = text if len(text) <= 80 else text[:79] + "…"
            raise ValueError(
                f"{path} is damaged at line {event['n']}: {text} is not a labeling event. Repair that line, or remove "
                "it and those after it."
            )
        if event["what"] == "class":
            classes.add(event["class"])


def _begins(event: Event) -> bool:
    return event.get("what") == "start" and _is_whole(event.get("rows"))


def _follows(event: Event, events: Sequence[Event], classes: set[int]) -> bool:
    what, code = event.get("what"), event.get("class")
    if event.get("by") not in ("file", "person", "model") or not isinstance(event.get("when"), str):
        return False
    if not isinstance(event.get("tab", ""), str):
        return False
    if what == "undo":
        undone = event.get("of")
        return _is_whole(undone) and 1 < undone < event["n"] and events[undone - 1]["what"] != "undo"
    if what in ("class", "rename"):
        return _is_whole(code) and isinstance(event.get("name"), str) and (what == "class" or code in classes)
    if what == "merge":
        into = event.get("into")
        return _is_whole(code) and _is_whole(into) and code != into and {code, into} <= classes
    if what not in ("label", "clear", "skip"):
        return False
    rows, guesses = event.get("rows"), event.get("guesses", {})
    if not isinstance(rows, list) or not all(_is_whole(row) and row < events[0]["rows"] for row in rows):
        return False
    if not isinstance(guesses, dict) or not all(_is_whole(guess) for guess in guesses.values()):
        return False
    return what != "label" or (_is_whole(code) and code in classes)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
