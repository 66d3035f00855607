"""Whether out-of-fold predictions are better than guessing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

BETTER, GUESSING, UNKNOWN = "better", "guessing", "unknown"
# Chance of taking noise for knowledge, of each of the two tests.
LEVEL = 0.005
# Labels below which a test that does not pass says nothing.
LEAST_LABELS = 20
_PERMUTATIONS = 4000


@dataclass(frozen=True)
class Verdict:
    """Whether predictions are better than guessing.

    Attributes:
        outcome: ``"better"``, ``"guessing"``, or ``"unknown"`` where labels are too few, or of one class, to say.
        accuracy: Share of labels that are predicted.
        majority: Share of the most frequent class, the accuracy of the best constant guess.
        balanced: Mean recall over the classes.
        accuracy_p: Chance of at least this accuracy where the best constant guess is as good.
        balanced_p: Chance of at least this balanced accuracy where labels have nothing to do with predictions.
    """

    outcome: Literal["better", "guessing", "unknown"]
    accuracy: float
    majority: float
    balanced: float
    accuracy_p: float
    balanced_p: float


def judge(codes: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], classes: int, seed: int = 0) -> Verdict:
    r"""Compare predictions with the best constant guess, and with labels in random order.

    Better than guessing is what passes one of two tests: the accuracy exceeds the share of the most frequent class, by
    the binomial test of McNemar on labels that only one of prediction and constant guess gets right; or the balanced
    accuracy exceeds that of the same predictions with the labels permuted.

    Args:
        codes: int64 [L], labels.
        predicted: int64 [L], predicted while each was held out.
        classes: C.
        seed: Of the permutations.
    """
    from scipy.stats import binom

    total = len(codes)
    if not total:
        return Verdict(UNKNOWN, float("nan"), float("nan"), float("nan"), 1.0, 1.0)  # type: ignore[arg-type]
    counts = np.bincount(codes, minlength=classes)
    common = int(counts.argmax())
    right = predicted == codes
    gained, lost = int((right & (codes != common)).sum()), int((~right & (codes == common)).sum())
    accuracy_p = float(binom.sf(gained - 1, gained + lost, 0.5)) if gained else 1.0
    weight = 1 / counts[codes] / np.count_nonzero(counts)
    balanced = float((right * weight).sum())
    generator = np.random.default_rng(seed)
    order = generator.permuted(np.tile(np.arange(total), (_PERMUTATIONS, 1)), axis=1)
    chance = ((predicted == codes[order]) * weight[order]).sum(axis=1)
    balanced_p = float((1 + (chance >= balanced - 1e-9).sum()) / (1 + _PERMUTATIONS))
    outcome = GUESSING
    if min(accuracy_p, balanced_p) <= LEVEL:
        outcome = BETTER
    elif total < LEAST_LABELS or np.count_nonzero(counts) < 2:
        outcome = UNKNOWN
    return Verdict(outcome, float(right.mean()), float(counts[common] / total), balanced, accuracy_p, balanced_p)  # type: ignore[arg-type]
