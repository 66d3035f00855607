"""Attention on CPUs: the C++ kernels of attention.cpp, reached through ctypes."""

from __future__ import annotations

import torch
from torch import Tensor

from sobgnn.propagation import native
from sobgnn.propagation.attention.registration import SLOPE, EdgePattern, Terms


def forward(edges: EdgePattern, kind: int, terms: Terms) -> tuple[Tensor, Tensor, Tensor]:
    """Sums [R, H, c], mean weights [R, H] and the logarithms of the softmax's sums [R, H]."""
    value = terms.value
    rows, (_, heads, channels) = len(edges.indptr) - 1, value.shape
    out = value.new_empty(rows, heads, channels)
    moment, log_sum = value.new_empty(rows, heads), value.new_empty(rows, heads)
    native.call(
        "sobgnn_attend", value.dtype, (*edges[:3], *terms, out, moment, log_sum), rows, heads, channels, kind, SLOPE
    )
    return out, moment, log_sum


def backward(
    edges: EdgePattern,
    kind: int,
    terms: Terms,
    out: Tensor,
    moment: Tensor,
    log_sum: Tensor,
    to_out: Tensor,
    to_moment: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of the terms, in their order."""
    rows, (nodes, heads, channels) = len(edges.indptr) - 1, terms.value.shape
    dtype, size = terms.value.dtype, (heads, channels, kind, SLOPE)
    average = torch.empty_like(moment)
    to_query, to_key, to_target, to_source, _, to_value = (
        None if term is None else torch.empty_like(term) for term in terms
    )
    # Each row's part of the edge factor's gradient; torch adds up the rows.
    to_edge = None if terms.edge is None else torch.empty_like(moment)
    saved: tuple[Tensor, ...] = (out, moment, log_sum, to_out, to_moment, average)
    gradients = (to_query, to_target, to_edge)
    native.call("sobgnn_attend_rows", dtype, (*edges[:3], *terms, *saved, *gradients), rows, *size)
    saved = (log_sum, to_out, to_moment, average)
    gradients = (to_key, to_source, to_value)
    native.call("sobgnn_attend_nodes", dtype, (*edges[3:], *terms, *saved, *gradients), nodes, *size)
    return to_query, to_key, to_target, to_source, None if to_edge is None else to_edge.sum(dim=0), to_value
