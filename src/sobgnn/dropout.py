"""Dropout whose draws belong to a node, not to the place where it is computed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.propagation import backend, native

# Odd multipliers of 32-bit mixing functions with low bias; as signed numbers, since torch's int32 wraps.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - 2**32
_NODE, _LAYER = 0x9E3779B1 - 2**32, 0x85EBCA6B - 2**32


def dropout(h: Tensor, rate: float, training: bool, key: Tensor | None, nodes: Tensor | None, layer: int) -> Tensor:
    """Drop entries of h [R, c] with probability ``rate`` in training, and scale the others by 1 / (1 - rate).

    With a ``key`` (an integer, 0-dimensional), whether an entry is dropped is a function of the key, the layer, the
    entry's node and its column alone: the same on every device, for every part of the graph that is computed and for
    every way of sharing it among processes. Without one, torch's own generator draws.

    Args:
        h: Hidden rows.
        rate: In [0, 1).
        training: Whether to drop at all.
        key: One per training step, in [0, 2³¹).
        nodes: int64 [R], the node of each row; ``None``: row i is node i.
        layer: Tells the layers of one step apart.
    """
    if key is None or not training or rate == 0:
        return F.dropout(h, rate, training)
    if nodes is None:
        nodes = torch.arange(h.shape[0], device=h.device)
    rows = _mix(nodes.int() * _NODE + key.int() + (layer + 1) * _LAYER)
    dropped: Tensor = torch.ops.sobgnn.drop(h, rows, rate)
    return dropped


@torch.library.custom_op("sobgnn::drop", mutates_args=())
def _drop(h: Tensor, rows: Tensor, rate: float) -> Tensor:
    """h [..., c] with the entries dropped that ``rows`` [...], int32 and well mixed, and the column say."""
    columns = _mix(torch.arange(1, h.shape[-1] + 1, device=h.device, dtype=torch.int32) * _LAYER)
    if backend(h) == "native" and h.dtype in (torch.float32, torch.float64):
        return native.drop(h.contiguous(), rows.contiguous(), columns, rate)
    # Both are well mixed; one more round makes the pair's bits depend on each other.
    draw = (rows.unsqueeze(-1) ^ columns) * _FIRST
    draw = (draw ^ _shift(draw, 15)) * _SECOND
    return h * ((draw >= int(rate * 2**32) - 2**31) * (1 / (1 - rate))).to(h.dtype)


@_drop.register_fake
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


_drop.register_autograd(_drop_backward, setup_context=_save)
_drop.register_vmap(_drop_vmap)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 16)) * _FIRST
    x = (x ^ _shift(x, 15)) * _SECOND
    return x ^ _shift(x, 16)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's keeps the sign."""
    shifted: Tensor = (x >> bits) & ((1 << (32 - bits)) - 1)
    return shifted
