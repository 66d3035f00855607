"""Linear classifiers: one that learns from ever more of its confident predictions too, and one that does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sobgnn._system.process import limit_threads
from sobgnn.estimator.families.contract import Family, FittedFamily, Learned
from sobgnn.estimator.families.given import logistic_regressions
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import shaped

# Shares of the pool used in each round. The first is small: later rounds build on what a few labels predict with
# confidence.
SHARES = (0.06, 0.2, 0.4, 0.6)
# A third of the unlabeled points may get a pseudo-label, within these bounds; the first limits the labels used, too.
POOL, _MOST_POOL = 3000, 12_000
# Labels per class below which twice as many unlabeled points may: they add more then.
_FEW_PER_CLASS = 10
# Weight of the labels relative to the penalty, and Adam's steps and learning rate in each round.
_C, _STEPS, _RATE = 3.0, 30, 0.05
# Adam divides a step by the size of its gradients, here at least this share of their mean size: if a gradient is nearly
# zero, a full step would follow its rounding.
_LEAST_SIZE = 0.3
# Least number of labels for a regression beside the self-trained one, and the maximum of labels times classes times
# columns: it is solved exactly, fit by fit.
_LABELS, _MOST_WORK = 40, 2_500_000
_ROWS_PER_BLOCK = 16384


class SelfTrainedLinear(Family):
    r"""Logistic regression on the labels, then in rounds also on the most confident predictions.

    .. math:: \min_{W, b} \sum_l w_l \ell(x_l, y_l) + \sum_{p \in S_t} \ell(x_p, \hat{y}_p) + \frac{1}{2C} \|W\|^2

    with S_t the share ``SHARES[t]`` of a sample of the unlabeled points on which round t - 1 was most confident, and
    :math:`\hat{y}` its predictions; points are chosen again in every round. They are not chosen class by class: a class
    that is not predicted with confidence has few points at first, and gets more once the others are learned.
    """

    name: ClassVar[str] = "linear"
    title: ClassVar[str] = "self-trained linear classifier"
    explained: ClassVar[str] = "weighs columns, and learns from its own confident predictions too"

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Train one classifier for each fit, all at once, with one thread: the bits then depend on nothing else."""
        X = points.points
        free = np.ones(len(X), dtype=bool)
        free[labels.index] = False
        few = len(labels.index) < _FEW_PER_CLASS * labels.classes
        most = min((2 if few else 1) * max(POOL, len(X) // 3), _MOST_POOL)
        pool = np.sort(points.generator(self.name).permutation(np.flatnonzero(free))[:most])
        some = slice(None, None, 1 + (len(labels.index) - 1) // POOL)
        index, codes = (part[some] for part in labels.tensors(X.device))
        rows = torch.cat([X[index], X[torch.from_numpy(pool).to(X.device)]])
        shares = torch.from_numpy(labels.shares()[:, some]).float().to(X.device)
        target = torch.cat([codes, codes.new_zeros(len(pool))]).repeat(len(shares), 1)
        share = torch.zeros(target.shape, dtype=X.dtype, device=X.device)
        share[:, : len(codes)] = shares * (len(codes) / shares.sum(dim=1, keepdim=True))
        weight, bias = X.new_zeros(X.shape[1], len(shares), labels.classes), X.new_zeros(len(shares), labels.classes)
        with limit_threads(1):
            _train(rows, target, share, weight, bias)
            points.report(self.name, 1, 1 + len(SHARES))
            for number, part in enumerate(SHARES if len(pool) else ()):
                sure, target[:, len(codes) :] = _probabilities(rows[len(codes) :], weight, bias).max(dim=2)
                surest = sure.argsort(dim=1, descending=True, stable=True)[:, : max(1, int(part * len(pool)))]
                share[:, len(codes) :] = torch.zeros_like(sure).scatter_(1, surest, 1.0)
                _train(rows, target, share, weight, bias)
                points.report(self.name, 2 + number, 1 + len(SHARES))
            return _learned(points, labels, weight, bias)


class PlainLinear(Family):
    r"""Logistic regression on the labels alone, solved exactly.

    If classes follow rules of many columns, the first rounds of :class:`SelfTrainedLinear` are often wrong, and more
    rounds keep the errors; held-out labels show which of both is better.
    """

    name: ClassVar[str] = "logistic"
    title: ClassVar[str] = "logistic regression"
    explained: ClassVar[str] = "weighs columns"

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether there are at least 40 labels, some are held out, and this is fast compared with other families."""
        count = len(labels.index)
        small = count * labels.classes * points.points.shape[1] <= _MOST_WORK
        return labels.folds > 0 and count >= _LABELS and small

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Solve one regression without each fold, and one with all labels."""
        Z = points.points[labels.tensors(points.device)[0]].double().cpu().numpy()
        weight, bias = (torch.from_numpy(part).float().to(points.device) for part in logistic_regressions(Z, labels))
        points.report(self.name, 1, 1)
        with limit_threads(1):
            return _learned(points, labels, weight, bias)


@dataclass(frozen=True)
class FittedLinear(FittedFamily):
    r""":math:`\mathrm{softmax}(x W + b)`, from all labels."""

    weight: Tensor = field(metadata=shaped("width", "classes"))
    bias: Tensor = field(metadata=shaped("classes"))

    def predict(self, view: View) -> Tensor:
        """[M, C]."""
        X = view.points
        weight, bias = self.weight.unsqueeze(1), self.bias.unsqueeze(0)
        starts = range(0, max(1, len(X)), _ROWS_PER_BLOCK)
        with limit_threads(1):
            return torch.cat([_probabilities(X[start : start + _ROWS_PER_BLOCK], weight, bias)[0] for start in starts])


def _learned(points: Points, labels: Labels, weight: Tensor, bias: Tensor) -> Learned:
    """What regressions without each fold, and last with all labels, predict; W [D, folds + 1, C], b [folds + 1, C]."""
    X, index = points.points, torch.from_numpy(labels.index)

    def without(fold: int, held: npt.NDArray[np.int64]) -> Tensor:
        rows = index[torch.from_numpy(held)].to(X.device)
        return _probabilities(X[rows], weight[:, fold : fold + 1], bias[fold : fold + 1])[0]

    return Learned(FittedLinear(weight[:, -1].contiguous(), bias[-1].contiguous()), labels.each_fold(without))


def _probabilities(X: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[B, R, C] of rows [R, D], by B regressions: W [D, B, C], b [B, C]."""
    logits = (X @ weight.flatten(1)).view(len(X), *bias.shape) + bias
    return logits.softmax(dim=2).transpose(0, 1)


def _train(rows: Tensor, target: Tensor, weight: Tensor, W: Tensor, b: Tensor) -> None:
    """Change W and b of B logistic regressions by Adam with a decaying rate.

    Args:
        rows: [R, D]; those without a weight in any regression take no part.
        target: Classes of the rows in each regression, [B, R].
        weight: Their weights, [B, R].
        W: [D, B, C].
        b: [B, C].
    """
    used = (weight > 0).any(dim=0).nonzero().flatten()
    rows, weight = rows[used], weight[:, used]
    wanted = one_hot(target[:, used], b.shape[1]).to(rows).transpose(0, 1)
    total = weight.sum(dim=1)
    share = (weight / total.unsqueeze(1)).t().unsqueeze(2)
    penalty = (1 / (_C * total)).view(1, -1, 1)
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in (W, b)]
    for step in range(_STEPS):
        logits = (rows @ W.flatten(1)).view(len(rows), *b.shape) + b
        # The gradient of the loss with respect to the logits is the softmax minus the target, times each row's share.
        delta = logits.softmax(dim=2).sub_(wanted).mul_(share)
        of_weight = (rows.t() @ delta.flatten(1)).view_as(W).addcmul_(W, penalty.expand_as(W))
        rate = _RATE * (1 - step / _STEPS)
        pairs = zip((W, b), (of_weight, delta.sum(dim=0)), moments, strict=True)
        for parameter, gradient, (mean, square) in pairs:
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            size = (square / (1 - 0.999 ** (step + 1))).sqrt_().add_(1e-8)
            usual = size.mean(dim=-1, keepdim=True)
            usual = usual.mean(dim=0, keepdim=True) if size.ndim == 3 else usual
            size = torch.maximum(size, _LEAST_SIZE * usual)
            parameter.addcdiv_(mean, size, value=-rate / (1 - 0.9 ** (step + 1)))
