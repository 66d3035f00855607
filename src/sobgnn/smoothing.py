"""Probabilities spread over the graph, with known labels held fixed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sobgnn.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.propagation import Stencil

# The iteration ends where what is left of its start is below this share, or after this many steps.
_REST, _MOST_STEPS = 1e-3, 100


def spreading(graph: Graph) -> SobolevOperators:
    r"""What :func:`smooth` spreads by: :math:`D^{-1/2} A D^{-1/2}`, no self-loops."""
    return SobolevOperators(graph, alpha=1, epsilon=0.0)


@torch.no_grad()
def smooth(spread: SobolevOperators, start: Tensor, strength: float, fixed: Tensor | None = None) -> Tensor:
    r"""Probabilities drawn towards those of the neighbours.

    .. math:: P \leftarrow (1 - a) P_0 + a D^{-1/2} A D^{-1/2} P, \qquad P_i = P_{0,i} \text{ at fixed nodes},

    and at the end each row divided by its sum; a row of zeros becomes even. An isolated node keeps its own.

    Args:
        spread: :func:`spreading` of a graph of N nodes.
        start: P_0, [N, C], or [N, B, C] for B signals at once.
        strength: a, in [0, 1).
        fixed: bool [N], or [N, B].
    """
    if strength == 0:
        return start
    alone = spread.graph.degree == 0
    fixed = alone if fixed is None else fixed | (alone if fixed.ndim == 1 else alone.unsqueeze(1))
    fixed = fixed.unsqueeze(-1)
    current = start
    for _ in range(min(_MOST_STEPS, math.ceil(math.log(_REST) / math.log(strength)))):
        moved = spread.propagate(current.flatten(1))[:, 0].view_as(start)
        current = torch.where(fixed, start, torch.lerp(start, moved, strength))
    return _even_where_zero(current)


def _even_where_zero(signal: Tensor) -> Tensor:
    total = signal.sum(dim=-1, keepdim=True)
    tiny = torch.finfo(signal.dtype).tiny
    return torch.where(total >= tiny, signal / total.clamp(min=tiny), 1 / signal.shape[-1])


@torch.no_grad()
def diffuse(spread: SobolevOperators, strength: float, index: Tensor, codes: Tensor, classes: int) -> Tensor:
    r"""Labels alone, spread over the graph: :func:`smooth` from zeros at all nodes without a label.

    At a node that no label reaches all classes are alike.

    Args:
        spread: :func:`spreading` of a graph of N nodes.
        strength: a, in (0, 1).
        index: Labelled nodes [L].
        codes: Their classes [L], or [B, L] with -1 where a label is unknown, for B signals at once.
        classes: C.

    Returns:
        [N, C], or [N, B, C].
    """
    many = codes if codes.ndim == 2 else codes.unsqueeze(0)
    start = torch.zeros(spread.graph.num_nodes, len(many), classes, device=index.device)
    known = many >= 0
    signal, label = known.nonzero(as_tuple=True)
    start[index[label], signal, many[known]] = 1
    fixed = torch.zeros(start.shape[:2], dtype=torch.bool, device=index.device)
    fixed[index[label], signal] = True
    out = smooth(spread, start, strength, fixed)
    return out if codes.ndim == 2 else out[:, 0]


def with_labels(probabilities: Tensor, index: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities [N, C] with those of labelled nodes replaced by their label, and which nodes these are [N]."""
    start = probabilities.clone()
    start[index] = 0
    start[index, codes] = 1
    fixed = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    fixed[index] = True
    return start, fixed


def random_walk(indptr: Tensor, indices: Tensor, weight: Tensor, transposed: tuple[Tensor, Tensor, Tensor]) -> Stencil:
    """D^{-1} A of a CSR matrix [M, N] and its transpose's CSR, as an operator of one order; zero rows stay zero."""
    rows = torch.repeat_interleave(indptr.diff())
    total = torch.zeros(indptr.numel() - 1, dtype=torch.float64, device=weight.device)
    total.index_add_(0, rows, weight.double())
    live = total > 0
    # Shares, not weights: the sum of a row of very small weights has no reciprocal in float32.
    inverse = torch.where(live, 1 / torch.where(live, total, 1.0), 0.0)
    shares = (weight.double() * inverse[rows]).float()
    ones = weight.new_ones
    return Stencil(
        indptr, indices, shares, *transposed, ones((len(total), 2)), ones((transposed[0].numel() - 1, 2)), 0.0
    )
