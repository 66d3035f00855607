"""Kernel ridge regression on the classes, of standardized columns, and its metric."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.state import shaped

_Array = npt.NDArray[np.float64]

# Deviations at which columns are clipped, how often the deviation is then recomputed, and the least share of it that
# must remain. Without clipping, a few huge cells would be far from all others and make these look equal.
_REACH, _PASSES, _LEAST_DEVIATION = 4.0, 10, 1e-6
# The bandwidth, in units of the median distance, and the penalty in a learned metric; the least weight of a column.
_BANDWIDTH, _PENALTY, _LEAST = 2.0, 0.03, 1e-3
# Scaled rows that are closer than this are equal: rounding of products can make a distance of 0 this large.
_TINY = 1e-5


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
    r"""The regression of the first round, and that of the round with the smallest leave-one-out error; all float64.

    After each round the metric becomes the mean square of the gradients of every class,

    .. math:: \nabla f_c(x) = -M \sum_l a_{lc} \frac{k(x, x_l)}{h \, \|M^{1/2} (x - x_l)\|} (x - x_l),

    with 0 for equal rows.

    Args:
        rows: Scaled, [L, F].
        target: Indicators of their classes, [L, C].
        weight: Weight of each row, [L], 1 on average over the labels.
        some: int64, rows whose gradients the metric is learned from.
        metric: The metric to start from, [F].
        rounds: Number of updates of the metric.
    """
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
        weighted = pull[some] * dual.t().unsqueeze(1)
        gradients = (weighted @ rows - weighted.sum(dim=2, keepdim=True) * rows[some]) * metric
        metric = gradients.flatten(0, 1).square().sum(dim=0)
        total = metric.sum()
        if not total > 0:
            break
        metric = metric * (rows.shape[1] / total) + _LEAST
    return found[0], found[errors.index(min(errors))]


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
