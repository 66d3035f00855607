"""The models' inputs: features, a graph, and everything derived from them that never changes, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.paper.models.edges import Edges, edges_of
from sobgnn.paper.models.links import Links
from sobgnn.paper.models.powers import MatrixPowers
from sobgnn.propagation import Stencil, csr_tensors

Kind = Literal["gcn", "adjacency", "cluster"]


@dataclass(frozen=True)
class Operator:
    """A fixed sparse matrix S [R, N] of a graph, times ``factor``.

    Args:
        stencil: The matrix, as the only order of a stencil.
        factor: Factor of the matrix.
        index: int64 [R], the rows that S has; ``None`` for all N.
    """

    stencil: Stencil
    factor: float = 1.0
    index: Tensor | None = None

    def __call__(self, H: Tensor) -> Tensor:
        """S H, [R, h] of H [N, h]."""
        product = propagation.expand(self.stencil, H)[:, 0]
        return product if self.factor == 1.0 else product * self.factor

    def own(self, H: Tensor) -> Tensor:
        """H at the rows of S, [R, h]."""
        return H if self.index is None else H.index_select(0, self.index)

    def scaled(self, factor: float) -> Operator:
        """The same matrix times another number."""
        return Operator(self.stencil, self.factor * factor, self.index)


class Source:
    """Features and a graph, and what models derive from them without learning.

    Args:
        graph: The graph of N points.
        X: float32 [N, F], on the graph's device.
    """

    def __init__(self, graph: Graph, X: Tensor) -> None:
        self.graph = graph
        self.X = X
        self._sobolev: dict[tuple[int, float], SobolevOperators] = {}
        self._matrix: dict[tuple[int, float, int | None], tuple[Tensor | None, MatrixPowers]] = {}
        self._edges: dict[tuple[bool, int | None], tuple[Tensor | None, Edges]] = {}
        self._powers: dict[Kind, list[Tensor]] = {}
        self._operators: dict[tuple[Kind, int | None], tuple[Tensor | None, Operator]] = {}

    def sobolev(self, alpha: int, epsilon: float) -> SobolevOperators:
        """The Sobolev operators; the last ones requested are cached."""
        key = (alpha, epsilon)
        if key not in self._sobolev:
            self._sobolev = {key: SobolevOperators(self.graph, alpha, epsilon)}
        return self._sobolev[key]

    def matrix_powers(self, alpha: int, epsilon: float, index: Tensor | None = None) -> MatrixPowers:
        """Matrix powers in place of Hadamard powers, or their rows ``index``; those of one α and ε are cached."""
        key = (alpha, epsilon, None if index is None else id(index))
        if key not in self._matrix:
            kept = {k: v for k, v in self._matrix.items() if k[:2] == key[:2]}
            self._matrix = {**kept, key: (index, MatrixPowers(self.graph, alpha, epsilon, index))}
        return self._matrix[key][1]

    def operator(self, kind: Kind, index: Tensor | None = None) -> Operator:
        r"""A fixed matrix, or its rows ``index``.

        ``"gcn"``: :math:`D^{-1/2}(A + I)D^{-1/2}`; ``"adjacency"``: :math:`D^{-1/2} A D^{-1/2}`; ``"cluster"``:
        :math:`D^{-1}(A + I)` without edge weights, as ClusterGCN defines it.
        """
        key = (kind, None if index is None else id(index))
        if key not in self._operators:  # the index is cached with it, so that its id stays unique
            self._operators[key] = (index, self._make(kind, index))
        return self._operators[key][1]

    def _make(self, kind: Kind, index: Tensor | None) -> Operator:
        if kind == "cluster":
            return Operator(_cluster_stencil(self.graph, index), 1.0, index)
        operators = SobolevOperators(self.graph, 1, 1.0 if kind == "gcn" else 0.0)
        return Operator((operators if index is None else operators.rows(index)).stencil(), 1.0, index)

    def edges(self, index: Tensor | None = None, *, loops: bool) -> Edges:
        """The edges into some nodes or all, for attention."""
        key = (loops, None if index is None else id(index))
        if key not in self._edges:
            self._edges[key] = (index, edges_of(self.graph, index, loops=loops))
        return self._edges[key][1]

    @cached_property
    def links(self) -> Links:
        """The edges with self-loops, and pairs without an edge, for SuperGAT's link prediction loss."""
        return Links(self.edges(loops=True))

    def powers(self, kind: Kind, highest: int) -> list[Tensor]:
        """X, S X, …, S^highest X."""
        known = self._powers.setdefault(kind, [self.X])
        while len(known) <= highest:
            known.append(self.operator(kind)(known[-1]))
        return known[: highest + 1]


def chebyshev(operator: Operator, X: Tensor, highest: int) -> list[Tensor]:
    """T_0(S) X, …, T_highest(S) X, the Chebyshev polynomials of a square operator."""
    terms = [X]
    for k in range(1, highest + 1):
        terms.append(operator(X) if k == 1 else 2 * operator(terms[-1]) - terms[-2])
    return terms


def _cluster_stencil(graph: Graph, index: Tensor | None) -> Stencil:
    """(D + I)⁻¹(A + I), unweighted; D the number of neighbors."""
    ones = torch.ones(graph.num_nodes, device=graph.device)
    right = torch.stack([ones, ones], dim=1)
    left = torch.stack([ones, 1 / (graph.degree + 1).float()], dim=1)
    weight = torch.ones_like(graph.weight)
    if index is None:
        csr = (graph.indptr, graph.indices, weight)
        return Stencil(*csr, *csr, left, right, 1.0)
    picked = index.cpu().numpy()
    arrays = (np.ones(graph.num_edges, np.float32), graph.indices.cpu().numpy(), graph.indptr.cpu().numpy())
    n = graph.num_nodes
    loops = (np.ones(len(picked), np.float32), (np.arange(len(picked)), picked))
    block = (sp.csr_array(arrays, shape=(n, n))[picked] + sp.csr_array(loops, shape=(len(picked), n))).tocsr()
    forward, backward = csr_tensors(block, graph.device), csr_tensors(block.T.tocsr(), graph.device)
    return Stencil(*forward, *backward, left[index], right, 0.0)
