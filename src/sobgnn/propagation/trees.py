"""Sums over decision trees: rows walk from each root to a leaf, and the leaves' values are added up."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sobgnn.propagation.native import backend, call

# Rows times trees that are walked at once; what a step reads and writes then stays in the cache.
_WALKED = 1 << 16


class Nodes(NamedTuple):
    """Trees end to end: a walk goes left where the column is at most the threshold.

    Args:
        column: int32 [nodes], the column a node looks at; -1 for a leaf.
        threshold: float64 [nodes].
        left, right: int32 [nodes], the next node; of a leaf, ``left`` is its row in ``value``.
        value: float32 or float64 [leaves, V].
        root: int32 [T].
        target: int32 [T], the column of the sums that a tree's only value is added to; empty: values are added to the
            columns that they stand in.
    """

    column: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    root: Tensor
    target: Tensor


def tree_sums(nodes: Nodes, x: Tensor, classes: int) -> Tensor:
    r"""Sums of the leaves' values over all trees, float64 [M, C], for rows x, float32 [M, F], on the CPU.

    .. math:: \mathrm{out}_{m} = \sum_t v_{\mathrm{leaf}_t(x_m)}

    in the order of the trees. Nodes and columns are not checked: they must be those of trees over x's columns.
    """
    out = torch.zeros((len(x), classes), dtype=torch.float64)
    if backend(x) == "native":
        target = nodes.target if nodes.target.numel() else None
        sizes = (*x.shape, len(nodes.root), nodes.value.shape[1], classes)
        call("sobgnn_walk", nodes.value.dtype, x, *nodes[:4], nodes.root, nodes.value, target, out, *sizes)
        return out
    step = max(1, _WALKED // max(1, len(nodes.root)))
    for start in range(0, len(x), step):
        values = nodes.value[_leaves(nodes, x[start : start + step])].double()
        if nodes.target.numel():
            out[start : start + step].index_add_(1, nodes.target.long(), values[..., 0])
        else:
            out[start : start + step] = values.sum(dim=1)
    return out


def _leaves(nodes: Nodes, x: Tensor) -> Tensor:
    """The leaf that each row ends in, in each tree: int64 [M, T]."""
    rows = torch.arange(len(x)).repeat_interleave(len(nodes.root))
    node = nodes.root.long().repeat(len(x))
    going = (nodes.column[node] >= 0).nonzero().flatten()
    while going.numel():
        at = node[going]
        goes_left = x[rows[going], nodes.column[at].long()].double() <= nodes.threshold[at]
        node[going] = torch.where(goes_left, nodes.left[at], nodes.right[at]).long()
        going = going[nodes.column[node[going]] >= 0]
    return nodes.left[node].long().view(len(x), -1)
