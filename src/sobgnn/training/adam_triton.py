"""A step of Adam on CUDA as one kernel, in Triton: that of :mod:`~sobgnn.training.adam`, rounded as in torch."""

# Kernels are written in their own language, in which types have other meanings.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor

from sobgnn.training.adam import BETA1, BETA2, TINY

if TYPE_CHECKING:
    from sobgnn.training.adam import Moments

_BLOCK = 1024


@triton.jit(do_not_specialize=["length"])
def _step(
    flat, gradient, mean, square, lr, decay, correction, length,
    TO_MEAN: tl.constexpr, KEEP: tl.constexpr, TO_SQUARE: tl.constexpr, SMALL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < length
    at = member * length + column
    rate = tl.div_rn(tl.load(lr + member), tl.load(correction))
    second = tl.load(correction + 1)
    w = tl.load(flat + at, mask=inside, other=0.0)
    g = tl.load(gradient + at, mask=inside, other=0.0)
    m = tl.load(mean + at, mask=inside, other=0.0)
    s = tl.load(square + at, mask=inside, other=0.0)
    g = tl.fma(w, tl.load(decay + member), g)
    m = tl.fma(g - m, TO_MEAN, m)
    s = tl.fma(g * g, TO_SQUARE, s * KEEP)
    update = tl.div_rn(m, tl.div_rn(tl.sqrt_rn(s), second) + SMALL)
    tl.store(flat + at, w - update * rate, mask=inside)
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, s, mask=inside)


def step(flat: Tensor, gradient: Tensor, moments: Moments, lr: Tensor, decay: Tensor, correction: Tensor) -> None:
    """See :func:`sobgnn.training.adam.adam_step`; all float32 and contiguous."""
    members, length = flat.shape
    _step[triton.cdiv(length, _BLOCK), members](
        flat.detach(), gradient.contiguous(), *moments, lr, decay, correction.contiguous(), length,
        TO_MEAN=1 - BETA1, KEEP=BETA2, TO_SQUARE=1 - BETA2, SMALL=TINY, BLOCK=_BLOCK,
        # A product and a sum are rounded separately, as in torch; the compiler would otherwise fuse them.
        enable_fp_fusion=False,
    )  # fmt: skip
