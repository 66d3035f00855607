"""Dropout by a hash of row and column, as a torch operator: autograd, vmap, fake tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sobgnn.propagation import native
from sobgnn.propagation.backends import backend

# Odd multipliers of 32-bit mixing functions with low bias; as signed numbers, since torch's int32 wraps.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - 2**32
_LAYER = 0x85EBCA6B - 2**32


@torch.library.custom_op("sobgnn::drop", mutates_args=())
def drop(h: Tensor, rows: Tensor, rate: float) -> Tensor:
    """Drop the entries of h [..., c] that a hash of (row, column) selects, and scale the others by 1 / (1 - rate).

    ``rows`` [...] are int32 hashes already.
    """
    if rows.shape != h.shape[:-1]:
        raise ValueError(f"Every row needs one hash, but got {list(rows.shape)} for rows {list(h.shape[:-1])}.")
    columns = column_hashes(h.shape[-1], h.device)
    threshold, factor = int(rate * 2**32) - 2**31, 1 / (1 - rate)
    if backend(h) == "native" and h.dtype in (torch.float32, torch.float64):
        return native.drop(h.contiguous(), rows.contiguous(), columns, threshold, factor)
    return h * (kept(rows, columns, threshold) * factor).to(h.dtype)


@drop.register_fake
def _(h: Tensor, rows: Tensor, rate: float) -> Tensor:
    return torch.empty_like(h, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    ctx.rate = inputs[2]
    ctx.save_for_backward(inputs[1])


def _drop_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    # What was dropped is drawn again rather than remembered.
    return torch.ops.sobgnn.drop(grad, ctx.saved_tensors[0], ctx.rate), None, None


def _drop_vmap(info: Any, in_dims: tuple[Any, ...], h: Tensor, rows: Tensor, rate: float) -> tuple[Tensor, int]:
    def placed(value: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return value.unsqueeze(1).expand(value.shape[0], info.batch_size, *value.shape[1:])
        return value.movedim(dim, 1)

    return torch.ops.sobgnn.drop(placed(h, in_dims[0]), placed(rows, in_dims[1]), rate), 1


drop.register_autograd(_drop_backward, setup_context=_save)
drop.register_vmap(_drop_vmap)


def column_hashes(width: int, device: torch.device) -> Tensor:
    """int32 [width], one for each column."""
    return mix(torch.arange(1, width + 1, device=device, dtype=torch.int32) * _LAYER)


def kept(rows: Tensor, columns: Tensor, threshold: Tensor | int) -> Tensor:
    """Which entries stay, [..., c]: those where a hash of row [...] and column [c] reaches the threshold."""
    # Both are well mixed; one more round makes the pair's bits depend on each other.
    draw = (rows.unsqueeze(-1) ^ columns) * _FIRST
    draw = (draw ^ _shift(draw, 15)) * _SECOND
    return draw >= threshold


def thresholds(rate: Tensor) -> Tensor:
    """int32, the threshold of each rate in [0, 1)."""
    return ((rate.double() * 2**32).floor() - 2**31).to(torch.int32)


def mix(x: Tensor) -> Tensor:
    """A hash of int32 values, each bit depending on all of them."""
    x = (x ^ _shift(x, 16)) * _FIRST
    x = (x ^ _shift(x, 15)) * _SECOND
    return x ^ _shift(x, 16)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's keeps the sign."""
    shifted: Tensor = (x >> bits) & ((1 << (32 - bits)) - 1)
    return shifted
