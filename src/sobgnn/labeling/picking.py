"""Which point to label next: the model's suggestions and, at intervals, a random one."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sobgnn.labeling.progress import AUDIT_EVERY
from sobgnn.labeling.state import Label

if TYPE_CHECKING:
    from sobgnn.labeling.learner import Guesses

# Open tabs ask every few seconds; those in the background, once a minute in some browsers. One that is closed says so,
# but not one whose browser was killed.
TAB_SECONDS = 70.0


class Picker:
    """Chooses the points to show.

    Once the model predicts, every ``AUDIT_EVERY``-th point, counted by the number of labels, is drawn at random:
    suggested points are harder than most, and only a random sample shows how good the model is on all. The random order
    is fixed, so that a reload shows the same point.

    Args:
        rows: Number of points.
        seed: Seed of the random order.
        seen: Rows whose guess the person may have seen; they cannot be audited.

    Attributes:
        audits: Rows that are shown without their guess.
    """

    def __init__(self, rows: int, seed: int = 0, seen: Collection[int] = ()) -> None:
        self._order = np.random.default_rng(seed).permutation(rows).tolist()
        self._guard = threading.Lock()
        self._seen = set(seen)
        self.audits: set[int] = set()

    def show(self, rows: Collection[int]) -> None:
        """Record that the person sees the guesses of rows, which can no longer be audited."""
        with self._guard:
            self._seen.update(rows)
            self.audits.difference_update(rows)

    def next(
        self,
        guesses: Guesses | None,
        labels: Mapping[int, Label],
        skipped: Collection[int],
        count: int,
        without: Collection[int] = (),
        shown: int | None = None,
    ) -> list[tuple[int, str]]:
        """Up to ``count`` rows without a label, each with the reason it is shown: suggested, audit or random.

        If a row is already ``shown``, the result comes after it, and its guess has been seen unless it is in
        ``audits``.
        """
        with self._guard:
            taken = {*labels, *skipped, *without}
            guessing = guesses is not None and guesses.codes is not None
            begin = 0
            if shown is not None:
                taken.add(shown)
                if shown not in self.audits:
                    self._seen.add(shown)
                # It takes the first position, but not that of a due audit.
                due = guessing and len(labels) % AUDIT_EVERY == AUDIT_EVERY - 1
                begin = int(shown not in labels and (shown in self.audits or not due))
            suggested = iter([] if guesses is None else guesses.suggested)
            drawn = iter(self._order)
            chosen: list[tuple[int, str]] = []
            for place in range(begin, begin + count):
                at_random = guessing and (len(labels) + place) % AUDIT_EVERY == AUDIT_EVERY - 1
                row = None if at_random else _first(suggested, taken)
                why = "suggested"
                if row is None:
                    row = _first(drawn, taken | self._seen if guessing else taken)
                    why = "audit" if guessing else "random"
                if row is None:
                    row, why = _first(suggested, taken), "suggested"
                if row is None:
                    row, why = _first(self._order, taken), "random"
                if row is None:
                    break
                taken.add(row)
                if why == "audit":
                    self.audits.add(row)
                else:
                    self.audits.discard(row)  # its guess is shown
                chosen.append((row, why))
            return chosen


class Offers:
    """The rows that each open tab shows now and next, so that others are offered different ones."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[float, set[int]]] = {}

    def note(self, tab: str, rows: Collection[int]) -> None:
        """Record what a tab shows; tabs without recent requests are forgotten."""
        now = time.monotonic()
        self._held = {name: held for name, held in self._held.items() if held[0] > now - TAB_SECONDS}
        self._held[tab] = now, set(rows)

    def forget(self, tab: str) -> None:
        """Note that a tab was closed."""
        self._held.pop(tab, None)

    def others(self, tab: str) -> set[str]:
        """Other tabs that are open."""
        now = time.monotonic()
        return {name for name, (when, _) in self._held.items() if name != tab and when > now - TAB_SECONDS}

    def of_others(self, tab: str) -> set[int]:
        """Rows that other tabs show."""
        return set().union(*(self._held[name][1] for name in self.others(tab)))


def _first(rows: object, taken: Collection[int]) -> int | None:
    return next((row for row in rows if row not in taken), None)  # type: ignore[attr-defined]
