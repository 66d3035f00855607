"""Kernel regressions on the classes: with a Gaussian kernel over all columns, and in a learned metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn._system.process import at_most
from sobgnn.estimator.families.contract import LARGEST_WEIGHT, Graphs, Learned
from sobgnn.estimator.families.ridge import SURENESS, Scaling, distances, solved
from sobgnn.estimator.families.trees import grown
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, Sizes, View
from sobgnn.estimator.state import NOT_SAVED, check_array

# Maximum number of points whose gradients the metric is learned from, the number of times it is updated, and the least
# weight of a column.
_GRADIENTS, ROUNDS, _LEAST = 200, 2, 1e-3
# The bandwidth, in units of the median distance, and the penalties in a learned metric and over all columns.
_BANDWIDTH, _PENALTY, _GAUSSIAN_PENALTY = 2.0, 0.03, 0.1
# Trees whose importances initialize the metric, and the least importance of a column (1 on average).
_TREES, _LEAST_IMPORTANCE = 32, 0.02
# Least number of labels for a metric: with fewer, some column separates the classes by chance.
_LABELS = 40
# Maximum number of multiplications with a learned metric and without, the cost of a distance and its exponential in
# these, rows predicted at once.
_MOST_WORK, _MOST_GAUSSIAN_WORK, _EXPONENTIAL, _ROWS_PER_BLOCK = 10_000_000_000, 1_000_000_000, 20, 4096
# Scaled rows that are closer than this are equal: rounding of products can make a distance of 0 this large.
_TINY = 1e-5


class GaussianRegression:
    r"""Kernel ridge regression on the classes, one output each, with a Gaussian kernel and an unpenalized constant.

    .. math:: f(x) = b + \sum_l a_l \exp(-\|x - x_l\|^2 / F)

    with standardized columns and F the number of columns that vary: the default bandwidth of scikit-learn's support
    vector machines. Far from all labels f is b, so a class that surrounds another is recognized by its distance. Ten
    labels are enough for that; neighbors, trees and learned metrics need many more.
    """

    name: ClassVar[str] = "gaussian"
    graphs: ClassVar[Graphs] = "none"

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether labels are held out and this is fast compared with the other families."""
        count, width = len(labels.index), points.columns.shape[1]
        work = points.count * count * (width + _EXPONENTIAL) + (labels.folds + 1) * count**3
        return labels.folds > 0 and work <= _MOST_GAUSSIAN_WORK

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Solve one regression without each fold, and one with all labels."""
        scaling = Scaling.of(points.columns)
        rows = scaling(points.columns[labels.index])
        varying = max(1, int((scaling.deviation > 0).sum()))
        stretch, bandwidth = torch.ones(rows.shape[1], dtype=torch.float64), torch.tensor([float(varying)]).double()
        with at_most(1):  # bitwise the same for any number of threads
            kernel = torch.exp(-distances(rows, rows).square() / varying)
            found = []
            for share in labels.shares():
                used = torch.from_numpy(share > 0)
                weight = torch.from_numpy(share)[used] * used.sum()
                target = torch.from_numpy(np.eye(labels.classes)[labels.codes])[used]
                dual, constant, _ = solved(kernel[used][:, used], target, weight, _GAUSSIAN_PENALTY)
                found.append(Regression.of(rows[used], stretch, bandwidth, dual, constant, squared=True))
        points.report(self.name, 1, 1)
        return _learned(found, scaling, points, labels)


class KernelRegression:
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
    graphs: ClassVar[Graphs] = "none"

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether there are at least 40 labels to learn a metric, and this is fast compared with other families."""
        count, width = len(labels.index), points.columns.shape[1]
        learning = ROUNDS * min(count, _GRADIENTS) * labels.classes * count * width
        predicting = points.count * count * (width + _EXPONENTIAL)
        work = (labels.folds + 1) * (learning + (ROUNDS + 1) * count**3 + predicting)
        return labels.folds > 0 and count >= _LABELS and work <= _MOST_WORK

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Learn metric and regression without each fold, and from all labels."""
        return self._fit(points, labels, ROUNDS)

    def refit(self, points: Points, labels: Labels, before: FittedKernel) -> Learned:
        """Learn from all labels, starting from the earlier first metric, and update it only if the fit did."""
        return self._fit(points, labels, before.rounds, before.metric)

    def _fit(self, points: Points, labels: Labels, rounds: int, known: Tensor | None = None) -> Learned:
        scaling = Scaling.of(points.columns)
        rows = scaling(points.columns[labels.index])
        generator = points.generator(self.name)
        chosen = generator.permutation(len(labels.index))
        first: list[Regression] = []
        best: list[Regression] = []
        with at_most(1):  # bitwise the same for any number of threads
            for number, share in enumerate(labels.shares()):
                used = share > 0
                some = torch.from_numpy(np.cumsum(used)[chosen[used[chosen]][:_GRADIENTS]] - 1)
                weight = torch.from_numpy(share[used] * used.sum())
                target = torch.from_numpy(np.eye(labels.classes)[labels.codes[used]])
                metric = first_metric(points, labels, share, generator) if known is None else known
                pair = learned(*merged(rows[torch.from_numpy(used)], target, weight, some), metric, rounds)
                first.append(pair[0])
                best.append(pair[1])
                points.report(self.name, number + 1, labels.folds + 1)
            if clearly_better(first, best, rows, labels):
                best, rounds = first, 0
        return _learned(best, scaling, points, labels, rounds, metric)


@dataclass(frozen=True)
class Regression:
    """A kernel regression; all float64.

    Args:
        rows: The labeled rows, scaled, times the root of the metric, [L, F].
        stretch: :math:`M^{1/2}`, [F].
        bandwidth: h, or F, what distances or squared distances are divided by, [1].
        dual: a, [L, C].
        constant: b, [C].
        squared: Whether distances are squared, as in a Gaussian kernel.
    """

    rows: npt.NDArray[np.float64]
    stretch: npt.NDArray[np.float64]
    bandwidth: npt.NDArray[np.float64]
    dual: npt.NDArray[np.float64]
    constant: npt.NDArray[np.float64]
    squared: bool = False

    @classmethod
    def of(cls, *parts: Tensor, squared: bool = False) -> Regression:
        """The regression of these tensors, in the order of the fields."""
        # Contiguous, as they are saved: products of other layouts differ in the last digits.
        rows, stretch, bandwidth, dual, constant = (part.contiguous().numpy() for part in parts)
        return cls(rows, stretch, bandwidth, dual, constant, squared)

    def __call__(self, z: Tensor) -> Tensor:
        """f of scaled rows z [M, F], [M, C]."""
        rows, stretch, bandwidth, dual, constant = (
            torch.from_numpy(part) for part in (self.rows, self.stretch, self.bandwidth, self.dual, self.constant)
        )
        distance = distances(z * stretch, rows)
        kernel = torch.exp(-(distance.square() if self.squared else distance) / bandwidth)
        return kernel @ dual + constant


@dataclass(frozen=True)
class FittedKernel:
    """The regression from all labels.

    Args:
        scaling: The columns' units.
        regression: What was learned.
        rounds: Maximum number of updates of its metric, which a refit repeats.
        metric: The metric that it started from, which a refit starts from too.
    """

    scaling: Scaling
    regression: Regression
    rounds: int = field(default=0, metadata=NOT_SAVED)
    metric: Tensor | None = field(default=None, metadata=NOT_SAVED)

    def predict(self, view: View) -> Tensor:
        """[M, C]."""
        with at_most(1):
            return probabilities(self.regression, self.scaling, view.columns).to(view.points.device)

    def check(self, sizes: Sizes) -> None:
        """Check shapes and ranges."""
        own, count = self.regression, len(self.regression.rows)
        check_array(self.scaling.center, (sizes.columns,), "kernel regression")
        check_array(self.scaling.deviation, (sizes.columns,), "kernel regression")
        check_array(own.rows, (count, sizes.columns), "kernel regression", most=LARGEST_WEIGHT)
        check_array(own.stretch, (sizes.columns,), "kernel regression", most=LARGEST_WEIGHT)
        check_array(own.bandwidth, (1,), "kernel regression", most=LARGEST_WEIGHT)
        check_array(own.dual, (count, sizes.classes), "kernel regression", most=LARGEST_WEIGHT)
        check_array(own.constant, (sizes.classes,), "kernel regression", most=LARGEST_WEIGHT)
        if not (own.bandwidth > 0).all():
            raise ValueError("its kernel regression has no bandwidth")


def _learned(found: Sequence[Regression], scaling: Scaling, points: Points, labels: Labels, *kept: Any) -> Learned:
    """What regressions without each fold, and last with all labels, predict."""
    with at_most(1):
        out_of_fold = labels.each_fold(
            lambda fold, held: probabilities(found[fold], scaling, points.columns[labels.index[held]])
        )
    return Learned(FittedKernel(scaling, found[-1], *kept), out_of_fold)


def probabilities(regression: Regression, scaling: Scaling, columns: npt.NDArray[np.float32]) -> Tensor:
    """Class probabilities of rows, float32 [M, C]."""
    out = torch.empty(len(columns), len(regression.constant), dtype=torch.float32)
    for start in range(0, len(columns), _ROWS_PER_BLOCK):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        out[rows] = (SURENESS * regression(scaling(columns[rows]))).softmax(dim=1)
    return out


def first_metric(
    points: Points, labels: Labels, share: npt.NDArray[np.float64], generator: np.random.Generator
) -> Tensor:
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


def merged(rows: Tensor, target: Tensor, weight: Tensor, some: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The arguments of :func:`learned`, with equal rows merged into one of their mean target and summed weight.

    With the same kernel the regression is the same, but a row that is left out is not predicted from its own copy.
    """
    unique, place = torch.unique(rows, dim=0, return_inverse=True)
    if len(unique) == len(rows):
        return rows, target, weight, some
    total = weight.new_zeros(len(unique)).index_add_(0, place, weight)
    summed = target.new_zeros(len(unique), target.shape[1]).index_add_(0, place, weight.unsqueeze(1) * target)
    return unique, summed / total.unsqueeze(1), total, torch.unique(place[some])


