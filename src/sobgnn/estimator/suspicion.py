"""Suspects: given labels that out-of-fold predictions contradict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# A label is suspect if it is drawn at random with at least this probability. Labels are taken to be all right unless
# some wrong ones gain this much log likelihood. Chosen on 21 sets with 15 of 300 labels wrong and on the same sets with
# none (results/honesty.md): of 0.2, 0.3 and 0.5, and of 0, 1 and 2.
_SUSPECT, _EVIDENCE = 0.3, 2.0
_TEMPERATURES, _WRONG = np.geomspace(0.2, 1.5, 27), np.geomspace(0.002, 0.4, 30)
# A label is hard to predict if another class is at least this many times as probable.
HARD = 5.0


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
    r"""Labels that are probably wrong, at most as many as are expected to be.

    Labels are taken to be drawn from the predicted probabilities p at a temperature T, but for a share e that is drawn
    from all C classes alike:

    .. math:: \prod_l \left( (1 - e) \, p^{(1/T)}_{l y_l} + \frac{e}{C} \right)

    with the most likely T and e; e is 0 unless a larger one gains 2 of log likelihood. Labels that merely are hard to
    predict make T larger; wrong ones, which even a sure model does not expect, make e larger. Label l is wrong with the
    probability

    .. math:: w_l = \frac{e / C}{(1 - e) \, p^{(1/T)}_{l y_l} + e / C} \left( 1 - p^{(1/T)}_{l y_l} \right)

    Suspect are those with w of at least 0.3 that are predicted to be of another class, the largest w first, and at most
    :math:`\sum_l w_l` of them.

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
    wrong = _probably_wrong(p, given)
    other, every = p.argmax(axis=1), np.arange(len(given))
    order = np.lexsort((-p[every, other], -wrong))
    found = order[((wrong >= _SUSPECT) & (other != given))[order]][: int(wrong.sum())]
    return [
        Suspect(int(rows[i]), classes[given[i]], classes[other[i]], float(p[i, given[i]]), float(p[i, other[i]]))
        for i in found
    ]


def _probably_wrong(p: npt.NDArray[np.float64], given: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The w of :func:`suspect_labels`, [L]."""
    logits = np.log(p.clip(min=1e-12))
    logits -= logits.max(axis=1, keepdims=True)
    random, best, result = _WRONG / p.shape[1], -np.inf, np.zeros(len(p))
    sure = -np.inf  # the log likelihood if no label is wrong
    for temperature in _TEMPERATURES:
        powered = np.exp(logits / temperature)
        own = powered[np.arange(len(p)), given] / powered.sum(axis=1)
        sure = max(sure, float(np.log(own.clip(min=1e-300)).sum()))
        mixed = np.log((1 - _WRONG) * own[:, None] + random).sum(axis=0)
        at = int(mixed.argmax())
        if mixed[at] > best:
            best, e = float(mixed[at]), _WRONG[at]
            result = random[at] / ((1 - e) * own + random[at]) * (1 - own)
    return result if best >= sure + _EVIDENCE else np.zeros(len(p))


def hard_labels(codes: npt.NDArray[np.int64], out_of_fold: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which labels [L] have another class that is at least 5 times as probable out of fold [L, C]."""
    own = out_of_fold[np.arange(len(codes)), codes]
    return np.asarray(out_of_fold.max(axis=1, initial=0) >= HARD * own)
