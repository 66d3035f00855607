"""Kernel regression on the classes in a learned metric: columns that separate the classes count more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import KeptSignals
from sobgnn.estimator.families.ridge import SURENESS, Scaling, distances, restored, solved
from sobgnn.estimator.families.trees import grown
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.runtime.process import at_most

# Maximum number of points whose gradients the metric is learned from, and the least weight of a column.
_GRADIENTS, _LEAST = 200, 1e-3
# The bandwidth, in units of the median distance, and the penalty.
_BANDWIDTH, _PENALTY = 2.0, 0.03
# Trees whose importances initialize the metric, and the least importance of a column (1 on average).
_TREES, _LEAST_IMPORTANCE = 32, 0.02
# Least number of labels: with fewer, some column separates the classes by chance.
_LABELS = 40
# Maximum number of multiplications, the cost of a distance and its exponential in these, columns up to which a full
# matrix is learned, rows predicted at once.
_MOST_WORK, _EXPONENTIAL, _MOST_COLUMNS, _ROWS_PER_BLOCK = 10_000_000_000, 20, 150, 4096
# Scaled rows that are closer than this are equal: rounding of products can make a distance of 0 this large.
_TINY = 1e-5


class KernelRegression:
    r"""Kernel ridge regression on the classes, one output each, in a metric that weights columns.

    .. math:: f(x) = b + \sum_l a_l \, k(x, x_l), \qquad k(x, z) = \exp(-\|M^{1/2} (x - z)\| / h), \qquad
        M \propto \sum_l \sum_c \nabla f_c(x_l) \, \nabla f_c(x_l)^\top

    Only the diagonal of M is kept, scaled to a mean of 1, with no column below 1/1000. The constant b has no penalty:
    far from all labels f is b, so a class that surrounds another is recognized by its distance. M starts as the squared
    importances of columns in extremely randomized trees, and is then updated from the gradients of the previous f at up
    to 200 labeled rows (recursive feature machines; Radhakrishnan and others, 2024). The round with the smallest
    leave-one-out error is used, or the first if it is clearly better out of fold. If few of many columns separate the
    classes, distances over all columns are uninformative, and this finds those few. Trees also find columns that
    separate the classes only together with others, or only within a range, where a first regression on equally weighted
    columns has no gradient to follow.
    """

    name: ClassVar[str] = "kernel"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True
    oblique: ClassVar[bool] = False
    # Number of updates of the metric.
    rounds: ClassVar[int] = 2

    @classmethod
    def worth_it(cls, problem: Problem, labels: Labels) -> bool:
        """Whether there are at least 40 labels to learn a metric, and this is fast compared with other families."""
        count, width = len(labels.index), problem.columns.shape[1]
        learning = cls.rounds * min(count, _GRADIENTS) * labels.classes * count * width
        predicting = problem.count * count * (width + _EXPONENTIAL)
        work = (labels.folds + 1) * (learning + (cls.rounds + 1) * count**3 + predicting)
        narrow = not cls.oblique or width <= _MOST_COLUMNS
        return labels.folds > 0 and count >= _LABELS and work <= _MOST_WORK and narrow

    def fit(self, problem: Problem, labels: Labels) -> FittedKernel:
        """Learn metric and regression without each fold, and from all labels."""
        return self._fit(problem, labels, self.rounds)

    def refit(self, problem: Problem, labels: Labels, before: FittedKernel) -> FittedKernel:
        """Learn from all labels, starting from the earlier first metric, and update it only if the fit did."""
        return self._fit(problem, labels, before.rounds, before.metric)

    def _fit(self, problem: Problem, labels: Labels, rounds: int, known: Tensor | None = None) -> FittedKernel:
        scaling = Scaling.of(problem.columns)
        rows = scaling(problem.columns[labels.index])
        generator = problem.generator(self.name)
        chosen = generator.permutation(len(labels.index))
        first: list[Regression] = []
        best: list[Regression] = []
        with at_most(1):  # bitwise the same for any number of threads
            for signal, share in enumerate(labels.shares()):
                used = share > 0
                some = torch.from_numpy(np.cumsum(used)[chosen[used[chosen]][:_GRADIENTS]] - 1)
                weight = torch.from_numpy(share[used] * used.sum())
                target = torch.from_numpy(np.eye(labels.classes)[labels.codes[used]])
                metric = self._first_metric(problem, labels, share, generator) if known is None else known
                points = merged(rows[torch.from_numpy(used)], target, weight, some)
                pair = learned(*points, metric, rounds)
                first.append(pair[0])
                best.append(pair[1])
                problem.tell(self.name, signal + 1, labels.folds + 1)
            if clearly_better(first, best, rows, labels):
                best, rounds = first, 0
            signals = torch.stack([_probabilities(each, scaling, problem.columns) for each in best])
        return FittedKernel(scaling, best[-1], rounds, metric, signals=signals.to(problem.device))

    def _first_metric(
        self, problem: Problem, labels: Labels, share: npt.NDArray[np.float64], generator: np.random.Generator
    ) -> Tensor:
        """The metric of the first round, [F], or [F, F] for a matrix; ``share`` [L] is the weight of each label.

        It holds the squared importances, 1 on average; all are equal if no split separates the classes.
        """
        used = share > 0
        columns = problem.columns[labels.index[used]]
        trees = grown("extra", _TREES, columns, labels.codes[used], share[used], generator)
        importance = np.mean([tree.feature_importances_ for tree in trees.estimators_], axis=0)
        if importance.sum() > 0:  # trees that split but gain nothing have importances of 0
            importance /= importance.sum()
        relative = (1 - _LEAST_IMPORTANCE) * len(importance) * importance + _LEAST_IMPORTANCE
        return torch.from_numpy(np.square(relative) / np.square(relative).mean())

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedKernel:
        """Restore from the regression on all labels."""
        count, width, classes = len(arrays["rows"]), problem.columns.shape[1], problem.classes
        shapes = {
            "rows": (count, width), "stretch": (width, width) if self.oblique else (width,), "bandwidth": (1,),
            "dual": (count, classes), "constant": (classes,),
        }  # fmt: skip
        scaling, parts = restored(arrays, width, shapes, "kernel regression")
        if not (parts["bandwidth"] > 0).all():
            raise ValueError("its kernel regression has no bandwidth")
        return FittedKernel(scaling, Regression(*(parts[name] for name in shapes)))


class ObliqueKernelRegression(KernelRegression):
    """The same with a full matrix M, which starts as the identity: it weights directions instead of columns.

    This helps if classes depend on sums and differences of columns, and no single column separates them.
    """

    name: ClassVar[str] = "oblique"
    oblique: ClassVar[bool] = True
    rounds: ClassVar[int] = 3

    def _first_metric(
        self, problem: Problem, labels: Labels, share: npt.NDArray[np.float64], generator: np.random.Generator
    ) -> Tensor:
        return torch.eye(problem.columns.shape[1], dtype=torch.float64)


@dataclass(frozen=True)
class Regression:
    """What one signal learned; all float64.

    Args:
        rows: The labeled rows, scaled, times the root of the metric, [L, F].
        stretch: :math:`M^{1/2}`, [F], or [F, F] for a matrix.
        bandwidth: h, [1].
        dual: a, [L, C].
        constant: b, [C].
    """

    rows: Tensor
    stretch: Tensor
    bandwidth: Tensor
    dual: Tensor
    constant: Tensor

    def __call__(self, z: Tensor) -> Tensor:
        """f of scaled rows z [M, F], [M, C]."""
        kernel = torch.exp(-distances(_times(z, self.stretch), self.rows) / self.bandwidth)
        return kernel @ self.dual + self.constant


@dataclass(frozen=True)
class FittedKernel(KeptSignals):
    """The regression from all labels.

    Args:
        scaling: The columns' units.
        regression: What was learned.
        rounds: Maximum number of updates of its metric, which a refit repeats.
        metric: The metric that it started from, which a refit starts from too.
    """

    scaling: Scaling
    regression: Regression
    rounds: int = 0
    metric: Tensor | None = None

    def predict(self, new: NewPoints) -> Tensor:
        """[M, C]."""
        with at_most(1):
            return _probabilities(self.regression, self.scaling, new.columns).to(new.points.device)

    def arrays(self) -> dict[str, Tensor]:
        """The labeled rows, their dual weights, the metric's root, and how columns are scaled."""
        own = self.regression
        return {
            "rows": own.rows, "stretch": own.stretch, "bandwidth": own.bandwidth, "dual": own.dual,
            "constant": own.constant, **self.scaling.arrays(),
        }  # fmt: skip


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
        metric: The metric to start from: [F], or [F, F] for a matrix.
        rounds: Number of updates of the metric.
    """
    width = rows.shape[1]
    oblique = metric.ndim == 2
    least = _LEAST * (torch.eye(width, dtype=rows.dtype) if oblique else torch.ones(width, dtype=rows.dtype))
    found: list[Regression] = []
    errors: list[float] = []
    while True:
        stretch = _root(metric)
        moved = _times(rows, stretch)
        distance = distances(moved, moved)
        bandwidth = _BANDWIDTH * _typical(distance)
        kernel = torch.exp(-distance / bandwidth)
        dual, constant, error = solved(kernel, target, weight, _PENALTY)
        # Contiguous, as they are saved: products of other layouts differ in the last digits.
        parts = (part.contiguous() for part in (moved, stretch, bandwidth.reshape(1), dual, constant))
        found.append(Regression(*parts))
        errors.append(error)
        if len(found) > rounds:
            break
        pull = kernel / (bandwidth * distance.masked_fill(distance < _TINY, float("inf")))
        slopes = gradients(rows, pull[some], dual, some, metric).flatten(0, 1)
        metric = slopes.t() @ slopes if oblique else slopes.square().sum(dim=0)
        total = metric.trace() if oblique else metric.sum()
        if not total > 0:
            break
        metric = metric * (width / total) + least
    return found[0], found[errors.index(min(errors))]


def clearly_better(first: Sequence[Regression], best: Sequence[Regression], rows: Tensor, labels: Labels) -> bool:
    """Whether the first rounds' squared errors are smaller by two standard deviations, on out-of-fold labels.

    The metric was learned from the very rows that are then left out one by one, so the leave-one-out error of later
    rounds is too small. Out-of-fold errors show this if labels are few and all columns matter.

    Args:
        first: The regression of every signal's first round.
        best: Those of the rounds with the smallest leave-one-out error.
        rows: The labeled rows, scaled, [L, F].
        labels: Which of them each signal does not see.
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
    return _times(weighted @ rows - weighted.sum(dim=2, keepdim=True) * rows[some], metric)


