"""The fits so far, kept across restarts, for the page's curve and advice."""

from __future__ import annotations

import base64
import bisect
import contextlib
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from sobgnn.labeling.journal import Event, Journal
from sobgnn.labeling.progress import Measurement

FITS = "fits.journal"


class History:
    """Measurements of fits, ordered by their number of labels; of several with the same number, the last.

    Each is written to ``fits.journal`` beside the labels. Labels do not depend on it: a damaged file is renamed to
    ``fits.damaged`` and a new one is started, and what cannot be written to a full disk is kept only in memory.

    Args:
        folder: The run folder; the process that opens it holds the lock of its labels.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FITS
        self._fits: list[Measurement] = []
        try:
            self._journal = Journal(path)
            self._fits = [_measurement(event) for event in self._journal.events]
        except (ValueError, KeyError, TypeError):
            if hasattr(self, "_journal"):
                self._journal.close()
            path.replace(path.with_suffix(".damaged"))
            self._journal = Journal(path)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(_by_labels(self._fits))

    def standing(self, undone: Sequence[tuple[int, int]], labels: int) -> list[Measurement]:
        """The fits whose labels have not been undone.

        Args:
            undone: For each undoing of labels, in their order, the numbers of its event and of the event it undid.
            labels: Current number of labels; fits with more are excluded.
        """
        when = [number for number, _ in undone]
        # The earliest event undone by each undoing or a later one.
        earliest = list(accumulate((of for _, of in reversed(undone)), min))[::-1]

        def stands(fit: Measurement) -> bool:
            if fit.labels > labels or fit.knows is None:
                return fit.labels <= labels
            later = bisect.bisect_right(when, fit.knows)
            return later == len(when) or earliest[later] > fit.knows

        return _by_labels([fit for fit in list(self._fits) if stands(fit)])

    def add(self, measured: Measurement) -> None:
        """Record a fit, in memory and in the file."""
        self._fits.append(measured)
        with contextlib.suppress(OSError, ValueError):  # a full disk; a file that was closed
            self._journal.append(_event(measured))

    def close(self) -> None:
        """Close the file; further fits are recorded only in memory."""
        self._journal.close()


def _by_labels(fits: Sequence[Measurement]) -> list[Measurement]:
    last = {fit.labels: fit for fit in fits}
    return [last[labels] for labels in sorted(last)]


def _event(measured: Measurement) -> Event:
    packed = base64.b64encode(zlib.compress(measured.predicted.astype("<i4").tobytes())).decode()
    return {
        "labels": measured.labels,
        "knows": measured.knows,
        "chosen": measured.chosen,
        "accuracy": measured.accuracy,
        "judged": measured.judged,
        "seconds": measured.seconds,
        "predicted": packed,
    }


def _measurement(event: Event) -> Measurement:
    """The fit of an event; raises ValueError, KeyError or TypeError if the event is invalid."""
    try:
        predicted = np.frombuffer(zlib.decompress(base64.b64decode(event["predicted"])), dtype="<i4")
    except zlib.error:
        raise ValueError("The predictions of a fit are damaged.") from None
    accuracy, knows, chosen = event["accuracy"], event.get("knows"), event.get("chosen")
    return Measurement(
        int(event["labels"]),
        None if accuracy is None else float(accuracy),
        float(event["seconds"]),
        predicted,
        int(event["judged"]),
        None if knows is None else int(knows),
        None if chosen is None else int(chosen),
    )
