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
    """What was found while predicting a file, summed over its batches.

    Attributes:
        classes: Of the model, text or whole numbers.
        count: Rows by what they are: ``rows``, ``accepted``, ``far``; with a class of the model as their own label
            ``judged``, of these ``right``, ``judged accepted`` and ``right accepted``, and ``copies`` of training
            points, which are not judged; ``formulas``, cells that were written with ' before them.
        others: Rows for each label that is no class of the model.
        unread, gaps, unsigned, outside: Cells by column, as in :class:`~sobgnn.tables.Batch`, and rows by column whose
            value is outside the training range.
        said: Sentences about the file, each once.
    """

    classes: Sequence[Any]
    count: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    unsigned: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    empty: RowCount = field(default_factory=RowCount)
    said: dict[str, None] = field(default_factory=dict)

    def add(self, batch: Batch, accepted: npt.NDArray[np.bool_]) -> None:
        """Count the rows of a batch, of which some are accepted."""
        self.count.update(rows=len(accepted), accepted=int(accepted.sum()))
        if batch.empty is not None and batch.empty.any():
            self.empty.add(batch.first_row + int(batch.empty.argmax()), int(batch.empty.sum()))
        self.unread += batch.unread
        self.gaps += batch.gaps
        self.unsigned += batch.unsigned
        self.said |= dict.fromkeys(batch.said)

    def compare(
        self,
        labels: Sequence[str | None],
        predicted: npt.NDArray[Any],
        nearest: npt.NDArray[np.floating],
        accepted: npt.NDArray[np.bool_],
    ) -> None:
        """Count how often predictions agree with the file's own labels.

        Args:
            labels: Text of each row's label, or ``None`` if it has none, [M]. -1, unlabeled and the like are none too,
                unless they are classes.
            predicted: Predicted classes, [M].
            nearest: Distance to the nearest training point, [M]: at 0 the model may have learned the label.
            accepted: bool [M].
        """
        means = _classes_of({label for label in labels if label is not None}, list(map(str, self.classes)))
        names = np.asarray(predicted).astype(str)
        for row, label in enumerate(labels):
            if label is None or label not in means:
                continue
            if means[label] is None:
                self.others[label] += 1
            elif nearest[row] == 0:
                self.count["copies"] += 1
            else:
                right = int(names[row] == means[label])
                self.count.update({"judged": 1, "right": right})
                if accepted[row]:
                    self.count.update({"judged accepted": 1, "right accepted": right})

    def notes(self, checks: Checks) -> list[str]:
        """Sentences about it."""
        count, review = self.count, "" if checks.acceptance is None else ", and these rows are marked review"
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
        if count["judged"]:
            right, judged, among = count["right"], count["judged"], ""
            if count["judged accepted"]:
                among = f"; among accepted rows, in {count['right accepted']:,} of {count['judged accepted']:,}"
            interval = interval_words(wilson_interval(right, judged))
            notes.append(
                f"Predictions agree with the file's labels in {right:,} of {judged:,} rows ({percent(right / judged)}, "
                f"{interval}){among}."
            )
        if count["copies"]:
            notes.append(
                "Rows with a label that equal a training point, whose label the model may have learned: "
                f"{count['copies']:,}. They are not counted."
            )
        if self.others and (count["judged"] or count["copies"]):
            named = listed_counts(self.others.most_common(), "row")
            notes.append(f"Labels that are no class of the model, not counted: {named}.")
        if checks.acceptance is not None:
            notes.append(
                f"Accepted at {checks.acceptance.target:.4g}: {count['accepted']:,} of {count['rows']:,} rows "
                f"({percent(count['accepted'] / count['rows'])}); the others are marked review."
            )
        if count["far"]:
            notes.append(
                f"Far from all training points, so predictions are uncertain: {count['far']:,} of {count['rows']:,} "
                "rows, marked in the column far."
            )
        if self.outside:
            columns = listed_counts(self.outside.most_common(), "row", 5)
            notes.append(f"Far rows have values outside the training range in: {columns}.")
        return [*notes, *formula_notes(count["formulas"])]


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
    checks, classes = checks or Checks(), classifier.classes_.tolist()
    found = Found(classes)
    for batch in _joined(batches, classifier.predictor_.many):
        rows = batch.X.shape[0]
        if not rows:
            continue
        nearest = np.full(rows, np.nan, np.float32)  # unknown without a neighbor graph: neither far nor a copy
        probability = classifier.predictor_(batch.X, nearest=nearest)
        if batch.beyond is not None:  # the scaling may hide it from the distance: rows of unit length, ranks
            nearest[batch.beyond] = np.inf
        extra = checks.of_new(probability.max(axis=1), nearest, batch.gappy)
        label = classifier.classes_[probability.argmax(axis=1)]
        header = not found.count["rows"]
        found.count["formulas"] += write_predictions(
            file, classes, batch.first_row, label, probability, batch.ids, header=header, extra=extra
        )
        accepted = np.array(extra.get("decision", [""] * rows)) == "accept"
        far = np.flatnonzero(np.array(extra.get("far", [])) == "far")
        found.add(batch, accepted)
        if batch.labels is not None:
            found.compare(batch.labels.tolist(), label, nearest, accepted)
        if far.size:
            found.count["far"] += far.size
            found.outside += Counter() if encoding is None else encoding.outside(batch.X[far])
        yield batch.first_row + rows
    if not found.count["rows"]:
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
