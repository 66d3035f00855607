"""The edges of a graph as attention reads them: with or without self-loops, into all nodes or some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.graphs.graph import Graph
from sobgnn.propagation.attention import EdgePattern


@dataclass(frozen=True)
class Edges:
    """The edges into R of N nodes.

    Attributes:
        pattern: Sorted by row and by node; self-loops have the mean weight of their node's edges, as in PyG.
        index: int64 [R], the nodes of the rows; ``None`` for all N.
    """

    pattern: EdgePattern
    index: Tensor | None

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


def edges_of(graph: Graph, index: Tensor | None = None, *, loops: bool) -> Edges:
    """The edges into some nodes or all, with or without self-loops."""
    matrix = graph.to_scipy().astype(np.float64)
    if loops:
        degree = np.diff(matrix.indptr)
        mean = np.asarray(matrix.sum(axis=1)).ravel() / np.maximum(degree, 1)
        # Shifted while they are added: an isolated node's loop has weight 0 and must stay an entry.
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
