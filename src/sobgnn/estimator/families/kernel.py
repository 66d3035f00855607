"""Kernel regressions on the classes: with a Gaussian kernel over all columns, and in a learned metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn._system.process import limit_threads
from sobgnn.estimator.families.contract import Family, FittedFamily, Learned
from sobgnn.estimator.families.ridge import Regression, Scaling, distances, learned, merged, solved
from sobgnn.estimator.families.trees import grown
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import NOT_SAVED

_Array = npt.NDArray[np.float64]

# The factor of a regression's values before the softmax.
_SURENESS = 5.0
# Maximum number of points whose gradients the metric is learned from, the number of times it is updated, and the
# penalty over all columns.
_GRADIENTS, ROUNDS, _GAUSSIAN_PENALTY = 200, 2, 0.1
# Trees whose importances initialize the metric, and the least importance of a column (1 on average).
_TREES, _LEAST_IMPORTANCE = 32, 0.02
# Least number of labels for a metric: with fewer, some column separates the classes by chance.
_LABELS = 40
# Maximum number of multiplications with a learned metric and without, the cost of a distance and its exponential in
# these, rows predicted at once.
_MOST_WORK, _MOST_GAUSSIAN_WORK, _EXPONENTIAL, _ROWS_PER_BLOCK = 10_000_000_000, 1_000_000_000, 20, 4096


class GaussianRegression(Family):
    r"""Kernel ridge regression on the classes, one output each, with a Gaussian kernel and an unpenalized constant.

    .. math:: f(x) = b + \sum_l a_l \exp(-\|x - x_l\|^2 / F)

    with standardized columns and F the number of columns that vary: the default bandwidth of scikit-learn's support
    vector machines. Far from all labels f is b, so a class that surrounds another is recognized by its distance. Ten
    labels are enough for that; neighbors, trees and learned metrics need many more.
    """

    name: ClassVar[str] = "gaussian"
    title: ClassVar[str] = "Gaussian kernel regression"
    explained: ClassVar[str] = "similar labeled rows decide, and all columns count alike"

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether labels are held out and this is fast compared with the other families."""
        count, width = len(labels.index), points.columns.shape[1]
        work = points.count * count * (width + _EXPONENTIAL) + (labels.folds + 1) * count**3
        return labels.folds > 0 and work <= _MOST_GAUSSIAN_WORK

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Solve one regression without each fold, and one with all labels."""
        scaling = Scaling.of(points.columns)
        rows = scaling(points.columns[labels.index])
        varying = max(1, int((scaling.deviation > 0).sum()))
        stretch, bandwidth = torch.ones(rows.shape[1], dtype=torch.float64), torch.tensor([float(varying)]).double()
        with limit_threads(1):  # bitwise the same for any number of threads
            kernel = torch.exp(-distances(rows, rows).square() / varying)
            found = []
            for share in labels.shares():
                used, target, weight = _taking_part(labels, share)
                dual, constant, _ = solved(kernel[used][:, used], target, weight, _GAUSSIAN_PENALTY)
                found.append(Regression.of(rows[used], stretch, bandwidth, dual, constant, squared=True))
            points.report(self.name, 1, 1)
            return _learned(found, scaling, points, labels)


class KernelRegression(Family):
    r"""Kernel ridge regression on the classes, one output each, in a metric that weights columns.

    .. math:: f(x) = b + \sum_l a_l \, k(x, x_l), \qquad k(x, z) = \exp(-\|M^{1/2} (x - z)\| / h), \qquad
        M \propto \mathrm{diag} \sum_l \sum_c \nabla f_c(x_l) \, \nabla f_c(x_l)^\top

    M is scaled to a mean of 1, with no column below 1/1000. The constant b has no penalty. M starts as the squared
    importances of columns in extremely randomized trees, and is then updated from the gradients of the previous f at up
    to 200 labeled rows (recursive feature machines; Radhakrishnan and others, 2024). The round with the smallest
    leave-one-out error is used, or the first if it is clearly better out of fold. If few of many columns separate the
    classes, distances over all columns are uninformative, and this finds those few. Trees also find columns that
    separate the classes only together with others, or only within a range, where a first regression on equally weighted
    columns has no gradient to follow.
    """

    name: ClassVar[str] = "kernel"
    title: ClassVar[str] = "kernel regression"
    explained: ClassVar[str] = "similar labeled rows decide, and columns that separate the classes count more"

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether there are at least 40 labels to learn a metric, and this is fast compared with other families."""
        count, width = len(labels.index), points.columns.shape[1]
        learning = ROUNDS * min(count, _GRADIENTS) * labels.classes * count * width
        predicting = points.count * count * (width + _EXPONENTIAL)
        work = (labels.folds + 1) * (learning + (ROUNDS + 1) * count**3 + predicting)
        return labels.folds > 0 and count >= _LABELS and work <= _MOST_WORK

    def fit(self, points: Points, labels: Labels, before: FittedKernel | None = None) -> Learned:
        """Learn metric and regression without each fold, and from all labels.

        After an earlier fit, start from its first metric, and update it only if that fit did.
        """
        scaling = Scaling.of(points.columns)
        rows = scaling(points.columns[labels.index])
        generator = points.generator(self.name)
        chosen = generator.permutation(len(labels.index))
        rounds = ROUNDS if before is None else before.rounds
        first: list[Regression] = []
        best: list[Regression] = []
        with limit_threads(1):  # bitwise the same for any number of threads
            for number, share in enumerate(labels.shares()):
                used, target, weight = _taking_part(labels, share)
                taken = chosen[share[chosen] > 0][:_GRADIENTS]
                some = torch.from_numpy(np.cumsum(share > 0)[taken] - 1)
                metric = first_metric(points, labels, share, generator) if before is None else before.metric
                pair = learned(*merged(rows[used], target, weight, some), metric, rounds)
                first.append(pair[0])
                best.append(pair[1])
                points.report(self.name, number + 1, labels.folds + 1)
            if clearly_better(first, best, rows, labels):
                best, rounds = first, 0
            return _learned(best, scaling, points, labels, rounds, metric)


