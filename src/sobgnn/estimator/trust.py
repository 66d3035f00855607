"""What out-of-fold predictions show: probable accuracy, predictions to accept, better than guessing, suspect labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # the labeling page imports this module, and nothing heavy
    from sobgnn.estimator.labels import Labels

_Array = npt.NDArray[np.float64]
Outcome = Literal["better", "guessing", "unknown"]

# Out of fold, two labels predict each other, so each pair counts twice, and what is counted varies with twice the
# variance. The interval of the accuracy is that of half as many labels: on 57 tables that had no part in this, 96 % of
# 560 intervals hold the accuracy, and 92 % with a factor of 1.5 (results/honesty.md).
_TWICE = 2.0
# Chance that a threshold of acceptance fails, if labels are drawn at random; and the number of sequences of thresholds
# that are tested and share it, each from its own strictest one. Chosen on 14 tables with 60 labels, with the rule that
# no larger share of the rows is accepted than of the labels: with one sequence and without that rule, the promise was
# kept in 89 % of the draws.
RISK, _SEQUENCES = 0.1, 5
# Predictions are better than guessing up to the first p-value, and not shown to be from the second. In between, labels
# are too few to say, and so are fewer than this.
BETTER_LEVEL, _GUESSING_LEVEL, _LEAST_LABELS = 0.001, 0.05, 20
_PERMUTATIONS, _BLOCK = 10_000, 1_000_000
# Number of labels from which the normal distribution replaces permutations.
_MANY_LABELS = 1000
# A label is suspect if it is drawn at random with at least this probability. Labels are taken to be all right unless
# some wrong ones gain this much log likelihood. Chosen on 21 sets with 15 of 300 labels wrong and on the same sets with
# none (results/honesty.md): of 0.2, 0.3 and 0.5, and of 0, 1 and 2.
_SUSPECT, _EVIDENCE = 0.3, 2.0
_TEMPERATURES, _WRONG = np.geomspace(0.2, 1.5, 27), np.geomspace(0.002, 0.4, 30)
# A label is hard to predict if another class is at least this many times as probable.
HARD = 5.0


def wilson_interval(right: float, total: float) -> tuple[float, float]:
    """The 95 % score interval of a share, which stays within [0, 1]."""
    z = 1.959964
    share = right / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return center - half, center + half


def estimate_accuracy(
    out_of_fold: _Array, labels: Labels, frequencies: _Array
) -> tuple[float, tuple[float, float], _Array]:
    r"""The probable accuracy on the unlabeled points, its 95 % interval, and the weight of each judged label, [J].

    .. math:: \hat{a} = a \left( 1 - u - \frac{h}{2} \right)

    a is the accuracy on out-of-fold labels, with classes weighted by their frequencies. Classes with fewer than 3
    labels are never held out, and their accuracy is unknown. A point of a class with 2 labels, h of all points, is
    taken to be right half as often as others. Labels drawn at random that are the only ones of their class represent
    the u points whose class has no label (Good and Turing), which are never right. The interval holds everything
    between all of these wrong and those of h as often right as others.

    Args:
        out_of_fold: Probabilities of the judged labels as predictions have them, [J, C].
        labels: The labels.
        frequencies: Of the classes, [C], summing to 1.
    """
    codes = labels.codes[labels.judged]
    counts, held = (np.bincount(c, minlength=labels.classes) for c in (labels.codes, codes))
    weight = (frequencies / held.clip(min=1))[codes]
    if not len(codes):
        return float("nan"), (0.0, 1.0), weight
    known = float(weight.sum())
    unseen = 0.0 if labels.chosen else float(frequencies[(counts == 1) & (held == 0)].sum())
    half = max(0.0, 1 - known - unseen)
    right = min(1.0, float(weight @ (out_of_fold.argmax(axis=1) == codes)) / known)
    total = known**2 / float(np.square(weight).sum()) / _TWICE
    low, high = wilson_interval(right * total, total)
    bounds = known * low, min(1.0, (known + half) * high + unseen / 2)
    return right * min(1.0, known + half / 2), bounds, weight


@dataclass(frozen=True)
class Acceptance:
    """Which predictions may be accepted.

    Attributes:
        target: Share of accepted predictions that should be right.
        threshold: Least confidence of an accepted prediction; ``None`` if the labels support none.
        labels: Number of out-of-fold labels that the threshold is based on.
        accepted: How many of them reach the threshold.
        wrong: How many of the accepted ones are wrong.
        needed: Least number of labels, all predicted right, that supports a threshold.
    """

    target: float
    threshold: float | None
    labels: int
    accepted: int
    wrong: int
    needed: int

    def accepts(self, confidence: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
        """Whether each prediction [M] of this confidence is accepted."""
        return np.asarray(confidence >= (np.inf if self.threshold is None else self.threshold))


def find_acceptance(
    confidence: npt.NDArray[np.floating],
    right: npt.NDArray[np.bool_],
    target: float,
    predicted: npt.NDArray[np.floating] | None = None,
    risk: float = RISK,
) -> Acceptance:
    r"""The lowest threshold at which at least a share ``target`` of accepted predictions is right.

    With n labels at or above a threshold and e of them wrong, the threshold passes if the Clopper-Pearson bound

    .. math:: \Pr[\mathrm{Bin}(n, 1 - \mathrm{target}) \le e] \le \mathrm{risk} / S

    holds. Thresholds are tested from strict to loose, up to the first failure (fixed-sequence testing), in S sequences
    that begin at different strictness. So, except with probability ``risk``, all thresholds that pass are valid,
    however few labels there are; with too few, none passes. This assumes that labels were drawn at random from the
    points that are predicted.

    Args:
        confidence: [L], of the out-of-fold predictions.
        right: bool [L], whether they are right.
        target: Between 0 and 1.
        predicted: Confidence of the predictions to decide on, [M]. The threshold is raised until no larger share of
            them is accepted than of the labels: a model that learned from all labels is more confident than those of
            the folds.
        risk: Chance that the bound fails.
    """
    from scipy.stats import binom

    if not 0 < target < 1:
        raise ValueError(f"The share to be right must be between 0 and 1, but got {target:g}. Try 0.95.")
    level, total = risk / _SEQUENCES, len(confidence)
    needed = int(np.ceil(np.log(level) / np.log(target)))
    order = np.argsort(-np.asarray(confidence, dtype=np.float64), kind="stable")
    values = np.asarray(confidence, dtype=np.float64)[order]
    wrong = np.cumsum(~np.asarray(right, dtype=bool)[order])
    # Of equal confidences only the last is a threshold: ties cannot be separated.
    last = np.flatnonzero(np.append(values[1:] < values[:-1], True)) if total else np.zeros(0, np.int64)
    counts = last + 1
    passes = binom.cdf(wrong[last], counts, 1 - target) <= level
    best = -1
    for begin in np.linspace(needed, max(needed, total), _SEQUENCES):
        place = int(np.searchsorted(counts, round(begin)))
        while place < len(counts) and passes[place]:
            best = max(best, place)
            place += 1
    if best < 0:
        return Acceptance(target, None, total, 0, 0, needed)
    threshold = float(values[last[best]])
    if predicted is not None and len(predicted):
        ranked = np.sort(np.asarray(predicted, dtype=np.float64))[::-1]
        most = int(len(ranked) * counts[best] / total)
        threshold = max(threshold, float(ranked[most - 1]) if most else float(np.nextafter(ranked[0], 2)))
    return Acceptance(target, threshold, total, int(counts[best]), int(wrong[last[best]]), needed)


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
    normal distribution with the mean and variance of s over all permutations (Hoeffding 1951). Out of fold, the score
    of unrelated labels varies with twice the variance, so its distance from the mean, in standard deviations, is
    divided by :math:`\sqrt{2}`. A constant guess has the same score under every permutation, so it never passes.

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
    mean_of_row = score @ (counts / total)
    mean = float(mean_of_row.mean())
    centered = score - mean_of_row[:, None] - score.mean(axis=0)[None] + mean
    variance = float((np.square(centered) @ counts).sum() / max(1, total - 1))
    gain = float(score[np.arange(total), codes].sum()) - total * mean
    away = -np.inf if variance <= 1e-12 * total else gain / float(np.sqrt(variance))
    if total < _MANY_LABELS:
        reached = _permutations_reaching(score, codes, seed)
        distance = float(norm.isf((reached + 1) / (_PERMUTATIONS + 1)))
        away = distance if reached else max(away, distance)
    p_value = float(norm.sf(away / np.sqrt(_TWICE)))
    outcome: Outcome = "guessing"
    if p_value <= BETTER_LEVEL:
        outcome = "better"
    elif p_value < _GUESSING_LEVEL or total < _LEAST_LABELS or np.count_nonzero(counts) < 2:
        outcome = "unknown"
    return Verdict(outcome, float(right.mean()), float(counts.max() / total), float(recall.mean()), p_value)


def _permutations_reaching(score: _Array, codes: npt.NDArray[np.int64], seed: int) -> int:
    """The number of random permutations whose summed score is at least that of the codes."""
    generator, rows = np.random.default_rng(seed), np.arange(len(codes))
    own = score[rows, codes].sum()
    reached, size = 0, max(1, _BLOCK // len(codes))
    for start in range(0, _PERMUTATIONS, size):
        block = np.tile(codes, (min(size, _PERMUTATIONS - start), 1))
        drawn = score[rows, generator.permuted(block, axis=1)].sum(axis=1)
        reached += int((drawn >= own - 1e-9).sum())
    return reached


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
    labeled: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], out_of_fold: _Array, classes: npt.NDArray[Any]
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


def _probably_wrong(p: _Array, given: npt.NDArray[np.int64]) -> _Array:
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


def hard_labels(codes: npt.NDArray[np.int64], out_of_fold: _Array) -> npt.NDArray[np.bool_]:
    """Which labels [L] have another class that is at least 5 times as probable out of fold [L, C]."""
    own = out_of_fold[np.arange(len(codes)), codes]
    return np.asarray(out_of_fold.max(axis=1, initial=0) >= HARD * own)
