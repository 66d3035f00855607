"""Which point to label next: the model's suggestions and, at intervals, a random one."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt

# One in this many points is drawn at random and shown without the guess.
AUDIT_EVERY = 8


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
        self._seen = set(seen)
        self.audits: set[int] = set()

    def show(self, rows: Collection[int]) -> None:
        """Record that the person sees the guesses of rows, which can no longer be audited."""
        self._seen.update(rows)
        self.audits.difference_update(rows)

    def next(
        self,
        suggested: Iterable[int],
        guessing: bool,
        codes: npt.NDArray[np.integer],
        without: Collection[int],
        count: int,
        shown: int | None = None,
    ) -> list[tuple[int, str]]:
        """Up to ``count`` rows without a label, each with the reason it is shown: suggested, audit or random.

        Args:
            suggested: The model's suggestions, best first.
            guessing: Whether the model predicts classes.
            codes: [N], the class of each row; -1: no label.
            without: Rows to leave out.
            count: How many.
            shown: The row that is shown already: the result comes after it, and its guess has been seen unless it is in
                ``audits``.
        """
        taken, labels, begin = set(without), int(np.count_nonzero(codes >= 0)), 0
        if shown is not None:
            taken.add(shown)
            if shown not in self.audits:
                self._seen.add(shown)
            # It takes the first position, but not that of a due audit.
            due = guessing and labels % AUDIT_EVERY == AUDIT_EVERY - 1
            begin = int(codes[shown] < 0 and (shown in self.audits or not due))

        def free(rows: Iterable[int]) -> Iterator[int]:
            return (row for row in rows if codes[row] < 0 and row not in taken)

        ranked, rest = free(suggested), free(self._order)
        drawn = (row for row in free(self._order) if not (guessing and row in self._seen))
        chosen: list[tuple[int, str]] = []
        for place in range(begin, begin + count):
            sources = [(ranked, "suggested"), (drawn, "audit" if guessing else "random")]
            if guessing and (labels + place) % AUDIT_EVERY == AUDIT_EVERY - 1:
                sources.reverse()
            found = next(((row, why) for rows, why in [*sources, (rest, "random")] for row in rows), None)
            if found is None:
                break
            row, why = found
            taken.add(row)
            (self.audits.add if why == "audit" else self.audits.discard)(row)
            chosen.append(found)
        return chosen


class Windows:
    """The open windows, and the rows that each shows now and next, so that others are offered different ones."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._shown: dict[str, set[int]] = {}

    @contextlib.contextmanager
    def open(self, tab: str) -> Iterator[None]:
        """While a window listens; after a reload, for a moment, twice."""
        self._open[tab] += 1
        try:
            yield
        finally:
            self._open[tab] -= 1
            if not self._open[tab]:
                del self._open[tab]
                self._shown.pop(tab, None)

    def show(self, tab: str, rows: Iterable[int]) -> None:
        """Record what a window shows."""
        if tab in self._open:
            self._shown[tab] = set(rows)

    def others(self, tab: str) -> set[str]:
        """Other windows that are open; none for whoever asks without being one."""
        return set(self._open) - {tab} if tab else set()

    def shown_by_others(self, tab: str) -> set[int]:
        """Rows that other windows show."""
        return set().union(*(self._shown.get(name, ()) for name in self.others(tab)))
