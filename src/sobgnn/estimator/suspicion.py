"""Suspects: given labels that out-of-fold predictions contradict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


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
) -> list[Suspect]:
    r"""Labels whose class another one beats beyond its usual confidence: confident learning (Northcutt et al. 2021).

    With :math:`t_c` the mean probability of class c over the labels of class c, label l of class y is suspect where
    some class :math:`c \ne y` has :math:`p_{lc} \ge t_c` and :math:`p_{lc} > p_{ly}`. Ordered by
    :math:`p_{ly} - \max_c p_{lc}`.

    Args:
        labelled: int64 [L], rows of X.
        codes: int64 [L], the classes given.
        out_of_fold: [L, C], probabilities while each label was held out; NaN where it never was.
        classes: [C].
    """
    judged = np.isfinite(out_of_fold).all(axis=1)
    if not judged.any():
        return []
    rows, given, p = labelled[judged], codes[judged], out_of_fold[judged]
    own = p[np.arange(len(given)), given]
    counts = np.bincount(given, minlength=p.shape[1])
    usual = np.where(counts > 0, np.bincount(given, own, minlength=p.shape[1]) / np.maximum(counts, 1), np.inf)
    likely = np.where(p >= usual, p, -1.0)
    likely[np.arange(len(given)), given] = -1.0
    other = likely.argmax(axis=1)
    beats = likely[np.arange(len(given)), other]
    suspect = np.flatnonzero(beats > own)
    order = suspect[np.argsort(own[suspect] - beats[suspect], kind="stable")]
    return [Suspect(int(rows[i]), classes[given[i]], classes[other[i]], float(own[i]), float(beats[i])) for i in order]
