"""Progress of labeling: estimated accuracy, the random audit, and whether more labels would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.accuracy import wilson_interval
from sobgnn.labeling.state import Label

# "More labels will hardly help now": doubling the labels changed at most this share of the predictions, with at least
# this many labels. Measured in results/labeling.md.
CHANGED = 0.03
FEWEST = 50
# One in this many points is drawn at random and shown without the guess.
AUDIT_EVERY = 8


@dataclass(frozen=True)
class Measurement:
    """One fit, for the curve over time.

    Args:
        labels: Number of labels it was trained on.
        accuracy: Out-of-fold accuracy, or ``None`` if no labels were held out.
        seconds: How long it took.
        predicted: Predicted class of a fixed sample of rows.
        judged: Number of labels that were held out.
        knows: Number of the journal's last event that the fit has seen; ``None`` in files of earlier versions.
        chosen: Number of labels where those that were given at once, by a lasso, count as one; ``None`` in files of
            earlier versions.
    """

    labels: int
    accuracy: float | None
    seconds: float
    predicted: npt.NDArray[np.integer]
    judged: int
    knows: int | None = None
    chosen: int | None = None

    @property
    def apart(self) -> int:
        """Number of labels that count for the advice: points that one lasso encloses are alike."""
        return self.labels if self.chosen is None else self.chosen


@dataclass(frozen=True)
class Advice:
    """Whether more labels would help: ``enough`` and a sentence with the evidence."""

    enough: bool
    sentence: str


def count_chosen(labels: Mapping[int, Label]) -> int:
    """Number of labels where those that one change gave to many rows count as one; those of DATA count each."""
    own = [label for label in labels.values() if label.by != "file"]
    return len(labels) - len(own) + len({label.event for label in own})


def changed_since_half(history: Sequence[Measurement]) -> tuple[int, float] | None:
    """The labels of the last fit that had at most half as many as the newest, and the share of predictions that differ.

    ``None`` where there is no such fit; labels of one lasso count as one. The share bounds the change of accuracy that
    doubling the labels brought: where two predictions agree, they are both right or both wrong.
    """
    if not history:
        return None
    newest = history[-1]
    # A sample of another size was drawn by another version of this program.
    same_rows = [one for one in history if one.predicted.shape == newest.predicted.shape]
    earlier = [one for one in same_rows if 2 * one.apart <= newest.apart]
    if not earlier:
        return None
    return earlier[-1].labels, float((earlier[-1].predicted != newest.predicted).mean())


def advice(history: Sequence[Measurement]) -> Advice:
    """Whether more labels would help, by how many predictions the last doubling of the labels changed."""
    now, apart = (history[-1].labels, history[-1].apart) if history else (0, 0)
    found = changed_since_half(history)
    if apart < FEWEST or found is None:
        why = " Labels that were given at once, on the map, count as one." if now >= FEWEST > apart else ""
        return Advice(False, f"Too early to say whether more labels would help.{why}")
    before, share = found
    evidence = f"going from {before} to {now} labels changed {share:.1%} of the predictions."
    if share <= CHANGED:
        return Advice(True, f"More labels will hardly help now: {evidence}")
    return Advice(False, f"More labels still help: {evidence}")


def audit(labels: Mapping[int, Label], held_out: Mapping[int, int]) -> dict[str, Any]:
    """Result of the rows drawn at random: how many, how often the model is right on them, and the 95 % interval.

    Only rows that were labeled without seeing the guess count; rows that the model suggested are harder than most and
    not representative.

    Args:
        labels: By row.
        held_out: The current model's out-of-fold prediction for each row; without one, the guess at labeling time
            counts.
    """
    drawn = {row: label for row, label in labels.items() if label.audit}
    guesses = {row: held_out.get(row, label.guess) for row, label in drawn.items()}
    judged = [row for row, guess in guesses.items() if guess is not None]
    right = sum(guesses[row] == drawn[row].code for row in judged)
    return {
        "drawn": len(drawn),
        "judged": len(judged),
        "right": right,
        "accuracy": right / len(judged) if judged else None,
        "interval": wilson_interval(right, len(judged)) if judged else None,
    }


def curve(history: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Out-of-fold accuracy with its 95 % interval, by the number of labels."""
    points = []
    for one in history:
        if one.accuracy is not None and one.judged:
            interval = wilson_interval(round(one.accuracy * one.judged), one.judged)
            points.append({"labels": one.labels, "accuracy": one.accuracy, "interval": interval})
    return points
