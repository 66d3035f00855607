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
from sobgnn.estimator.families.trees import grown
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import NOT_SAVED, shaped

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
# Deviations at which columns are clipped, how often the deviation is then recomputed, and the least share of it that
# must remain. Without clipping, a few huge cells would be far from all others and make these look equal.
_REACH, _PASSES, _LEAST_DEVIATION = 4.0, 10, 1e-6
# The bandwidth, in units of the median distance, and the penalty in a learned metric; the least weight of a column.
_BANDWIDTH, _PENALTY, _LEAST = 2.0, 0.03, 1e-3
# Scaled rows that are closer than this are equal: rounding of products can make a distance of 0 this large.
_TINY = 1e-5


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
    leave-one-out error is used. If few of many columns separate the
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
        """Learn metric and regression without each fold, and from all labels; start from an earlier fit's metric."""
        scaling = Scaling.of(points.columns)
        rows = scaling(points.columns[labels.index])
        generator = points.generator(self.name)
        chosen = generator.permutation(len(labels.index))
        found: list[Regression] = []
        with limit_threads(1):  # bitwise the same for any number of threads
            for number, share in enumerate(labels.shares()):
                used, target, weight = _taking_part(labels, share)
                taken = chosen[share[chosen] > 0][:_GRADIENTS]
                some = torch.from_numpy(np.cumsum(share > 0)[taken] - 1)
                metric = first_metric(points, labels, share, generator) if before is None else before.metric
                found.append(learned(rows[used], target, weight, some, metric))
                points.report(self.name, number + 1, labels.folds + 1)
            return _learned(found, scaling, points, labels, metric)


def _taking_part(labels: Labels, share: _Array) -> tuple[Tensor, Tensor, Tensor]:
    """Which labels have a weight, [L], and of those the indicators of their classes [T, C] and the weights [T]."""
    used = share > 0
    weight = torch.from_numpy(share[used] * used.sum())
    return torch.from_numpy(used), torch.from_numpy(np.eye(labels.classes)[labels.codes[used]]), weight


@dataclass(frozen=True)
class FittedKernel(FittedFamily):
    """The regression from all labels; a refit starts from the same metric."""

    scaling: Scaling
    regression: Regression
    metric: Any = field(default=None, metadata=NOT_SAVED)

    def predict(self, view: View) -> Tensor:
        """[M, C]."""
        with limit_threads(1):
            return probabilities(self.regression, self.scaling, view.columns).to(view.points.device)


def _learned(
    found: Sequence[Regression], scaling: Scaling, points: Points, labels: Labels, metric: Tensor | None = None
) -> Learned:
    """What regressions without each fold, and last with all labels, predict."""
    out_of_fold = labels.each_fold(
        lambda fold, held: probabilities(found[fold], scaling, points.columns[labels.index[held]])
    )
    return Learned(FittedKernel(scaling, found[-1], metric), out_of_fold)


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


@dataclass(frozen=True)
class Scaling:
    r"""Standardized columns: :math:`(x - c) / s`, clipped at ±4.

    Args:
        center: c, the mean [F].
        deviation: s, the standard deviation [F]; 0 for a constant column, which is mapped to 0.
    """

    center: _Array = field(metadata=shaped("columns", most=np.inf))
    deviation: _Array = field(metadata=shaped("columns", least=0, most=np.inf))

    @classmethod
    def of(cls, columns: npt.NDArray[np.float32]) -> Scaling:
        """Fit to columns [N, F]; mean and deviation are those of the clipped columns."""
        center, deviation = columns.mean(axis=0, dtype=np.float64), columns.std(axis=0, dtype=np.float64)
        least = _LEAST_DEVIATION * deviation
        low, high = columns.min(axis=0), columns.max(axis=0)
        for _ in range(_PASSES):
            reach = _REACH * deviation
            far = ((high - center > reach) | (center - low > reach)) & (deviation > least)
            if not far.any():
                break
            cut = columns[:, far].astype(np.float64).clip((center - reach)[far], (center + reach)[far])
            center[far], deviation[far] = cut.mean(axis=0), np.maximum(cut.std(axis=0), least[far])
        return cls(center, deviation)

    def __call__(self, columns: npt.NDArray[np.float32]) -> Tensor:
        """Float64 [M, F]."""
        inverse = np.divide(1.0, self.deviation, out=np.zeros_like(self.deviation), where=self.deviation > 0)
        return torch.from_numpy(((columns - self.center) * inverse).clip(-_REACH, _REACH))


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

    rows: _Array = field(metadata=shaped("labels", "columns"))
    stretch: _Array = field(metadata=shaped("columns"))
    bandwidth: _Array = field(metadata=shaped(1, least=np.finfo(float).tiny))
    dual: _Array = field(metadata=shaped("labels", "classes"))
    constant: _Array = field(metadata=shaped("classes"))
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


