"""Kernel regression on the classes with a Gaussian kernel over all columns."""

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
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.runtime.process import at_most

_PENALTY = 0.1
# Maximum number of multiplications, the cost of a distance and its exponential in these, rows predicted at once.
_MOST_WORK, _EXPONENTIAL, _ROWS_PER_BLOCK = 1_000_000_000, 20, 4096


class GaussianRegression:
    r"""Kernel ridge regression on the classes, one output each, with a Gaussian kernel and an unpenalized constant.

    .. math:: f(x) = b + \sum_l a_l \exp(-\|x - x_l\|^2 / F)

    with standardized columns and F the number of columns that vary: the default bandwidth of scikit-learn's support
    vector machines. Far from all labels f is b, so a class that surrounds another is recognized by its distance. Ten
    labels are enough for that; neighbors, trees and learned metrics need many more.
    """

    name: ClassVar[str] = "gaussian"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Whether labels are held out and this is fast compared with the other families."""
        count, width = len(labels.index), problem.columns.shape[1]
        work = problem.count * count * (width + _EXPONENTIAL) + (labels.folds + 1) * count**3
        return labels.folds > 0 and work <= _MOST_WORK

    def fit(self, problem: Problem, labels: Labels) -> FittedGaussian:
        """Solve one regression without each fold, and one with all labels."""
        scaling = Scaling.of(problem.columns)
        rows = scaling(problem.columns[labels.index])
        with at_most(1):  # bitwise the same for any number of threads
            kernel = _kernel(rows, rows, scaling)
            parts = []
            for share in labels.shares():
                used = torch.from_numpy(share > 0)
                weight = torch.from_numpy(share)[used] * used.sum()
                target = torch.from_numpy(np.eye(labels.classes)[labels.codes])[used]
                # A label that a signal does not see has a dual weight of 0, so that all signals share one kernel.
                dual = torch.zeros(len(rows), labels.classes, dtype=torch.float64)
                dual[used], constant, _ = solved(kernel[used][:, used], target, weight, _PENALTY)
                parts.append((dual, constant))
            signals = _probabilities(problem.columns, scaling, rows, parts)
        problem.tell(self.name, 1, 1)
        return FittedGaussian(scaling, rows, *parts[-1], signals=signals.to(problem.device))

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedGaussian:
        """Restore from the regression on all labels."""
        count, width, classes = len(arrays["rows"]), problem.columns.shape[1], problem.classes
        shapes = {"rows": (count, width), "dual": (count, classes), "constant": (classes,)}
        scaling, parts = restored(arrays, width, shapes, "Gaussian regression")
        return FittedGaussian(scaling, *(parts[name] for name in shapes))


@dataclass(frozen=True)
class FittedGaussian(KeptSignals):
    """The regression from all labels; all float64.

    Args:
        scaling: The columns' units.
        rows: The labeled rows, scaled, [L, F].
        dual: a, [L, C].
        constant: b, [C].
    """

    scaling: Scaling
    rows: Tensor
    dual: Tensor
    constant: Tensor

    def predict(self, new: NewPoints) -> Tensor:
        """[M, C]."""
        with at_most(1):
            own = _probabilities(new.columns, self.scaling, self.rows, [(self.dual, self.constant)])
        return own[0].to(new.points.device)

    def arrays(self) -> dict[str, Tensor]:
        """The labeled rows, their dual weights and the constant, and how columns are scaled."""
        return {"rows": self.rows, "dual": self.dual, "constant": self.constant, **self.scaling.arrays()}


def _kernel(x: Tensor, rows: Tensor, scaling: Scaling) -> Tensor:
    """[M, L] of scaled rows x [M, F] and labeled rows [L, F]."""
    varying = max(1, int((scaling.deviation > 0).sum()))
    return torch.exp(-distances(x, rows).square() / varying)


def _probabilities(
    columns: npt.NDArray[np.float32], scaling: Scaling, rows: Tensor, parts: Sequence[tuple[Tensor, Tensor]]
) -> Tensor:
    """Probabilities of every signal, given by its dual weights and constant: float32 [S, M, C]."""
    out = torch.empty(len(parts), len(columns), len(parts[0][1]), dtype=torch.float32)
    for start in range(0, len(columns), _ROWS_PER_BLOCK):
        block = slice(start, start + _ROWS_PER_BLOCK)
        kernel = _kernel(scaling(columns[block]), rows, scaling)
        for signal, (dual, constant) in enumerate(parts):
            out[signal, block] = (SURENESS * (kernel @ dual + constant)).softmax(dim=1)
    return out