def _taking_part(labels: Labels, share: _Array) -> tuple[Tensor, Tensor, Tensor]:
    """Which labels have a weight, [L], and of those the indicators of their classes [T, C] and the weights [T]."""
    used = share > 0
    weight = torch.from_numpy(share[used] * used.sum())
    return torch.from_numpy(used), torch.from_numpy(np.eye(labels.classes)[labels.codes[used]]), weight


@dataclass(frozen=True)
class FittedKernel(FittedFamily):
    """The regression from all labels; a refit has as many updates of its metric, from the same one."""

    scaling: Scaling
    regression: Regression
    rounds: int = field(default=0, metadata=NOT_SAVED)
    metric: Any = field(default=None, metadata=NOT_SAVED)

    def predict(self, view: View) -> Tensor:
        """[M, C]."""
        with limit_threads(1):
            return probabilities(self.regression, self.scaling, view.columns).to(view.points.device)


def _learned(found: Sequence[Regression], scaling: Scaling, points: Points, labels: Labels, *kept: Any) -> Learned:
    """What regressions without each fold, and last with all labels, predict."""
    out_of_fold = labels.each_fold(
        lambda fold, held: probabilities(found[fold], scaling, points.columns[labels.index[held]])
    )
    return Learned(FittedKernel(scaling, found[-1], *kept), out_of_fold)


def probabilities(regression: Regression, scaling: Scaling, columns: npt.NDArray[np.float32]) -> Tensor:
    """Class probabilities of rows, float32 [M, C]."""
    out = torch.empty(len(columns), len(regression.constant), dtype=torch.float32)
    for start in range(0, len(columns), _ROWS_PER_BLOCK):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        out[rows] = (_SURENESS * regression(scaling(columns[rows]))).softmax(dim=1)
    return out


def first_metric(points: Points, labels: Labels, share: _Array, generator: np.random.Generator) -> Tensor:
    """The metric of the first round, [F], from the weight of each label ``share`` [L].

    It holds the squared importances, 1 on average; all are equal if no split separates the classes.
    """
    used = share > 0
    columns = points.columns[labels.index[used]]
    trees = grown("extra", _TREES, columns, labels.codes[used], share[used], generator)
    importance = np.mean([tree.feature_importances_ for tree in trees.estimators_], axis=0)
    if importance.sum() > 0:  # trees that split but gain nothing have importances of 0
        importance /= importance.sum()
    relative = (1 - _LEAST_IMPORTANCE) * len(importance) * importance + _LEAST_IMPORTANCE
    return torch.from_numpy(np.square(relative) / np.square(relative).mean())


def clearly_better(first: Sequence[Regression], best: Sequence[Regression], rows: Tensor, labels: Labels) -> bool:
    """Whether the first rounds' squared errors are smaller by two standard deviations, on out-of-fold labels.

    The metric was learned from the very rows that are then left out one by one, so the leave-one-out error of later
    rounds is too small. Out-of-fold errors show this if labels are few and all columns matter.

    Args:
        first: The regression of the first round of every fit.
        best: Those of the rounds with the smallest leave-one-out error.
        rows: The labeled rows, scaled, [L, F].
        labels: Which of them each fit does not see.
    """
    target, gain = torch.from_numpy(np.eye(labels.classes)[labels.codes]), np.zeros(len(rows))
    for fold in range(labels.folds):
        out = labels.judged & (labels.fold == fold)
        errors = [(each[fold](rows[out]) - target[out]).square().sum(dim=1).numpy() for each in (best, first)]
        gain[out] = labels.weight[out] * (errors[0] - errors[1])
    return bool(gain.sum() > 2 * np.sqrt(np.square(gain).sum()))