def solved(kernel: Tensor, target: Tensor, weight: Tensor, penalty: float) -> tuple[Tensor, Tensor, float]:
    r"""The a [L, C] and b [C] of weighted ridge regression, and its mean squared leave-one-out error.

    They solve :math:`(K + \lambda W^{-1}) a + 1 b = t` with :math:`1^\top a = 0`, here in a symmetric form.

    Args:
        kernel: K, [L, L].
        target: t, indicators of the classes, [L, C].
        weight: The diagonal of W, [L].
        penalty: λ.
    """
    root = weight.sqrt()
    penalized = kernel * torch.outer(root, root)
    penalized.diagonal().add_(penalty)
    inverse = torch.linalg.inv(penalized)
    # With the constant as one more row and column, this is the other block of the inverse.
    border = inverse @ root
    inverse -= torch.outer(border, border) / (root @ border)
    wanted = target * root.unsqueeze(1)
    dual, constant = inverse @ wanted, border @ wanted / (root @ border)
    # The residual of a row left out is its dual weight divided by its entry of the inverse's diagonal.
    # With a single row nothing is left to learn from, and its dual weight is 0.
    left_out = dual / (inverse.diagonal() * root).clamp(min=_TINY).unsqueeze(1)
    return dual * root.unsqueeze(1), constant, float((weight * left_out.square().sum(dim=1)).mean())


def learned(rows: Tensor, target: Tensor, weight: Tensor, some: Tensor, metric: Tensor) -> Regression:
    r"""The regression of the round with the smallest leave-one-out error; all float64.

    After each round the metric becomes the mean square of the gradients of every class,

    .. math:: \nabla f_c(x) = -M \sum_l a_{lc} \frac{k(x, x_l)}{h \, \|M^{1/2} (x - x_l)\|} (x - x_l),

    with 0 for equal rows.

    Args:
        rows: Scaled, [L, F].
        target: Indicators of their classes, [L, C].
        weight: Weight of each row, [L], 1 on average.
        some: int64, rows whose gradients the metric is learned from.
        metric: The metric to start from, [F].
    """
    found: list[tuple[float, Regression]] = []
    while True:
        stretch = metric.sqrt()
        moved = rows * stretch
        distance = distances(moved, moved)
        bandwidth = _BANDWIDTH * typical(distance)
        kernel = torch.exp(-distance / bandwidth)
        dual, constant, error = solved(kernel, target, weight, _PENALTY)
        found.append((error, Regression.of(moved, stretch, bandwidth.reshape(1), dual, constant)))
        if len(found) > ROUNDS:
            break
        pull = kernel / (bandwidth * distance.masked_fill(distance < _TINY, float("inf")))
        weighted = pull[some] * dual.t().unsqueeze(1)
        gradients = (weighted @ rows - weighted.sum(dim=2, keepdim=True) * rows[some]) * metric
        metric = gradients.flatten(0, 1).square().sum(dim=0)
        total = metric.sum()
        if not total > 0:
            break
        metric = metric * (rows.shape[1] / total) + _LEAST
    return min(found, key=lambda pair: pair[0])[1]


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances, [A, B]."""
    squared = a.square().sum(dim=1, keepdim=True) + b.square().sum(dim=1) - 2 * (a @ b.t())
    return squared.clamp(min=0).sqrt()


def typical(distance: Tensor) -> Tensor:
    """The median distance of rows or, if that is 0, the mean distance of distinct rows; 1 if all are equal."""
    apart = distance[~torch.eye(len(distance), dtype=torch.bool)]
    different = apart[apart > _TINY]
    if not len(different):
        return torch.ones((), dtype=distance.dtype)
    median = apart.median()
    return median if median > _TINY else different.mean()
