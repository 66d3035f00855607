"""Which predictions to accept without review: a threshold on confidence that bounds their error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Chance that the bound fails, if labels are drawn at random.
RISK = 0.1
# Number of sequences of thresholds that are tested, each from its own strictest threshold; they share the risk. Chosen
# on 14 tables with 60 labels, with the rule that no larger share of the rows is accepted than of the labels: with one
# sequence and without that rule, the promise was kept in 89 % of the draws.
_SEQUENCES = 5


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
        if self.threshold is None:
            return np.zeros(len(confidence), dtype=bool)
        return np.asarray(confidence >= self.threshold)


def least_labels(target: float, risk: float = RISK) -> int:
    """Least number of labels, all predicted right, that supports a threshold."""
    return int(np.ceil(np.log(risk / _SEQUENCES) / np.log(target)))


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
    level = risk / _SEQUENCES
    needed = least_labels(target, risk)
    values = np.sort(np.asarray(confidence, dtype=np.float64))[::-1]
    order = np.argsort(-np.asarray(confidence, dtype=np.float64), kind="stable")
    wrong = np.cumsum(~np.asarray(right, dtype=bool)[order])
    total = len(values)
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
