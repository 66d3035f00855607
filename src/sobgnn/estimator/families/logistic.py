"""Logistic regression on the original columns, with a penalty chosen by out-of-fold labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import KeptSignals
from sobgnn.estimator.families.regressions import logistic_regressions
from sobgnn.estimator.families.ridge import Scaling, restored
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.estimator.smoothing import squared_error
from sobgnn.runtime.process import at_most

# Candidate weights of the labels relative to the penalty, and the one used if nothing is held out.
_STRENGTHS, _USUAL = (0.03, 0.3, 3.0, 30.0), 0.3
# Least number of labels, and the product of labels, columns and classes up to which this is fast.
_LABELS, _MOST_WORK = 40, 100_000
_ROWS_PER_BLOCK = 16384


class LogisticColumns:
    r"""Logistic regression on the labels only, on standardized columns.

    .. math:: \min_{W, b} \; c \sum_l w_l \ell(x_l, y_l) + \frac{1}{2} \|W\|^2

    with c the one of four values whose out-of-fold probabilities have the least squared error. The self-trained
    classifier reads the networks' input, has one penalty for all data sets, and learns from its own confident
    predictions; if classes depend on sums of columns and labels are few, a weaker penalty may be all that it lacks.
    """

    name: ClassVar[str] = "logistic"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Whether there are at least 40 labels to choose a penalty, and this is fast compared with other families."""
        work = len(labels.index) * problem.columns.shape[1] * labels.classes
        return labels.folds > 0 and len(labels.index) >= _LABELS and work <= _MOST_WORK

    def fit(self, problem: Problem, labels: Labels) -> FittedLogistic:
        """Train one classifier for each signal and each penalty, and keep those of the best penalty."""
        return self._fit(problem, labels, _STRENGTHS if labels.folds else (_USUAL,))

    def refit(self, problem: Problem, labels: Labels, before: FittedLogistic) -> FittedLogistic:
        """Train from all labels, with the penalty that was chosen before."""
        return self._fit(problem, labels, (before.strength,))

    def _fit(self, problem: Problem, labels: Labels, strengths: tuple[float, ...]) -> FittedLogistic:
        scaling = Scaling.of(problem.columns)
        rows = scaling(problem.columns[labels.index])
        best: tuple[float, float, Tensor, Tensor] | None = None
        for number, strength in enumerate(strengths):
            weight, bias = (torch.from_numpy(part) for part in logistic_regressions(rows.numpy(), labels, strength))
            error = _out_of_fold_error(rows, weight, bias, labels) if len(strengths) > 1 else 0.0
            if best is None or error < best[0]:
                best = error, strength, weight, bias
            problem.tell(self.name, number + 1, len(strengths))
        assert best is not None  # there is always a strength
        _, strength, weight, bias = best
        signals = _probabilities(problem.columns, scaling, weight, bias)
        # Copies: the other signals need not be kept.
        weight, bias = weight[:, -1].clone(), bias[-1].clone()
        return FittedLogistic(scaling, weight, bias, strength, signals=signals.to(problem.device))

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedLogistic:
        """Restore from the weights learned from all labels."""
        width, classes = problem.columns.shape[1], problem.classes
        shapes = {"weight": (width, classes), "bias": (classes,)}
        scaling, parts = restored(arrays, width, shapes, "logistic regression")
        return FittedLogistic(scaling, parts["weight"], parts["bias"])


@dataclass(frozen=True)
class FittedLogistic(KeptSignals):
    r""":math:`\mathrm{softmax}(x W + b)` of scaled columns x, from all labels.

    Args:
        scaling: The columns' units.
        weight: W, float64 [F, C].
        bias: b, float64 [C].
        strength: c, the weight of the labels relative to the penalty, which a refit keeps.
    """

    scaling: Scaling
    weight: Tensor
    bias: Tensor
    strength: float = _USUAL

    def predict(self, new: NewPoints) -> Tensor:
        """[M, C]."""
        own = _probabilities(new.columns, self.scaling, self.weight.unsqueeze(1), self.bias.unsqueeze(0))
        return own[0].to(new.points.device)

    def arrays(self) -> dict[str, Tensor]:
        """``weight`` and ``bias``, and how columns are scaled."""
        return {"weight": self.weight, "bias": self.bias, **self.scaling.arrays()}


def _out_of_fold_error(rows: Tensor, weight: Tensor, bias: Tensor, labels: Labels) -> float:
    judged = labels.judged
    fold = torch.from_numpy(labels.fold[judged])
    logits = torch.einsum("lf,flc->lc", rows[judged], weight[:, fold]) + bias[fold]
    return squared_error(logits.softmax(dim=1).numpy(), labels)


def _probabilities(columns: npt.NDArray[np.float32], scaling: Scaling, weight: Tensor, bias: Tensor) -> Tensor:
    """Probabilities of every signal, float32 [S, M, C], for weights [F, S, C] and biases [S, C]."""
    out = torch.empty(len(bias), len(columns), bias.shape[1], dtype=torch.float32)
    with at_most(1):  # bitwise the same for any number of threads
        for start in range(0, len(columns), _ROWS_PER_BLOCK):
            rows = slice(start, start + _ROWS_PER_BLOCK)
            scaled = scaling(columns[rows])
            for signal in range(len(bias)):  # one by one, so that no signal affects the rounding of another
                out[signal, rows] = (scaled @ weight[:, signal].contiguous() + bias[signal]).softmax(dim=1)
    return out
