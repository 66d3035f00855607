"""Sums over edges by torch's sparse matrices, a head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from sobgnn.baselines.edges import Edges


def dot(edges: Edges, a: Tensor, b: Tensor) -> Tensor:
    """[H, E]."""
    size = (a.shape[0], b.shape[0])
    pattern = _csr(edges.indptr, edges.sources, a.new_zeros(len(edges.sources)), size)
    left, right = a.transpose(0, 1).contiguous(), b.transpose(0, 1).contiguous()
    # The product of two matrices where a pattern has entries: a tenth of the time of gathering both ends' rows.
    return torch.stack(
        [torch.sparse.sampled_addmm(pattern, x, y.T, beta=0.0).values() for x, y in zip(left, right, strict=True)]
    )


def gather(edges: Edges, p: Tensor, x: Tensor) -> Tensor:
    """[R, H, c]."""
    size = (len(edges.indptr) - 1, x.shape[0])
    parts = [_csr(edges.indptr, edges.sources, p[h], size) @ x[:, h] for h in range(len(p))]
    return torch.stack(parts, dim=1)


def spread(edges: Edges, p: Tensor, g: Tensor) -> Tensor:
    """[N, H, c]."""
    size = (len(edges.t_indptr) - 1, g.shape[0])
    placed = p.index_select(1, edges.t_edge)
    parts = [_csr(edges.t_indptr, edges.t_targets, placed[h], size) @ g[:, h] for h in range(len(p))]
    return torch.stack(parts, dim=1)


def softmax(edges: Edges, scores: Tensor) -> Tensor:
    """[H, E]."""
    heads, rows = len(scores), len(edges.indptr) - 1
    index = edges.targets.expand(heads, -1)
    highest = scores.new_full((heads, rows), float("-inf")).scatter_reduce_(1, index, scores, "amax")
    powers = (scores - highest.gather(1, index)).exp_()
    return powers / powers.new_zeros(heads, rows).scatter_add_(1, index, powers).gather(1, index)


def softmax_backward(edges: Edges, shares: Tensor, grad: Tensor) -> Tensor:
    """[H, E]."""
    index = edges.targets.expand(len(shares), -1)
    weighted = shares * grad
    total = shares.new_zeros(len(shares), len(edges.indptr) - 1).scatter_add_(1, index, weighted)
    return weighted - shares * total.gather(1, index)


def _csr(indptr: Tensor, indices: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(indptr, indices.long(), values, size=size, check_invariants=False)
