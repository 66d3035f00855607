"""The key of each class, which it keeps while other classes come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sobgnn.labeling.journal import Event
from sobgnn.labeling.state import State, replay

# Without the letters of the page's other commands.
KEYS = "123456789abcdefghijklopqtvwxyz"
# The events that change classes.
CLASS_EVENTS = ("class", "rename", "merge")


class ClassKeys:
    """Assigns keys: a class named by a digit has that digit, another keeps its key, a new one gets the first free key.

    Attributes:
        now: The key of each class by its number, "" where none is free.
    """

    def __init__(self) -> None:
        self.now: dict[int, str] = {}
        self._last: dict[int, str] = {}  # also of classes that are gone, for one that comes back

    def update(self, classes: Mapping[int, str]) -> None:
        """Assign keys after a change of the classes, which are names by number."""
        now = {code: name for code, name in classes.items() if name in {"0", *KEYS[:9]}}
        taken = set(now.values())
        # A class that is there comes before one that comes back.
        for code in sorted(classes, key=lambda code: code not in self.now):
            key = self._last.get(code, "")
            if code not in now and key and key not in taken:
                now[code] = key
                taken.add(key)
        free = iter(key for key in KEYS if key not in taken)
        self.now = {code: now.get(code) or next(free, "") for code in classes}
        self._last.update(self.now)


def replay_keys(events: Iterable[Event]) -> ClassKeys:
    """The keys after the events, each assigned when its class came."""
    keys, state, past = ClassKeys(), State(), []
    numbers: set[int] = set()
    for event in events:
        if event["what"] in CLASS_EVENTS:
            past.append(event)
            numbers.add(event["n"])
            state.apply(event)
        elif event["what"] == "undo" and event["of"] in numbers:
            past.append(event)
            state = replay(past)
        else:
            continue
        keys.update(state.classes)
    return keys
