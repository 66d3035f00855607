"""Probabilities spread over the graph, with known labels held fixed."""

from __future__ import annotations

import torch
from torch import Tensor

from sobgnn.graph import Graph
from sobgnn.propagation import Stencil, expand

# Steps of the fixed-point iteration: the remainder after t steps is a^t.
STEPS = 20


@torch.no_grad()
def smooth(
    graph: Graph,
    probabilities: Tensor,
    strength: float,
    known: Tensor | None = None,
    codes: Tensor | None = None,
    steps: int = STEPS,
) -> Tensor:
    r"""Probabilities drawn towards those of the neighbours.

    .. math:: P \leftarrow (1 - a) P_0 + a D^{-1} A P, \qquad P_i = e_{y_i} \text{ at known labels}

    Rows stay distributions, since :math:`D^{-1} A` has rows that sum to 1. An isolated node keeps its own.

    Args:
        graph: Of N nodes.
        probabilities: P_0, [N, C].
        strength: a, in [0, 1).
        known: int64 [K], nodes whose label is held fixed.
        codes: int64 [K], their classes.
        steps: Iterations.
    """
    start = probabilities.clone()
    if known is not None and codes is not None:
        fixed = torch.zeros((len(known), start.shape[1]), dtype=start.dtype, device=start.device)
        fixed[torch.arange(len(known), device=start.device), codes] = 1
        start[known] = fixed
    if strength == 0:
        return start
    alone = (graph.degree == 0).nonzero().flatten()
    csr = (graph.indptr, graph.indices, graph.weight)
    walk = random_walk(*csr, csr)
    current = start
    for _ in range(steps):
        current = (1 - strength) * start + strength * expand(walk, current)[:, 0]
        current[alone] = start[alone]
        if known is not None and codes is not None:
            current[known] = fixed
    return current / current.sum(dim=1, keepdim=True)


def random_walk(indptr: Tensor, indices: Tensor, weight: Tensor, transposed: tuple[Tensor, Tensor, Tensor]) -> Stencil:
    """D^{-1} A of a CSR matrix [M, N] and its transpose's CSR, as an operator of one order; zero rows stay zero."""
    rows = torch.repeat_interleave(indptr.diff())
    total = torch.zeros(indptr.numel() - 1, dtype=torch.float64, device=weight.device)
    total.index_add_(0, rows, weight.double())
    inverse = torch.where(total > 0, 1 / total.clamp_min(torch.finfo(torch.float32).tiny), 0.0)
    ones = weight.new_ones((transposed[0].numel() - 1, 2))
    scale = torch.stack([torch.ones_like(inverse), inverse], dim=1).float()
    return Stencil(indptr, indices, weight, *transposed, scale, ones, 0.0)
