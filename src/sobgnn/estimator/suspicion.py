"""Suspects: given labels that out-of-fold predictions contradict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# A label is suspect if another class is at least this many times as probable as the given one. Measured in
# results/honesty.md.
TIMES = 5.0


@dataclass(frozen=True)
class Suspect:
    """A label that looks wrong.

    Attributes:
        row: Its row in X.
        given: The label that was given.
        predicted: The class that models which did not see the label predict instead.
        probability: Probability of the given class, according to these models.
        predicted_probability: Probability of the predicted class.
    """

    row: int
    given: Any
    predicted: Any
    probability: float
    predicted_probability: float


def suspect_labels(
    labeled: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    out_of_fold: npt.NDArray[np.float64],
    classes: npt.NDArray[Any],
) -> list[Suspect]:
    r"""Labels whose class is far less probable than another one.

    Label l of class y is suspect if :math:`\max_c p_{lc} \ge 5 \, p_{ly}`. The most suspicious come first: labels are
    ordered by :math:`p_{ly} / \max_c p_{lc}`, and ties by :math:`-\max_c p_{lc}`.

    Args:
        labeled: int64 [L], rows of X.
        codes: int64 [L], the classes given.
        out_of_fold: [L, C], out-of-fold probabilities, without class weights; NaN for labels that were never held out.
        classes: [C].
    """
    judged = np.isfinite(out_of_fold).all(axis=1)
    if not judged.any():
        return []
    rows, given, p = labeled[judged], codes[judged], out_of_fold[judged]
    own = p[np.arange(len(given)), given]
    other = p.argmax(axis=1)
    most = p[np.arange(len(given)), other]
    suspect = np.flatnonzero((most >= TIMES * own) & (other != given))
    order = suspect[np.lexsort((-most[suspect], own[suspect] / most[suspect]))]
    return [Suspect(int(rows[i]), classes[given[i]], classes[other[i]], float(own[i]), float(most[i])) for i in order]
