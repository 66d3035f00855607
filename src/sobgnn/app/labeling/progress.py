"""What fits predict, and progress: estimated accuracy, the random audit, and whether more labels would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.trust import wilson_interval

if TYPE_CHECKING:
    from sobgnn.app.labeling.labels import Label

# Number of classes that are predicted for each row.
TOP = 3
# "More labels will hardly help now": doubling the labels changed at most this share of the predictions, with at least
# this many labels. Measured in results/labeling.md.
CHANGED = 0.03
FEWEST = 50
# Number of rows whose predictions are compared from fit to fit.
SAMPLE = 5000


@dataclass(frozen=True)
class Predictions:
    """What one fit predicts for all points.

    Args:
        suggested: Rows to label next, best first.
        codes: int32 [N, 3], the most probable classes of each row, best first; -1 before there are two classes.
        probabilities: float32 [N, 3], their probabilities.
        suspects: Labeled rows that may be wrong, worst first.
        held_out: The out-of-fold prediction for labeled rows.
        accuracy: Estimated accuracy, or ``None`` if no labels were held out.
        interval: Its 95 % interval.
        version: Number of the fit, from 1.
        knows: Number of the last change that the fit has seen.
        given: int32 [N], the labels that it has seen; -1: none.
    """

    suggested: list[int]
    codes: npt.NDArray[np.int32]
    probabilities: npt.NDArray[np.float32]
    suspects: list[int] = field(default_factory=list)
    held_out: dict[int, int] = field(default_factory=dict)
    accuracy: float | None = None
    interval: tuple[float, float] = (0.0, 1.0)
    version: int = 0
    knows: int = 0
    given: Any = None

    @classmethod
    def none(cls, rows: int, suggested: Sequence[int] = ()) -> Predictions:
        """No prediction."""
        nothing = np.full((rows, TOP), -1, dtype=np.int32)
        return cls(list(suggested), nothing, np.zeros((rows, TOP), dtype=np.float32), given=nothing[:, 0])

    @property
    def guessing(self) -> bool:
        """Whether there are predictions."""
        return bool((self.codes[:1] >= 0).any())


@dataclass(frozen=True)
class Fit:
    """One fit, for the curve over time.

    Args:
        labels: Number of labels it was trained on.
        accuracy: Estimated accuracy, or ``None`` if no labels were held out.
        interval: Its 95 % interval.
        predicted: Predicted class of a fixed sample of rows.
        knows: Number of the last change that the fit has seen.
        chosen: Number of labels where those that were given at once, by a lasso, count as one: they are alike.
    """

    labels: int
    accuracy: float | None
    interval: tuple[float, float]
    predicted: npt.NDArray[np.integer]
    knows: int
    chosen: int


def sample(predicted: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """Up to ``SAMPLE`` of the predictions [N], always of the same rows."""
    return predicted[np.random.default_rng(0).permutation(len(predicted))[:SAMPLE]]


def advice(fits: Sequence[Fit]) -> tuple[bool, str]:
    """Whether more labels will hardly help, and a sentence with the evidence.

    It is the share of predictions that changed since the last fit that had at most half as many labels as the newest;
    labels of one lasso count as one. The share bounds the change of accuracy that doubling the labels brought: where
    two predictions agree, they are both right or both wrong.
    """
    begin = "Too early to say whether more labels would help"
    if not fits:
        return False, f"{begin}."
    now = fits[-1]
    if now.chosen < FEWEST:
        why = " Labels that were given at once, on the map, count as one." if now.labels >= FEWEST else ""
        return False, f"{begin}: that takes {FEWEST} labels.{why}"
    # A sample of another size was drawn by another version of this program.
    known = [fit for fit in fits if fit.predicted.shape == now.predicted.shape]
    earlier = [fit for fit in known if 2 * fit.chosen <= now.chosen]
    if not earlier:
        more = 2 * known[0].chosen - now.chosen
        return (
            False,
            f"Whether more labels would help shows after {more} more: twice as many as the first fit here had.",
        )
    share = float((earlier[-1].predicted != now.predicted).mean())
    evidence = f"going from {earlier[-1].labels} to {now.labels} labels changed {share:.1%} of the predictions."
    enough = share <= CHANGED
    return enough, f"More labels {'will hardly help now' if enough else 'still help'}: {evidence}"


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
    judged = [row for row, guess in guesses.items() if guess >= 0]
    right = sum(guesses[row] == drawn[row].code for row in judged)
    interval = wilson_interval(right, len(judged)) if judged else None
    return {"drawn": len(drawn), "judged": len(judged), "right": right, "interval": interval}


def curve(fits: Sequence[Fit]) -> list[dict[str, Any]]:
    """Estimated accuracy with its 95 % interval, by the number of labels."""
    known = [fit for fit in fits if fit.accuracy is not None]
    return [{"labels": fit.labels, "accuracy": fit.accuracy, "interval": fit.interval} for fit in known]