def learned(
    rows: Tensor, target: Tensor, weight: Tensor, some: Tensor, metric: Tensor, rounds: int
) -> tuple[Regression, Regression]:
    """The regression of the first round, and that of the round with the smallest leave-one-out error; all float64.

    Args:
        rows: Scaled, [L, F].
        target: Indicators of their classes, [L, C].
        weight: Weight of each row, [L], 1 on average over the labels.
        some: int64, rows whose gradients the metric is learned from.
        metric: The metric to start from, [F].
        rounds: Number of updates of the metric.
    """
    width = rows.shape[1]
    found: list[Regression] = []
    errors: list[float] = []
    while True:
        stretch = metric.sqrt()
        moved = rows * stretch
        distance = distances(moved, moved)
        bandwidth = _BANDWIDTH * typical(distance)
        kernel = torch.exp(-distance / bandwidth)
        dual, constant, error = solved(kernel, target, weight, _PENALTY)
        found.append(Regression.of(moved, stretch, bandwidth.reshape(1), dual, constant))
        errors.append(error)
        if len(found) > rounds:
            break
        pull = kernel / (bandwidth * distance.masked_fill(distance < _TINY, float("inf")))
        metric = gradients(rows, pull[some], dual, some, metric).flatten(0, 1).square().sum(dim=0)
        total = metric.sum()
        if not total > 0:
            break
        metric = metric * (width / total) + _LEAST
    return found[0], found[errors.index(min(errors))]


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


def gradients(rows: Tensor, pull: Tensor, dual: Tensor, some: Tensor, metric: Tensor) -> Tensor:
    r"""Gradients of every class at some rows, [C, S, F].

    .. math:: \nabla f_c(x) = -M \sum_l a_{lc} \frac{k(x, x_l)}{h \, \|M^{1/2} (x - x_l)\|} (x - x_l),

    with 0 for equal rows. ``pull`` [S, L] is the fraction.
    """
    weighted = pull * dual.t().unsqueeze(1)
    return (weighted @ rows - weighted.sum(dim=2, keepdim=True) * rows[some]) * metric


def typical(distance: Tensor) -> Tensor:
    """The median distance of rows or, if that is 0, the mean distance of distinct rows; 1 if all are equal."""
    apart = distance[~torch.eye(len(distance), dtype=torch.bool)]
    different = apart[apart > _TINY]
    if not len(different):
        return torch.ones((), dtype=distance.dtype)
    median = apart.median()
    return median if median > _TINY else different.mean()
