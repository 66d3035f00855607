"""Attention on CPUs: the C++ kernels of attention.cpp, reached through ctypes."""

from __future__ import annotations

import torch
from torch import Tensor

from sobgnn.propagation import native
from sobgnn.propagation.attention.terms import SLOPE, EdgePattern, Gradients, Outputs, Terms


def forward(edges: EdgePattern, kind: int, terms: Terms) -> Outputs:
    """Sums, mean weights and the logarithms of the softmax's sums."""
    _, heads, channels = terms.value.shape
    found = Outputs.empty(edges, terms)
    size = (len(found.out), heads, channels, kind, SLOPE)
    native.call("sobgnn_attend", terms.value.dtype, (*edges[:3], *terms, *found), *size)
    return found


def backward(
    edges: EdgePattern, kind: int, terms: Terms, found: Outputs, to_out: Tensor, to_moment: Tensor
) -> Gradients:
    """Gradients of the terms from those of the sums and of the mean weights."""
    nodes, heads, channels = terms.value.shape
    dtype, size = terms.value.dtype, (heads, channels, kind, SLOPE)
    to = Gradients.empty(terms)
    average = torch.empty_like(found.moment)
    rows = (*edges[:3], *terms, *found, to_out, to_moment, average, to.query, to.target, to.edge)
    native.call("sobgnn_attend_rows", dtype, rows, len(found.out), *size)
    columns = (*edges[3:], *terms, found.log_sum, to_out, to_moment, average, to.key, to.source, to.value)
    native.call("sobgnn_attend_nodes", dtype, columns, nodes, *size)
    return to.summed()
