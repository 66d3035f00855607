"""Operators straight from edges: differentiable in the weights, directed or not, between two sets of nodes or one."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.edges import (
    check_devices,
    check_ends,
    check_sizes,
    check_weights,
    sort_edges,
    sum_at,
    sum_repeated,
    symmetrize_edges,
)
from sobgnn.operators.base import OperatorBase, clamp_epsilon
from sobgnn.propagation import SobolevCSR

Normalize = Literal["sym", "row"]


class EdgeOperators(OperatorBase):
    r"""The normalized sparse Sobolev terms of PyG's ``edge_index``, as a function of its weights and of ε.

    .. math::
        \hat{A}_\rho = D_\rho^{-1/2} (A + \epsilon I)^{(\rho)} D_\rho^{-1/2} \quad (\texttt{"sym"}), \qquad
        \hat{A}_\rho = D_\rho^{-1} (A + \epsilon I)^{(\rho)} \quad (\texttt{"row"}),

    with :math:`A[i, j]` the weight of the edge from j to i. The first are those of :class:`~sobgnn.SobolevOperators`
    and need a symmetric graph. The second are averages over the edges that point to a node, for directed graphs
    and for edges between two sets of nodes; there inputs are the sources followed by the targets, whose self-loops
    have the weight ε.

    Args:
        edge_index: int64 [2, E], from ``edge_index[0]`` to ``edge_index[1]``, in any order. The weights of an edge
            listed twice are added up. A self-loop keeps its weight; the other nodes' have the weight ε.
        edge_weight: [E], finite and not negative; ``None``: all 1. Gradients go through it. An edge of weight 0 is
            none, and has a gradient of 0.
        num_nodes: Number of nodes, or of sources and of targets.
        alpha: Number of orders.
        epsilon: Weight of self-loops; a tensor of one number where it is learned.
        normalize: ``"sym"`` or ``"row"``.
        symmetrize: ``"union"`` or ``"mutual"``: make the graph symmetric first. Not inside a compiled graph.
        directed: Take ``"sym"`` of a graph that is not symmetric, with the degrees of the edges that point to a node.
        dtype: float32, or float64 for float64 signals.
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        num_nodes: int | tuple[int, int],
        alpha: int,
        epsilon: float | Tensor,
        *,
        normalize: Normalize = "sym",
        symmetrize: str | None = None,
        directed: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.alpha = alpha
        self.normalize = normalize
        self.dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.device = edge_index.device
        column, row, weight = _edges(edge_index, edge_weight, self.dtype)
        two_sets = isinstance(num_nodes, tuple)
        sources, targets = num_nodes if isinstance(num_nodes, tuple) else (0, num_nodes)
        if two_sets and symmetrize is not None:
            raise ValueError("`symmetrize` needs one set of nodes: edges between two sets have no other direction.")
        if two_sets and normalize != "row":
            raise ValueError('Edges between two sets of nodes need normalize="row": they have no symmetric form.')
        if symmetrize is not None:
            check_ends("nodes", torch.cat([column, row]), targets)
            check_weights(weight, 0.0)
            (column, row), weight = symmetrize_edges(*sum_repeated(torch.stack([column, row]), weight), symmetrize)
        self.num_nodes, self.num_inputs = targets, sources + targets
        plain = 0.0 if isinstance(epsilon, Tensor) else clamp_epsilon(epsilon)
        # Self-loops are entries where they differ: between two sets of nodes, learned, or some given among the edges.
        loops = isinstance(epsilon, Tensor) or (plain > 0 and (two_sets or _has_loops(row, column)))
        symmetric = normalize == "sym" and not directed
        at = sort_edges(
            row,
            column,
            weight,
            (self.num_nodes, self.num_inputs),
            symmetric=symmetric,
            sources=sources if two_sets else None,
            loops=loops,
        )
        if loops:
            loop = epsilon.to(weight) if isinstance(epsilon, Tensor) else weight.new_full((), plain)
            nodes = torch.arange(targets, device=self.device)
            row, column = torch.cat([row, nodes]), torch.cat([column, sources + nodes])
            weight = torch.cat([weight, torch.where(at.own, 0.0, loop)])
        # A size that is a symbol cannot choose a type.
        kind = torch.int64 if torch.compiler.is_compiling() or self.num_inputs >= 2**31 else torch.int32
        pattern = (at.indptr, column[at.order].to(kind), sum_at(weight[at.order], at.first))
        # The transpose serves the features' gradient, which is a constant to the weights.
        if symmetric:
            back = (at.indptr, pattern[1], pattern[2].detach())
        else:
            back = (at.t_indptr, row[at.t_order].to(kind), sum_at(weight.detach()[at.t_order], at.t_first))
        by_rows = normalize == "row"
        scale = propagation.scales(at.indptr, pattern[2], alpha, 0.0 if loops else plain, by_rows=by_rows)
        inputs = scale.new_ones((self.num_inputs, alpha + 1)) if by_rows else scale
        self._csr = SobolevCSR(*pattern, *back, scale, inputs, 0.0 if loops else plain)

    def __repr__(self) -> str:
        return (
            f"EdgeOperators({self.num_inputs} to {self.num_nodes} nodes, {self._csr.indices.numel()} entries, "
            f"alpha={self.alpha}, normalize={self.normalize!r})"
        )

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The operators as :mod:`sobgnn.propagation` takes them."""
        if (dtype == torch.float64) != (self.dtype == torch.float64):
            raise TypeError(f"These operators are for signals of {self.dtype}, but got {dtype}. Build them again.")
        return self._csr


def _has_loops(row: Tensor, column: Tensor) -> bool:
    """Whether some edge is a self-loop; in a compiled graph, which must not depend on numbers, always."""
    return torch.compiler.is_compiling() or bool((row == column).any())


def _edges(edge_index: Tensor, edge_weight: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, targets and weights."""
    if edge_weight is not None and not isinstance(edge_weight, Tensor):
        raise TypeError(f"edge_weight must be a tensor, but got {type(edge_weight).__name__}.")
    check_sizes(edge_index, edge_weight)
    check_devices(edge_index, edge_weight)
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
    source, target = edge_index.long()
    return source, target, edge_weight.reshape(-1).to(dtype)
