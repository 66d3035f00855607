"""Predictions of new points from a run, in batches of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from sobgnn.runs.agreement import Agreement
from sobgnn.runs.checks import Checks
from sobgnn.tables import Batch, Encoding, write_predictions
from sobgnn.tables.columns import listed
from sobgnn.tables.notes import empty_notes
from sobgnn.tables.reading.records import RowCount

# Batches are joined up to this size if a model predicts many rows at once faster.
_JOINED_BYTES = 2**28


def predict_batches(
    classifier: Any,
    batches: Iterator[Batch],
    file: Any,
    notes: list[str] | None = None,
    checks: Checks | None = None,
    encoding: Encoding | None = None,
) -> Iterator[int]:
    """Write predictions batch by batch, yielding the number of rows done.

    Args:
        classifier: A fitted ``SobolevClassifier``.
        batches: Rows in order.
        file: Binary file for CSV.
        notes: List that receives sentences about what was found.
        checks: Checks of each prediction.
        encoding: How batches came from the file, to explain why points are far.
    """
    checks = checks or Checks()
    done = rows = taken = distant = formulas = 0
    empty = RowCount()
    unread: Counter[str] = Counter()
    gaps: Counter[str] = Counter()
    unsigned: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    agreement = Agreement(classifier.classes_.tolist())
    said: dict[str, None] = {}  # in order, each once
    for batch in _joined(batches, classifier.predictor_.many):
        count = batch.X.shape[0]
        if not count:
            continue
        nearest = np.full(count, np.nan, np.float32)  # unknown without a neighbor graph: neither far nor a copy
        probability = classifier.predictor_(batch.X, nearest=nearest)
        if batch.beyond is not None:  # the scaling may hide it from the distance: rows of unit length, ranks
            nearest[batch.beyond] = np.inf
        extra = checks.columns(probability.max(axis=1), nearest, doubtful=batch.gappy)
        label = classifier.classes_[probability.argmax(axis=1)]
        formulas += write_predictions(
            file,
            classifier.classes_.tolist(),
            batch.first_row,
            label,
            probability,
            batch.ids,
            header=done == 0,
            extra=extra,
        )
        accepted = np.array(extra.get("decision", [""] * count), dtype=object) == "accept"
        taken += int(accepted.sum())
        if batch.labels is not None:
            agreement.add(batch.labels.tolist(), label, nearest, accepted)
        far = np.flatnonzero(np.array(extra.get("far", []), dtype=object) == "far")
        distant += far.size
        if encoding is not None and far.size:
            outside += encoding.outside(batch.X[far])
        if batch.empty is not None and batch.empty.any():
            empty.add(batch.first_row + int(batch.empty.argmax()), int(batch.empty.sum()))
        unread += batch.unread
        gaps += batch.gaps
        unsigned += batch.unsigned
        said |= dict.fromkeys(batch.said)
        rows += count
        done = batch.first_row + count
        yield done
    if not done:
        raise ValueError("The file has no rows, so there is nothing to predict.")
    if notes is not None:
        notes += [
            *said,
            *empty_notes(empty.count, empty.first),
            *_unread_notes(unread),
            *_gap_notes(gaps, checks),
            *_unsigned_notes(unsigned, checks),
        ]
        notes += agreement.notes()
        notes += _notes(checks, rows, taken, distant)
        notes += _outside_notes(outside)
        notes += formula_notes(formulas)


def formula_notes(count: int) -> list[str]:
    """The note about cells that were made harmless, if there are any."""
    if not count:
        return []
    return [f"Cells that a spreadsheet would run as formulas were written with ' before them: {count:,}."]


def _unread_notes(unread: Counter[str]) -> list[str]:
    if not unread:
        return []
    columns = [f"{name} ({count:,})" for name, count in unread.most_common()]
    return [f"Unreadable values and unseen categories, treated as blank: {listed(columns)}."]


def _gap_notes(gaps: Counter[str], checks: Checks) -> list[str]:
    if not gaps:
        return []
    columns = [f"{name} ({count:,})" for name, count in gaps.most_common()]
    outcome = "" if checks.acceptance is None else ", and these rows are marked review"
    return [
        f"Categories that are new, or blank cells in columns that had none in training: {listed(columns)}. The model "
        f"has not learned what they mean, so its confidence says little{outcome}."
    ]


def _unsigned_notes(unsigned: Counter[str], checks: Checks) -> list[str]:
    if not unsigned:
        return []
    columns = [f"{name} ({count:,})" for name, count in unsigned.most_common()]
    outcome = "" if checks.acceptance is None else "; these rows are marked review"
    return [
        f"Numbers without the unit that all had in training, and of another size: {listed(columns)}. "
        f"They are read as written, which may be wrong{outcome}."
    ]


def _notes(checks: Checks, rows: int, taken: int, distant: int) -> list[str]:
    said = []
    if checks.acceptance is not None:
        said.append(
            f"Accepted at {checks.acceptance.target:.4g}: {taken:,} of {rows:,} rows ({taken / rows:.1%}); the others "
            "are marked review."
        )
    if distant:
        said.append(
            f"Far from all training points, so predictions are uncertain: {distant:,} of {rows:,} rows, marked in the "
            "column far."
        )
    return said


def _outside_notes(outside: Counter[str]) -> list[str]:
    if not outside:
        return []
    columns = [f"{name} ({count:,})" for name, count in outside.most_common()]
    return [f"Far rows have values outside the training range in: {listed(columns, 5)}."]


def _joined(batches: Iterator[Batch], rows: int | None) -> Iterator[Batch]:
    """The same rows, joined to batches of at least ``rows`` within ``_JOINED_BYTES``, as long as there are rows."""
    waiting: list[Batch] = []
    for batch in batches:
        waiting.append(batch)
        held = sum(part.X.shape[0] for part in waiting)
        if rows is None or held >= rows or 4 * held * batch.X.shape[1] >= _JOINED_BYTES:
            yield _as_one(waiting)
            waiting = []
    if waiting:
        yield _as_one(waiting)


def _as_one(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    stack: Any = sp.vstack if sp.issparse(parts[0].X) else np.concatenate
    ids = [part.ids for part in parts if part.ids is not None]
    unread: Counter[str] = sum((part.unread for part in parts), Counter())
    gaps: Counter[str] = sum((part.gaps for part in parts), Counter())
    unsigned: Counter[str] = sum((part.unsigned for part in parts), Counter())
    beyond = [part.beyond for part in parts if part.beyond is not None]
    gappy = [part.gappy for part in parts if part.gappy is not None]
    labels = [part.labels for part in parts if part.labels is not None]
    blank = [part.empty for part in parts if part.empty is not None]
    held = (ids, beyond, gappy, labels, blank)
    joined_ids, far, doubtful, known, empty = (np.concatenate(each) if each else None for each in held)
    X = stack([part.X for part in parts])
    said = tuple(dict.fromkeys(sentence for part in parts for sentence in part.said))
    return Batch(parts[0].first_row, X, joined_ids, unread, far, gaps, doubtful, unsigned, said, known, empty)
