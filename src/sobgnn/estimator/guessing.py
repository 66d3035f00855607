"""Whether out-of-fold predictions are better than guessing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Outcome = Literal["better", "guessing", "unknown"]
# Predictions are better than guessing up to the first p-value, and not shown to be from the second; in between, labels
# are too few to say.
BETTER_LEVEL, GUESSING_LEVEL = 0.001, 0.05
# Number of labels below which a test that does not pass is inconclusive.
LEAST_LABELS = 20
_PERMUTATIONS, _BLOCK = 10_000, 1_000_000
# Number of labels from which the normal distribution replaces permutations.
_MANY_LABELS = 1000


@dataclass(frozen=True)
class Verdict:
    """Whether predictions are better than guessing.

    Attributes:
        outcome: ``"better"``, ``"guessing"``, or ``"unknown"`` if labels are too few or of one class.
        accuracy: Share of labels that are predicted correctly; NaN without labels, like the next two.
        majority: Share of the most frequent class, the accuracy of the best constant guess.
        balanced: Mean recall over the classes that have labels.
        p_value: Chance of a score at least as good if labels were unrelated to the points.
    """

    outcome: Outcome
    accuracy: float
    majority: float
    balanced: float
    p_value: float


def compare_with_chance(codes: npt.NDArray[np.int64], probability: npt.NDArray[np.floating], seed: int = 0) -> Verdict:
    r"""Compare the score of predictions on the labels with their scores on permuted labels.

    .. math:: s(y) = \frac{1}{L} \sum_l \left( [\arg\max_c p_{lc} = y_l] + p_{l y_l} \right)

    The share of permutations of the labels y whose score s is at least that of the labels themselves would be the
    p-value of predictions made without these labels. If none of 10,000 is, and from 1,000 labels, it comes from the
    normal distribution with the mean and variance of s over all permutations. Out of fold, each label is predicted from
    the others: two that agree by chance predict each other, so each such pair counts twice, and the score of unrelated
    labels varies with twice the variance. So its distance from the mean, in standard deviations, is divided by
    :math:`\sqrt{2}`. A constant guess has the same score under every permutation, so it never passes.

    Args:
        codes: int64 [L], labels.
        probability: [L, C], out-of-fold predictions.
        seed: Seed of the permutations.
    """
    from scipy.stats import norm

    total = len(codes)
    if not total:
        return Verdict("unknown", float("nan"), float("nan"), float("nan"), 1.0)
    classes = probability.shape[1]
    counts = np.bincount(codes, minlength=classes)
    predicted = probability.argmax(axis=1)
    right = predicted == codes
    recall = np.bincount(codes, right, minlength=classes)[counts > 0] / counts[counts > 0]
    score = np.asarray(probability, dtype=np.float64) + np.eye(classes)[predicted]
    away = _normal(score, codes, counts)
    if total < _MANY_LABELS:
        permuted, reached = _permuted(score, codes, seed)
        distance = float(norm.isf(permuted))
        away = distance if reached else max(away, distance)
    p_value = float(norm.sf(away / np.sqrt(2)))
    outcome: Outcome = "guessing"
    if p_value <= BETTER_LEVEL:
        outcome = "better"
    elif p_value < GUESSING_LEVEL or total < LEAST_LABELS or np.count_nonzero(counts) < 2:
        outcome = "unknown"
    return Verdict(outcome, float(right.mean()), float(counts.max() / total), float(recall.mean()), p_value)


def _permuted(score: npt.NDArray[np.float64], codes: npt.NDArray[np.int64], seed: int) -> tuple[float, int]:
    """The share (with the identity) and the number of permutations whose summed score is at least that of the codes."""
    generator = np.random.default_rng(seed)
    rows = np.arange(len(codes))
    own = score[rows, codes].sum()
    reached, size = 0, max(1, _BLOCK // len(codes))
    for start in range(0, _PERMUTATIONS, size):
        block = np.tile(codes, (min(size, _PERMUTATIONS - start), 1))
        drawn = score[rows, generator.permuted(block, axis=1)].sum(axis=1)
        reached += int((drawn >= own - 1e-9).sum())
    return (reached + 1) / (_PERMUTATIONS + 1), reached


def _normal(score: npt.NDArray[np.float64], codes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float:
    """The distance of the sum from its mean under permutations, in standard deviations (Hoeffding 1951)."""
    total = len(codes)
    share = counts / total
    mean_of_row = score @ share
    mean_of_class = score.mean(axis=0)
    mean = float(mean_of_row.mean())
    centered = score - mean_of_row[:, None] - mean_of_class[None] + mean
    variance = float((np.square(centered) @ counts).sum() / (total - 1))
    gain = float(score[np.arange(total), codes].sum()) - total * mean
    if variance <= 1e-12 * total:
        return -np.inf
    return gain / float(np.sqrt(variance))