def _times(z: Tensor, metric: Tensor) -> Tensor:
    return z * metric if metric.ndim == 1 else z @ metric


def _root(metric: Tensor) -> Tensor:
    """:math:`M^{1/2}`, by which rows are multiplied; for a matrix up to a rotation, which changes no distance."""
    if metric.ndim == 1:
        return metric.sqrt()
    values, vectors = torch.linalg.eigh(metric)
    root: Tensor = vectors * values.clamp(min=0).sqrt()
    return root


def _typical(distance: Tensor) -> Tensor:
    """The median distance of rows or, if that is 0, the mean distance of distinct rows; 1 if all are equal."""
    apart = distance[~torch.eye(len(distance), dtype=torch.bool)]
    different = apart[apart > _TINY]
    if not len(different):
        return torch.ones((), dtype=distance.dtype)
    median = apart.median()
    return median if median > _TINY else different.mean()


def _probabilities(regression: Regression, scaling: Scaling, columns: npt.NDArray[np.float32]) -> Tensor:
    """Class probabilities of rows, float32 [M, C]."""
    out = torch.empty(len(columns), len(regression.constant), dtype=torch.float32)
    for start in range(0, len(columns), _ROWS_PER_BLOCK):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        out[rows] = (SURENESS * regression(scaling(columns[rows]))).softmax(dim=1)
    return out
