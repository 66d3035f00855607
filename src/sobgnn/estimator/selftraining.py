"""A linear classifier that teaches itself: labels first, then more and more of what it is surest of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from sobgnn.estimator.ensemble import Labels
from sobgnn.runtime.ranks import Ranks

# Shares of the pool that are learnt from, round by round. The first is small: what a few labels make sure of is what
# the next round builds on.
SHARES = (0.06, 0.2, 0.4, 0.6)
# Unlabelled points that may get a weak label; and labels, of which the others are left out.
POOL = 5000
# What the labels weigh against the penalty, and Adam's steps in each round.
_C, _STEPS, _RATE = 3.0, 40, 0.05


@dataclass(frozen=True)
class Linear:
    r""":math:`\mathrm{softmax}(x W + b)`, of one classifier for each fold held out, and at last of one with all labels.

    Args:
        weight: W, [D, folds + 1, C].
        bias: b, [folds + 1, C].
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Probabilities [folds + 1, N, C] of points X [N, D]."""
        logits = (X @ self.weight.flatten(1)).view(len(X), *self.bias.shape) + self.bias
        return logits.softmax(dim=2).transpose(0, 1)

    def last(self) -> dict[str, Tensor]:
        """The classifier that has learnt from all labels: ``weight`` [D, C], ``bias`` [C]."""
        return {"weight": self.weight[:, -1].contiguous(), "bias": self.bias[-1].contiguous()}


def linear_probabilities(parameters: dict[str, Tensor], X: Tensor) -> Tensor:
    """What :meth:`Linear.last` says of points X [N, D]: [N, C]."""
    return (X @ parameters["weight"] + parameters["bias"]).softmax(dim=1)


def self_train(
    X: Tensor, labels: Labels, classes: int, generator: np.random.Generator, ranks: Ranks | None = None
) -> Linear | None:
    r"""Logistic regression on the labels, then in rounds on them and the surest points; ``None`` if all have labels.

    .. math:: \min_{W, b} \sum_l w_l \ell(x_l, y_l) + \sum_{p \in S_t} \ell(x_p, \hat{y}_p) + \frac{1}{2C} \|W\|^2

    with S_t the share ``SHARES[t]`` of a sample of the unlabelled points of which round t - 1 was surest, and what it
    took them for; points are chosen anew in every round. Not class by class: a class that is not recognised surely has
    few points to begin with, and gets more once the others are known.

    The labels of a class weigh as much in all where some are held out as where none are. Else a held-out label would be
    of a class with fewer labels than the others, which round after round would grow at its cost.

    Args:
        X: [N, D], of mean variance 1.
        labels: Of the points, and which are held out in turn.
        classes: C.
        generator: Draws the sample.
        ranks: All get the classifiers of the first.
    """
    ranks = ranks or Ranks()
    free = np.ones(len(X), dtype=bool)
    free[labels.index] = False
    pool = np.sort(generator.permutation(np.flatnonzero(free))[:POOL])
    if not len(pool):
        return None
    some = slice(None, None, 1 + (len(labels.index) - 1) // POOL)
    index, codes = (part[some] for part in labels.tensors(X.device))
    rows = torch.cat([X[index], X[torch.from_numpy(pool).to(X.device)]])
    fitting = _Fitting(rows, labels.folds + 1, classes)
    target = torch.cat([codes, codes.new_zeros(len(pool))]).repeat(labels.folds + 1, 1)
    weight = torch.zeros(target.shape, device=X.device)
    weight[:, : len(codes)] = _label_weights(labels, some, codes, classes)
    fitting.train(target, weight)
    for share in SHARES:
        sure, target[:, len(codes) :] = fitting.probabilities(len(codes)).max(dim=2)
        surest = sure.argsort(dim=1, descending=True, stable=True)[:, : max(1, int(share * len(pool)))]
        weight[:, len(codes) :] = torch.zeros_like(sure).scatter_(1, surest, 1.0)
        fitting.train(target, weight)
    weight, bias = (ranks.complete(part, [0] + [len(part)] * ranks.size) for part in (fitting.weight, fitting.bias))
    return Linear(weight, bias)


def _label_weights(labels: Labels, some: slice, codes: Tensor, classes: int) -> Tensor:
    """What each label counts while a fold is held out, and at last with none: [folds + 1, L]; 1 on average."""
    own = torch.from_numpy(labels.weight[some] / labels.weight[some].mean()).float().to(codes.device)
    fold = torch.from_numpy(labels.fold[some]).to(codes.device)
    known = (fold != torch.arange(labels.folds + 1, device=codes.device).unsqueeze(1)) * own
    of_class = one_hot(codes, classes).float()
    have = known @ of_class
    return known * torch.where(have > 0, own @ of_class / have, 0.0)[:, codes]


class _Fitting:
    """B logistic regressions on the same rows [R, D], each with its own targets and weights; training goes on."""

    def __init__(self, rows: Tensor, count: int, classes: int) -> None:
        self.rows = rows
        self.weight = rows.new_zeros(rows.shape[1], count, classes)
        self.bias = rows.new_zeros(count, classes)

    def probabilities(self, start: int) -> Tensor:
        """Of the rows from ``start`` on, [B, R, C]."""
        return Linear(self.weight, self.bias)(self.rows[start:])

    def train(self, target: Tensor, weight: Tensor) -> None:
        """Adam with a falling rate, by all rows that count for one of the classifiers."""
        used = (weight > 0).any(dim=0).nonzero().flatten()
        rows, target, weight = self.rows[used], target[:, used], weight[:, used]
        total = weight.sum(dim=1)
        parameters = [self.weight.requires_grad_(), self.bias.requires_grad_()]
        optimizer = torch.optim.Adam(parameters, lr=_RATE)
        with torch.enable_grad():
            for step in range(_STEPS):
                optimizer.param_groups[0]["lr"] = _RATE * (1 - step / _STEPS)
                logits = (rows @ self.weight.flatten(1)).view(len(rows), *self.bias.shape) + self.bias
                losses = cross_entropy(logits.permute(1, 2, 0), target, reduction="none")
                penalty = self.weight.square().sum(dim=(0, 2)) / (2 * _C)
                optimizer.zero_grad()
                (((losses * weight).sum(dim=1) + penalty) / total).sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        self.weight, self.bias = (parameter.detach() for parameter in parameters)
