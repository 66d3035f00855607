"""Suspects: given labels that out-of-fold predictions contradict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# How many times as probable as the given class another one is, for a label to be suspect. Measured in
# results/honesty.md.
TIMES = 5.0


@dataclass(frozen=True)
class Suspect:
    """A label that looks wrong.

    Attributes:
        row: Its row in X.
        given: The label that was given.
        predicted: The class that models which did not see the label predict instead.
        probability: Of the class given, by these models.
        predicted_probability: Of the class they predict.
    """

    row: int
    given: Any
    predicted: Any
    probability: float
    predicted_probability: float


def suspect_labels(
    labelled: npt.NDArray[np.int64],
    codes: npt.NDArray[np.int64],
    out_of_fold: npt.NDArray[np.float64],
    classes: npt.NDArray[Any],
    weight: npt.NDArray[np.float64] | None = None,
) -> list[Suspect]:
    r"""Labels to which another class is preferred by far.

    Label l of class y is suspect where :math:`\max_c p_{lc} \ge 5 \, p_{ly}`. The most suspicious come first:
    ordered by :math:`p_{ly} / \max_c p_{lc}`, and where that is equal by :math:`-\max_c p_{lc}`.

    Args:
        labelled: int64 [L], rows of X.
        codes: int64 [L], the classes given.
        out_of_fold: [L, C], probabilities while each label was held out; NaN where it never was.
        classes: [C].
        weight: What each class's probability was multiplied by, [C], which is taken out; a class of weight 0 cannot be
            judged. ``None``: 1.
    """
    judged = np.isfinite(out_of_fold).all(axis=1)
    if weight is not None:
        judged &= weight[codes] > 0
        out_of_fold = np.divide(out_of_fold, weight, out=np.zeros_like(out_of_fold), where=weight > 0)
        out_of_fold = out_of_fold / out_of_fold.sum(axis=1, keepdims=True)
    if not judged.any():
        return []
    rows, given, p = labelled[judged], codes[judged], out_of_fold[judged]
    own = p[np.arange(len(given)), given]
    other = p.argmax(axis=1)
    most = p[np.arange(len(given)), other]
    suspect = np.flatnonzero((most >= TIMES * own) & (other != given))
    order = suspect[np.lexsort((-most[suspect], own[suspect] / most[suspect]))]
    return [Suspect(int(rows[i]), classes[given[i]], classes[other[i]], float(own[i]), float(most[i])) for i in order]
