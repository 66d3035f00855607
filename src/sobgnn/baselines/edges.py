"""The edges of a graph for attention: with or without self-loops, into all nodes, some, or a member's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.graphs.graph import Graph
from sobgnn.propagation.attention import EdgePattern
from sobgnn.propagation.attention.walks import Long


@dataclass(frozen=True)
class Edges:
    """The edges into R of N nodes.

    Attributes:
        pattern: Sorted by row and by node; self-loops have the mean weight of their node's edges, as in PyG.
        index: int64 [R], the nodes of the rows; ``None`` for all N.
        members: S, if each member has its own rows: node n of member s is then n · S + s, and so are rows.
    """

    pattern: EdgePattern
    index: Tensor | None
    members: int = 1

    @cached_property
    def long(self) -> Long:
        """Rows and nodes of many edges."""
        return Long.of(self.pattern)

    @property
    def nodes(self) -> Tensor:
        """int64 [R], the nodes of the rows."""
        if self.index is not None:
            return self.index
        indptr = self.pattern.indptr
        return torch.arange(len(indptr) - 1, device=indptr.device)

    def own(self, H: Tensor) -> Tensor:
        """H at the rows."""
        return H if self.index is None else H.index_select(0, self.index)

    def own_members(self, members: int) -> Tensor:
        """int64 [R · S], the nodes of S members' rows: node n of member s is n · S + s."""
        if self.members > 1:
            return self.nodes
        return (self.nodes.unsqueeze(1) * members + torch.arange(members, device=self.nodes.device)).flatten()


def own_edges(edges: Edges, rows: Tensor) -> Edges:
    """The edges into each member's own rows.

    Args:
        edges: Edges into R rows that all members share.
        rows: int64 [S, T], each member's rows, as numbers among the R.
    """
    members, count = rows.shape
    indptr, sources, weight, t_indptr = edges.pattern[:4]
    rows = rows.t().flatten()
    member = torch.arange(members, device=rows.device).repeat(count)
    begin, degree = indptr[rows], indptr.diff()[rows]
    ends = _pointers(degree)
    of_edge = torch.arange(len(rows), device=rows.device).repeat_interleave(degree)
    place = torch.arange(len(of_edge), device=rows.device) + (begin - ends[:-1])[of_edge]
    source, weight = sources[place] * members + member[of_edge], weight[place]
    order = source.argsort(stable=True)
    t_ends = _pointers(torch.bincount(source, minlength=(len(t_indptr) - 1) * members))
    by_row, by_node = (ends, source.int(), weight), (t_ends, of_edge[order].int(), weight[order])
    return Edges(EdgePattern(*by_row, *by_node), edges.nodes[rows] * members + member, members)


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def edges_of(graph: Graph, index: Tensor | None = None, *, loops: bool) -> Edges:
    """The edges into some nodes or all, with or without self-loops."""
    matrix = graph.to_scipy().astype(np.float64)
    if loops:
        degree = np.diff(matrix.indptr)
        mean = np.asarray(matrix.sum(axis=1)).ravel() / np.maximum(degree, 1)
        # Shifted during the addition: an isolated node's loop has weight 0 and must stay an entry.
        matrix.data += 1
        matrix = (matrix + sp.diags_array(mean + 1)).tocsr()
        matrix.data -= 1
    if index is not None:
        matrix = matrix[index.cpu().numpy()]
    matrix.sort_indices()

    def tensor(values: Any, dtype: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=dtype)).to(graph.device)

    parts = [
        tensor(part, dtype)
        for csr in (matrix, matrix.T.tocsr())
        for part, dtype in ((csr.indptr, np.int64), (csr.indices, np.int32), (csr.data, np.float32))
    ]
    return Edges(EdgePattern(*parts), index)
