"""Predictions of new points from a run, in batches of rows, and how often they agree with labels of the file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.app.runs.run import Checks
from sobgnn.app.runs.summary import formula_notes, interval_words, percent
from sobgnn.estimator.trust import wilson_interval
from sobgnn.tables import Batch, Encoding, write_predictions
from sobgnn.tables.columns.names import empty_notes, listed_counts
from sobgnn.tables.labels import UNLABELED
from sobgnn.tables.reading.records import RowCount

# Up to 15 digits, which a float holds exactly: longer ones are names.
_INTEGER = r"-?(?:0|[1-9]\d{0,14})$"
_NUMBER = r"[+-]?(?:0|[1-9]\d{0,14})(?:\.\d{0,15})?$"
# Batches are joined up to this size if a model predicts many rows at once faster.
_JOINED_BYTES = 2**28


@dataclass
class Found:
    """What was found while predicting a file, summed over its batches."""

    agreement: Agreement  # with the file's own labels
    rows: int = 0
    accepted: int = 0
    far: int = 0  # from all training points
    formulas: int = 0  # cells that were written with ' before them
    empty: RowCount = field(default_factory=RowCount)
    unread: Counter[str] = field(default_factory=Counter)  # filled cells that count as blank, by column
    gaps: Counter[str] = field(default_factory=Counter)  # cells that the model has not learned
    unsigned: Counter[str] = field(default_factory=Counter)  # numbers without their unit
    outside: Counter[str] = field(default_factory=Counter)  # values of far rows outside the training range
    said: dict[str, None] = field(default_factory=dict)  # sentences about the file, each once

    def notes(self, checks: Checks) -> list[str]:
        """Sentences about it."""
        review = "" if checks.acceptance is None else ", and these rows are marked review"
        notes = [*self.said, *empty_notes(self.empty.count, self.empty.first)]
        for counts, what, means in (
            (self.unread, "Unreadable values and unseen categories, treated as blank", ""),
            (
                self.gaps,
                "Categories that are new, or blank cells in columns that had none in training",
                f" The model has not learned what they mean, so its confidence says little{review}.",
            ),
            (
                self.unsigned,
                "Numbers without the unit that all had in training, and of another size",
                f" They are read as written, which may be wrong{review}.",
            ),
        ):
            notes += [f"{what}: {listed_counts(counts.most_common(), 'cell')}.{means}"] if counts else []
        notes += self.agreement.notes()
        if checks.acceptance is not None:
            notes.append(
                f"Accepted at {checks.acceptance.target:.4g}: {self.accepted:,} of {self.rows:,} rows "
                f"({percent(self.accepted / self.rows)}); the others are marked review."
            )
        if self.far:
            notes.append(
                f"Far from all training points, so predictions are uncertain: {self.far:,} of {self.rows:,} rows, "
                "marked in the column far."
            )
        if self.outside:
            columns = listed_counts(self.outside.most_common(), "row", 5)
            notes.append(f"Far rows have values outside the training range in: {columns}.")
        return [*notes, *formula_notes(self.formulas)]


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
    classes = classifier.classes_.tolist()
    found = Found(Agreement(classes))
    for batch in _joined(batches, classifier.predictor_.many):
        count = batch.X.shape[0]
        if not count:
            continue
        nearest = np.full(count, np.nan, np.float32)  # unknown without a neighbor graph: neither far nor a copy
        probability = classifier.predictor_(batch.X, nearest=nearest)
        if batch.beyond is not None:  # the scaling may hide it from the distance: rows of unit length, ranks
            nearest[batch.beyond] = np.inf
        extra = checks.of_new(probability.max(axis=1), nearest, batch.gappy)
        label = classifier.classes_[probability.argmax(axis=1)]
        found.formulas += write_predictions(
            file, classes, batch.first_row, label, probability, batch.ids, header=not found.rows, extra=extra
        )
        accepted = np.array([decision == "accept" for decision in extra.get("decision", [""] * count)])
        far = np.flatnonzero([word == "far" for word in extra.get("far", [])])
        found.rows += count
        found.accepted += int(accepted.sum())
        found.far += far.size
        if batch.labels is not None:
            found.agreement.add(batch.labels.tolist(), label, nearest, accepted)
        if encoding is not None and far.size:
            found.outside += encoding.outside(batch.X[far])
        if batch.empty is not None and batch.empty.any():
            found.empty.add(batch.first_row + int(batch.empty.argmax()), int(batch.empty.sum()))
        found.unread += batch.unread
        found.gaps += batch.gaps
        found.unsigned += batch.unsigned
        found.said |= dict.fromkeys(batch.said)
        yield batch.first_row + count
    if not found.rows:
        raise ValueError("The file has no rows, so there is nothing to predict.")
    if notes is not None:
        notes += found.notes(checks)


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
    fields: dict[str, Any] = {"said": tuple(dict.fromkeys(sentence for part in parts for sentence in part.said))}
    for name in ("unread", "gaps", "unsigned"):
        fields[name] = sum((getattr(part, name) for part in parts), Counter())
    for name in ("ids", "beyond", "gappy", "labels", "empty"):
        known = [getattr(part, name) for part in parts if getattr(part, name) is not None]
        fields[name] = np.concatenate(known) if known else None
    return Batch(parts[0].first_row, stack([part.X for part in parts]), **fields)


@dataclass
class Agreement:
    """Counts of rows whose file names a class of the model."""

    classes: Sequence[Any]  # of the model, text or whole numbers
    counted: int = 0  # such rows that are no copies of training points
    right: int = 0  # of these
    accepted: int = 0  # of these
    accepted_right: int = 0
    copies: int = 0  # such rows that equal a training point, whose label the model may have learned
    others: Counter[str] = field(default_factory=Counter)  # rows for each label that is no class of the model

    def add(
        self,
        labels: Sequence[str | None],
        predicted: npt.NDArray[Any],
        nearest: npt.NDArray[np.floating],
        accepted: npt.NDArray[np.bool_],
    ) -> None:
        """Count rows.

        Args:
            labels: Text of each row's label, or ``None`` if it has none, [M]. -1, unlabeled and the like are none too,
                unless they are classes.
            predicted: Predicted classes, [M].
            nearest: Distance to the nearest training point, [M].
            accepted: bool [M].
        """
        names = {str(value): value for value in self.classes}
        found = _classes_of({label for label in labels if label is not None}, names)
        for row, label in enumerate(labels):
            if label not in found:
                continue
            name = found[label]
            if name is None:
                self.others[label] += 1
            elif nearest[row] == 0:
                self.copies += 1
            else:
                right = bool(predicted[row] == names[name])
                self.counted += 1
                self.right += right
                self.accepted += bool(accepted[row])
                self.accepted_right += right and bool(accepted[row])

    def notes(self) -> list[str]:
        """Sentences about the counts; none if no row has a class of the model as its label."""
        said = []
        if self.counted:
            interval = interval_words(wilson_interval(self.right, self.counted))
            among = f"; among accepted rows, in {self.accepted_right:,} of {self.accepted:,}" if self.accepted else ""
            said.append(
                f"Predictions agree with the file's labels in {self.right:,} of {self.counted:,} rows "
                f"({percent(self.right / self.counted)}, {interval}){among}."
            )
        if self.copies:
            said.append(
                f"Rows with a label that equal a training point, whose label the model may have learned: "
                f"{self.copies:,}. They are not counted."
            )
        if said and self.others:
            named = listed_counts(self.others.most_common(), "row")
            said.append(f"Labels that are no class of the model, not counted: {named}.")
        return said


def _classes_of(labels: Collection[str], names: Collection[str]) -> dict[str, str | None]:
    """The class that each label means, ``None`` where it is none of ``names``; without labels that mean unlabeled.

    If all names are numbers, 1.50 means 1.5; otherwise only integers are compared as numbers, so that 03 and 3.0 stay
    names.
    """
    numeric = all(re.match(_NUMBER, name) for name in names)
    numbers = {float(name): name for name in names if re.match(_NUMBER if numeric else _INTEGER, name)}
    found: dict[str, str | None] = {}
    for label in labels:
        try:
            number = float(label)
        except ValueError:
            number = float("nan")
        name = label if label in names else numbers.get(number)
        if name is not None or not (number == -1 or label.lower() in UNLABELED):
            found[label] = name
    return found
