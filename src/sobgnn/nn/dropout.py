"""Dropout whose draws belong to a node, not to the place where it is computed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.propagation.drop import drop, mix

# Sets the nodes, layers and signals of one step far apart; odd, and signed since torch's int32 wraps.
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
    dropped: Tensor = drop(h, rows, rate)
    return dropped


def row_hashes(nodes: Tensor, key: Tensor, layer: int) -> Tensor:
    """int32 hashes of nodes [R] in one layer of one step; keys [S] of several members give [R, S] of nodes [R, 1]."""
    return mix(nodes.int() * _NODE + key.int() + (layer + 1) * _LAYER)
