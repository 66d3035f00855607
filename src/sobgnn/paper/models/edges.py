"""The edges of a graph for attention, with or without self-loops, into all nodes or some; and sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.graphs.graph import Graph


@dataclass(frozen=True)
class Edges:
    """The edges into R of N nodes, sorted by row.

    Attributes:
        targets: int64 [E], the row that each edge goes to.
        sources: int64 [E], the node that it comes from.
        weight: float32 [E]; self-loops have the mean weight of their node's edges, as in PyG.
        nodes: int64 [R], the nodes of the rows.
        whole: Whether the rows are all nodes in their order.
    """

    targets: Tensor
    sources: Tensor
    weight: Tensor
    nodes: Tensor
    whole: bool

    def own(self, H: Tensor) -> Tensor:
        """H at the rows."""
        return H if self.whole else H.index_select(0, self.nodes)

    def softmax(self, score: Tensor) -> Tensor:
        """The shares [E, H] of each edge among those into its row, of scores [E, H]."""
        rows, heads = len(self.nodes), score.shape[1]
        index = self.targets.unsqueeze(1).expand(-1, heads)
        lowest = score.new_full((rows, heads), float("-inf"))
        highest = lowest.scatter_reduce(0, index, score.detach(), "amax")
        powers = (score - highest.index_select(0, self.targets)).exp()
        return powers / self.sums(powers).index_select(0, self.targets)

    def sums(self, values: Tensor) -> Tensor:
        """Sums of [E, H] over the edges into each row: [R, H]."""
        return values.new_zeros(len(self.nodes), values.shape[1]).index_add(0, self.targets, values)

    def dots(self, query: Tensor, key: Tensor) -> Tensor:
        """The product of each edge's row of ``query`` [R, H, c] and node of ``key`` [N, H, c]: [E, H]."""
        found: Tensor = _Dots.apply(query, self.targets, key, self.sources)  # type: ignore[no-untyped-call]
        return found

    def weighted(self, shares: Tensor, value: Tensor) -> Tensor:
        """Sums of shares [E, H] times ``value`` [N, H, c] over the edges into each row: [R, H, c]."""
        size = len(self.nodes)
        found: Tensor = _Sums.apply(shares, value, self.targets, self.sources, size)  # type: ignore[no-untyped-call]
        return found


class _Dots(torch.autograd.Function):
    """a[i] · b[j] for each head. Keeps a and b alone, and makes the ends of one head at a time."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> Tensor:
        ends = ((a[:, head].index_select(0, i), b[:, head].index_select(0, j)) for head in range(a.shape[1]))
        return torch.stack([(one * other).sum(dim=1) for one, other in ends], dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, i, b, j = ctx.saved_tensors
        return _Sums.apply(grad, b, i, j, len(a)), None, _Sums.apply(grad, a, j, i, len(b)), None  # type: ignore[no-untyped-call]


class _Sums(torch.autograd.Function):
    """Sums of shares · x[j] at i, for each head."""

    generate_vmap_rule = True

    @staticmethod
    def forward(shares: Tensor, x: Tensor, i: Tensor, j: Tensor, size: int) -> Tensor:
        zeros = x.new_zeros(size, x.shape[2])
        parts = (shares[:, head, None] * x[:, head].index_select(0, j) for head in range(x.shape[1]))
        return torch.stack([zeros.index_add(0, i, part) for part in parts], dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:4])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        shares, x, i, j = ctx.saved_tensors
        to_shares, to_x = _Dots.apply(grad, i, x, j), _Sums.apply(shares, grad, j, i, len(x))  # type: ignore[no-untyped-call]
        return to_shares, to_x, None, None, None


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
    nodes = torch.arange(graph.num_nodes, device=graph.device) if index is None else index.to(graph.device)
    if index is not None:
        matrix = matrix[index.cpu().numpy()]
    matrix.sort_indices()
    targets = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    rows, columns = (torch.from_numpy(part.astype(np.int64)).to(graph.device) for part in (targets, matrix.indices))
    weight = torch.from_numpy(matrix.data.astype(np.float32)).to(graph.device)
    return Edges(rows, columns, weight, nodes, index is None)
