"""Edges listed in one direction, or with two weights, to both directions with one weight; differentiable."""

from __future__ import annotations

import torch
from torch import Tensor


def symmetrize_edges(edge_index: Tensor, edge_weight: Tensor, how: str) -> tuple[Tensor, Tensor]:
    """Every edge in both directions with the larger (``"union"``) or the smaller (``"mutual"``) of its weights.

    An absent direction counts as 0, so ``"mutual"`` keeps the edges that are there in both. Each edge may be listed
    once per direction. Where both directions are equal, each gets half of the gradient.

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
    forward, weight = edge_index[0] * size + edge_index[1], edge_weight
    repeated = forward.numel() - torch.unique(forward).numel()
    if repeated:
        raise ValueError(
            f"Each edge may be listed once per direction, but {repeated} are repeated. Add them up first, for example "
            "with torch_geometric.utils.coalesce."
        )
    both = torch.cat([forward, forward % size * size + forward // size])
    keys, place = torch.unique(both, return_inverse=True)
    halves = torch.zeros(2, keys.numel(), dtype=weight.dtype, device=weight.device)
    first, second = place.chunk(2)
    halves = halves.index_put((torch.zeros_like(first), first), weight)
    halves = halves.index_put((torch.ones_like(second), second), weight)
    joined = halves.amax(dim=0) if how == "union" else halves.amin(dim=0)
    kept = joined.detach() > 0
    return torch.stack([keys // size, keys % size])[:, kept], joined[kept]
