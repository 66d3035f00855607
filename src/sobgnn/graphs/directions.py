"""Edges listed in one direction, or with two weights, to both directions with one weight; differentiable."""

from __future__ import annotations

import torch
from torch import Tensor


def symmetrize_edges(edge_index: Tensor, edge_weight: Tensor, how: str) -> tuple[Tensor, Tensor]:
    """Every edge in both directions with the larger (``"union"``) or the smaller (``"mutual"``) of its weights.

    An absent direction counts as 0, so ``"mutual"`` keeps the edges that are there in both. Edges listed more than once
    count as their largest. Where both directions are equal, each gets half of the gradient.

    Args:
        edge_index: int64 [2, E].
        edge_weight: [E]; its gradients go through.
        how: ``"union"`` or ``"mutual"``.
    """
    if how not in ("union", "mutual"):
        raise ValueError(f'`symmetrize` must be "union" or "mutual", but got {how!r}.')
    if not bool((edge_weight.detach() > 0).logical_and(edge_weight.detach().isfinite()).all()):
        raise ValueError("Edge weights must be finite and positive.")
    if edge_index.numel() and int(edge_index.min()) < 0:
        raise ValueError(f"edge_index must lie in [0, num_nodes), but got {int(edge_index.min())}.")
    size = int(edge_index.max()) + 1 if edge_index.numel() else 1
    forward, weight = _coalesced(edge_index[0] * size + edge_index[1], edge_weight)
    both = torch.cat([forward, forward % size * size + forward // size])
    keys, place = torch.unique(both, return_inverse=True)
    halves = torch.zeros(2, keys.numel(), dtype=weight.dtype, device=weight.device)
    first, second = place.chunk(2)
    halves = halves.index_put((torch.zeros_like(first), first), weight)
    halves = halves.index_put((torch.ones_like(second), second), weight)
    joined = halves.amax(dim=0) if how == "union" else halves.amin(dim=0)
    kept = joined.detach() > 0
    return torch.stack([keys // size, keys % size])[:, kept], joined[kept]


def _coalesced(keys: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    unique, place = torch.unique(keys, return_inverse=True)
    if unique.numel() == keys.numel():
        return keys, weight
    return unique, torch.zeros(unique.shape, dtype=weight.dtype, device=weight.device).scatter_reduce(
        0, place, weight, "amax", include_self=True
    )
