"""Which point comes next: the model's suggestions, and now and then one drawn at random."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sobgnn.labeling.progress import AUDIT_EVERY
from sobgnn.labeling.session import Label

if TYPE_CHECKING:
    from sobgnn.labeling.learner import Guesses


class Picker:
    """Chooses the points to show.

    Every ``AUDIT_EVERY``-th point, counted by the labels that are there, is drawn at random once the model guesses:
    what is suggested is harder than most, and a random sample alone can say how good the model is on all. The random
    order is fixed, so that a reload shows the same point.

    Args:
        rows: Number of points.
        seed: Of the random order.
        seen: Rows whose guess the person may have seen: they are no audit.

    Attributes:
        audits: Rows that are shown without their guess.
    """

    def __init__(self, rows: int, seed: int = 0, seen: Collection[int] = ()) -> None:
        self._order = np.random.default_rng(seed).permutation(rows).tolist()
        self._guard = threading.Lock()
        self._seen = set(seen)
        self.audits: set[int] = set()

    def show(self, rows: Collection[int]) -> None:
        """Note that the person sees the guesses of rows; they are no audit from here on."""
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
    ) -> list[tuple[int, str]]:
        """Up to ``count`` rows without a label, each with the reason it is shown: suggested, audit or random."""
        with self._guard:
            taken = {*labels, *skipped, *without}
            guessing = guesses is not None and guesses.codes is not None
            suggested = iter([] if guesses is None else guesses.suggested)
            drawn = iter(self._order)
            chosen: list[tuple[int, str]] = []
            for place in range(count):
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


def _first(rows: object, taken: Collection[int]) -> int | None:
    return next((row for row in rows if row not in taken), None)  # type: ignore[attr-defined]
