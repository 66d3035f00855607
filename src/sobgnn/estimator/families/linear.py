"""A self-trained linear classifier: it learns from labels, then from ever more of its confident predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.runtime.process import at_most

# Shares of the pool used in each round. The first is small: later rounds build on what a few labels predict with
# confidence.
SHARES = (0.06, 0.2, 0.4, 0.6)
# Bounds of the number of unlabeled points that may get a pseudo-label; the first also limits the number of labels.
POOL, _MOST_POOL = 3000, 12_000
# Labels per class below which twice as many unlabeled points are used: they add more then.
_FEW_PER_CLASS = 10
# Weight of the labels relative to the penalty, and Adam's steps and learning rate in each round.
_C, _STEPS, _RATE = 3.0, 30, 0.05
# Adam divides a step by the size of its gradients, here at least this share of their mean size: if a gradient is nearly
# zero, a full step would follow its rounding.
_LEAST_SIZE = 0.3
_ROWS_PER_BLOCK = 16384


class SelfTrainedLinear:
    r"""Logistic regression on the labels, then in rounds also on the most confident predictions.

    .. math:: \min_{W, b} \sum_l w_l \ell(x_l, y_l) + \sum_{p \in S_t} \ell(x_p, \hat{y}_p) + \frac{1}{2C} \|W\|^2

    with S_t the share ``SHARES[t]`` of a sample of the unlabeled points on which round t - 1 was most confident, and
    :math:`\hat{y}` its predictions; points are chosen again in every round. They are not chosen class by class: a class
    that is not predicted with confidence has few points at first, and gets more once the others are learned.
    """

    name: ClassVar[str] = "linear"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True

    def fit(self, problem: Problem, labels: Labels) -> FittedLinear:
        """Fit with one thread, so that the result is bitwise the same for any number of threads."""
        with at_most(1):
            return self._fit(problem, labels)

    def _fit(self, problem: Problem, labels: Labels) -> FittedLinear:
        """Train one classifier for each signal, all at once."""
        X = problem.points
        free = np.ones(len(X), dtype=bool)
        free[labels.index] = False
        most = pool_size(len(X), len(labels.index) / labels.classes)
        pool = np.sort(problem.generator(self.name).permutation(np.flatnonzero(free))[:most])
        some = slice(None, None, 1 + (len(labels.index) - 1) // POOL)
        index, codes = (part[some] for part in labels.tensors(X.device))
        rows = torch.cat([X[index], X[torch.from_numpy(pool).to(X.device)]])
        shares = torch.from_numpy(labels.shares()[:, some]).float().to(X.device)
        signals = len(shares)
        target = torch.cat([codes, codes.new_zeros(len(pool))]).repeat(signals, 1)
        weight = torch.zeros(target.shape, dtype=X.dtype, device=X.device)
        weight[:, : len(codes)] = shares * (len(codes) / shares.sum(dim=1, keepdim=True))
        fitting = _Fitting(rows, signals, labels.classes)
        fitting.train(target, weight)
        problem.tell(self.name, 1, 1 + len(SHARES))
        for number, share in enumerate(SHARES if len(pool) else ()):
            sure, target[:, len(codes) :] = fitting.probabilities(len(codes)).max(dim=2)
            surest = sure.argsort(dim=1, descending=True, stable=True)[:, : max(1, int(share * len(pool)))]
            weight[:, len(codes) :] = torch.zeros_like(sure).scatter_(1, surest, 1.0)
            fitting.train(target, weight)
            problem.tell(self.name, 2 + number, 1 + len(SHARES))
        return FittedLinear(fitting.weight, fitting.bias, X)

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedLinear:
        """Restore from the weights learned from all labels."""
        weight, bias = arrays["weight"], arrays["bias"]
        if weight.shape != (problem.points.shape[1], problem.classes) or bias.shape != (problem.classes,):
            raise ValueError("its linear classifier does not fit its points")
        return FittedLinear(weight.unsqueeze(1), bias.unsqueeze(0), problem.points)


def pool_size(points: int, labels_per_class: float) -> int:
    """Unlabeled points that are used: a third of all, at least 3 000; twice as many with few labels; at most 12 000."""
    return min((2 if labels_per_class < _FEW_PER_CLASS else 1) * max(POOL, points // 3), _MOST_POOL)


@dataclass(frozen=True)
class FittedLinear:
    r""":math:`\mathrm{softmax}(x W + b)` of every signal.

    Args:
        weight: W, [D, folds + 1, C].
        bias: b, [folds + 1, C].
        points: The training points [N, D].
    """

    weight: Tensor
    bias: Tensor
    points: Tensor

    def probabilities(self) -> Tensor:
        """[folds + 1, N, C]."""
        out = self.points.new_empty((len(self.bias), len(self.points), self.bias.shape[1]))
        for start in range(0, len(self.points), _ROWS_PER_BLOCK):
            rows = slice(start, start + _ROWS_PER_BLOCK)
            out[:, rows] = _probabilities(self.points[rows], self.weight, self.bias)
        return out

    def predict(self, new: NewPoints) -> Tensor:
        """[M, C]."""
        return _probabilities(new.points, self.weight[:, -1:], self.bias[-1:])[0]

    def arrays(self) -> dict[str, Tensor]:
        """``weight`` [D, C] and ``bias`` [C], of all labels."""
        return {"weight": self.weight[:, -1].contiguous(), "bias": self.bias[-1].contiguous()}


def _probabilities(X: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    logits = (X @ weight.flatten(1)).view(len(X), *bias.shape) + bias
    return logits.softmax(dim=2).transpose(0, 1)


class _Fitting:
    """B logistic regressions on the same rows [R, D], each with its own targets and weights; training can continue."""

    def __init__(self, rows: Tensor, count: int, classes: int) -> None:
        self.rows = rows
        self.weight = rows.new_zeros(rows.shape[1], count, classes)
        self.bias = rows.new_zeros(count, classes)

    def probabilities(self, start: int) -> Tensor:
        """Probabilities of the rows from ``start``, [B, R, C]."""
        return _probabilities(self.rows[start:], self.weight, self.bias)

    @torch.no_grad()
    def train(self, target: Tensor, weight: Tensor) -> None:
        """Run Adam with a decaying rate on all rows that have a weight in some classifier."""
        used = (weight > 0).any(dim=0).nonzero().flatten()
        rows, weight = self.rows[used], weight[:, used]
        wanted = one_hot(target[:, used], self.bias.shape[1]).to(rows).transpose(0, 1)
        total = weight.sum(dim=1)
        share = (weight / total.unsqueeze(1)).t().unsqueeze(2)
        penalty = (1 / (_C * total)).view(1, -1, 1)
        parameters = (self.weight, self.bias)
        moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        for step in range(_STEPS):
            logits = (rows @ self.weight.flatten(1)).view(len(rows), *self.bias.shape) + self.bias
            # The gradient of the loss with respect to the logits is the softmax minus the target, times each row's
            # share.
            delta = logits.softmax(dim=2).sub_(wanted).mul_(share)
            gradients = (
                (rows.t() @ delta.flatten(1))
                .view_as(self.weight)
                .addcmul_(self.weight, penalty.expand_as(self.weight)),
                delta.sum(dim=0),
            )
            rate = _RATE * (1 - step / _STEPS)
            for parameter, gradient, (mean, square) in zip(parameters, gradients, moments, strict=True):
                mean.lerp_(gradient, 0.1)
                square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                size = (square / (1 - 0.999 ** (step + 1))).sqrt_().add_(1e-8)
                usual = size.mean(dim=-1, keepdim=True)
                usual = usual.mean(dim=0, keepdim=True) if size.ndim == 3 else usual
                size = torch.maximum(size, _LEAST_SIZE * usual)
                parameter.addcdiv_(mean, size, value=-rate / (1 - 0.9 ** (step + 1)))
