"""The fits so far, kept over restarts: what the page's curve shows and its advice compares."""

from __future__ import annotations

import base64
import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sobgnn.labeling.journal import Event, Journal
from sobgnn.labeling.progress import Measurement

FITS = "fits.journal"


class History:
    """Measurements of fits, ordered by their number of labels; of several with as many labels, the last.

    Each is written to ``fits.journal`` beside the labels. Labels do not depend on it: where the file is damaged it is
    put aside as ``fits.damaged`` and a new one begins, and what a full disk refuses is kept in memory alone.

    Args:
        folder: The run folder; whoever opens it holds the lock of its labels.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FITS
        self._fits: dict[int, Measurement] = {}
        try:
            self._journal = Journal(path)
            for event in self._journal.events:
                self._note(_measurement(event))
        except (ValueError, KeyError, TypeError):
            if hasattr(self, "_journal"):
                self._journal.close()
            self._fits = {}
            path.replace(path.with_suffix(".damaged"))
            self._journal = Journal(path)

    def __iter__(self) -> Iterator[Measurement]:
        return iter([self._fits[labels] for labels in sorted(self._fits)])

    def add(self, measured: Measurement) -> None:
        """Note a fit, in memory and in the file."""
        self._note(measured)
        with contextlib.suppress(OSError, ValueError):  # a full disk; a file that was closed
            self._journal.append(_event(measured))

    def close(self) -> None:
        """Close the file; further fits are noted in memory alone."""
        self._journal.close()

    def _note(self, measured: Measurement) -> None:
        self._fits[measured.labels] = measured


def _event(measured: Measurement) -> Event:
    packed = base64.b64encode(zlib.compress(measured.predicted.astype("<i4").tobytes())).decode()
    return {
        "labels": measured.labels,
        "accuracy": measured.accuracy,
        "judged": measured.judged,
        "seconds": measured.seconds,
        "predicted": packed,
    }


def _measurement(event: Event) -> Measurement:
    """The fit of an event; raises ValueError, KeyError or TypeError where it is none."""
    try:
        predicted = np.frombuffer(zlib.decompress(base64.b64decode(event["predicted"])), dtype="<i4")
    except zlib.error:
        raise ValueError("The predictions of a fit are damaged.") from None
    accuracy = event["accuracy"]
    return Measurement(
        int(event["labels"]),
        None if accuracy is None else float(accuracy),
        float(event["seconds"]),
        predicted,
        int(event["judged"]),
    )
