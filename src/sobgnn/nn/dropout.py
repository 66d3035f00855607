"""Dropout whose draws belong to a node, not to the place where it is computed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.propagation.native import backend, call, empty

# Odd multipliers of 32-bit mixing functions with low bias; as signed numbers, since torch's int32 wraps.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - 2**32
# Sets the nodes, layers, columns and signals of one step far apart.
_NODE, _LAYER, _SIGNAL = 0x9E3779B1 - 2**32, 0x85EBCA6B - 2**32, 0xC2B2AE3D - 2**32


def dropout(h: Tensor, rate: float, training: bool, key: Tensor | None, nodes: Tensor | None, layer: int) -> Tensor:
    """Drop entries of h [..., R, c] with probability ``rate`` in training, and scale the others by 1 / (1 - rate).

    With a ``key`` (an integer, 0-dimensional), whether an entry is dropped is a function of the key, the layer, the
    entry's node and its column alone: the same on every device, for every part of the graph that is computed and for
    every way of sharing it among processes. Several signals of one graph [B, R, c] each have draws of their own, the
    first one those of a single signal. Without a key, torch's own generator draws.

    Args:
        h: Hidden rows [R, c], or [B, R, c] of B signals.
        rate: In [0, 1).
        training: Whether to drop at all.
        key: One per training step, in [0, 2³¹).
        nodes: int64 [R], the node of each row; ``None``: row i is node i.
        layer: Tells the layers of one step apart.
    """
    if key is None or not training or rate == 0:
        return F.dropout(h, rate, training)
    if nodes is None:
        nodes = torch.arange(h.shape[-2], device=h.device)
    rows = row_hashes(nodes, key, layer)
    if h.ndim > 2:
        signals = torch.arange(h.shape[0], device=h.device, dtype=torch.int32).unsqueeze(1)
        rows = rows ^ mix(signals * _SIGNAL)  # of signal 0: nothing
    dropped: Tensor = drop_by_hash(h, rows, rate)
    return dropped


def row_hashes(nodes: Tensor, key: Tensor, layer: int) -> Tensor:
    """int32 hashes of nodes [R] in one layer of one step; keys [S] of several members give [R, S] of nodes [R, 1]."""
    return mix(nodes.int() * _NODE + key.int() + (layer + 1) * _LAYER)


@torch.library.custom_op("sobgnn::drop_by_hash", mutates_args=())
def drop_by_hash(h: Tensor, rows: Tensor, rate: float) -> Tensor:
    """Drop the entries of h [..., c] that a hash of (row, column) selects, and scale the others by 1 / (1 - rate).

    ``rows`` [...] are int32 hashes already.
    """
    if rows.shape != h.shape[:-1]:
        raise ValueError(f"Every row needs one hash, but got {list(rows.shape)} for rows {list(h.shape[:-1])}.")
    columns = column_hashes(h.shape[-1], h.device)
    threshold, factor = int(rate * 2**32) - 2**31, 1 / (1 - rate)
    if backend(h) == "native" and h.dtype in (torch.float32, torch.float64):
        out = empty(h, h.shape)
        call("sobgnn_drop", h.dtype, h, rows, columns, out, rows.numel(), columns.numel(), threshold, factor)
        return out
    return h * (kept(rows, columns, threshold) * factor).to(h.dtype)


@drop_by_hash.register_fake
def _(h: Tensor, rows: Tensor, rate: float) -> Tensor:
    return torch.empty_like(h, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    ctx.rate = inputs[2]
    ctx.save_for_backward(inputs[1])


def _drop_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    # What was dropped is drawn again rather than remembered.
    return torch.ops.sobgnn.drop_by_hash(grad, ctx.saved_tensors[0], ctx.rate), None, None


def _drop_vmap(info: Any, in_dims: tuple[Any, ...], h: Tensor, rows: Tensor, rate: float) -> tuple[Tensor, int]:
    def placed(value: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return value.unsqueeze(1).expand(value.shape[0], info.batch_size, *value.shape[1:])
        return value.movedim(dim, 1)

    return torch.ops.sobgnn.drop_by_hash(placed(h, in_dims[0]), placed(rows, in_dims[1]), rate), 1


drop_by_hash.register_autograd(_drop_backward, setup_context=_save)
drop_by_hash.register_vmap(_drop_vmap)


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
