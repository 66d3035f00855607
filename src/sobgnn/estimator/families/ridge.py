"""Kernel ridge regression on the classes, and standardized columns; shared by several families."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# The factor of a regression's values before the softmax.
SURENESS = 5.0
# Deviations at which columns are clipped, how often the deviation is then recomputed, and the least share of it that
# must remain. Without clipping, a few huge cells would be far from all others and make these look equal.
_REACH, _PASSES, _LEAST_DEVIATION = 4.0, 10, 1e-6
_TINY = 1e-5


@dataclass(frozen=True)
class Scaling:
    r"""Standardized columns: :math:`(x - c) / s`, clipped at ±4.

    Args:
        center: c, the mean [F].
        deviation: s, the standard deviation [F]; 0 for a constant column, which is mapped to 0.
    """

    center: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]

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


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances, [A, B]."""
    squared = a.square().sum(dim=1, keepdim=True) + b.square().sum(dim=1) - 2 * (a @ b.t())
    return squared.clamp(min=0).sqrt()
