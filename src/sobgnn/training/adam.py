"""Adam for many members at once, each with its own learning rate and weight decay."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# As in torch and in the original paper.
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8


class Moments(NamedTuple):
    """Adam's state: running means of gradients and of their squares, [S, P] each."""

    mean: Tensor
    square: Tensor


def corrections(steps: int) -> Tensor:
    r"""Each step's corrections of the two means, which start at 0: :math:`1 - β_1^t, \sqrt{1 - β_2^t}` [steps, 2]."""
    t = torch.arange(1, steps + 1, dtype=torch.float64)
    return torch.stack([1 - BETA1**t, (1 - BETA2**t).sqrt()], dim=1).to(torch.float32)


def adam_step(flat: Tensor, gradient: Tensor, moments: Moments, lr: Tensor, decay: Tensor, correction: Tensor) -> None:
    r"""One step of Adam in place, as in torch with ``weight_decay``.

    .. math:: g ← g + λθ, \quad m ← m + (1 - β_1)(g - m), \quad s ← β_2 s + (1 - β_2) g^2, \quad
        θ ← θ - \frac{η}{c_1} \frac{m}{\sqrt{s} / c_2 + 10^{-8}}

    Args:
        flat: The members' weights θ [S, P].
        gradient: g [S, P].
        moments: m and s.
        lr: η of each member [S, 1].
        decay: λ of each member [S, 1].
        correction: :math:`c_1, c_2` of this step [1, 2].
    """
    first, second = correction.unbind(dim=1)
    gradient = torch.addcmul(gradient, flat, decay)
    moments.mean.lerp_(gradient, 1 - BETA1)
    moments.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    update = moments.mean / (moments.square.sqrt() / second + TINY)
    flat.addcmul_(update, lr / first, value=-1)
