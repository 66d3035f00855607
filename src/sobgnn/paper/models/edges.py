"""The edges of a graph for attention, sums over them, and pairs without an edge for SuperGAT's second loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.graphs.graph import Graph
from sobgnn.nn.dropout import row_hashes

# Of the pairs that PyG's SuperGATConv samples, which are 0.8 of the edges and half as many others.
EDGE_SHARE, OTHER_SHARE, OTHERS_PER_EDGE = 2 / 3, 1 / 3, 0.4
_LAYER = 2000  # separates the draws of pairs from those of dropout


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
        lowest = score.new_full((len(self.nodes), score.shape[1]), float("-inf"))
        highest = lowest.scatter_reduce(0, self.targets.unsqueeze(1).expand_as(score), score.detach(), "amax")
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


class Links:
    """The edges of a graph, in both directions, and pairs of nodes without an edge, drawn at every step.

    Other pairs are drawn by stepping along a fixed random circle of all nodes, random distances forward and back, so
    that every node has equally many pairs, also in both directions; a pair that has an edge is ignored.

    Args:
        edges: Edges into all N nodes, with self-loops.
    """

    def __init__(self, edges: Edges) -> None:
        self.edges, nodes, device = edges, len(edges.nodes), edges.nodes.device
        self.keys = edges.targets * nodes + edges.sources
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(0))
        self.circle, self.place = order.to(device), order.argsort().to(device)
        self.distances = torch.arange(max(1, round(OTHERS_PER_EDGE / 2 * len(self.keys) / nodes)), device=device)

    def others(self, key: Tensor, layer: int) -> Tensor:
        """int64 [N, T], drawn partners of every node, -1 if a pair has an edge; keys [S] give [S, N, T].

        Args:
            key: int64, the key of a member and a step.
            layer: Distinguishes the layers of one step.
        """
        nodes = len(self.circle)
        hashed = row_hashes(self.distances, key.unsqueeze(-1), _LAYER + layer).long() % 2**31
        distance = 1 + hashed % max(1, nodes - 1)
        distance = torch.cat([distance, nodes - distance], dim=-1).unsqueeze(-2)
        partner = self.circle[(self.place.unsqueeze(1) + distance) % nodes]
        pair = torch.arange(nodes, device=key.device).unsqueeze(1) * nodes + partner
        found = torch.searchsorted(self.keys, pair).clamp_max(len(self.keys) - 1)
        return torch.where(self.keys[found] == pair, -1, partner)

    def loss(self, value: Tensor, others: Tensor) -> Tensor:
        r"""The loss of one member: edges score high, other pairs low.

        .. math:: \ell_{ij} = \tfrac1H v_i \cdot v_j, \qquad
           L = \tfrac{2}{3} \, \mathrm{mean}_{(i, j) \in E} \, \zeta(-\ell_{ij})
             + \tfrac{1}{3} \, \mathrm{mean}_{(i, j) \in U} \, \zeta(\ell_{ij}), \qquad \zeta(x) = \log(1 + e^x)

        over the edges E and drawn pairs U that are none.

        Args:
            value: [N, H, c].
            others: int64 [N, T].
        """
        rows, known, heads = value.flatten(1), others >= 0, value.shape[1]
        edge = (rows.index_select(0, self.edges.targets) * rows.index_select(0, self.edges.sources)).sum(dim=1)
        partners = rows.index_select(0, others.clamp_min(0).flatten()).view(*others.shape, -1)
        other = torch.einsum("nd,ntd->nt", rows, partners)
        others_loss = torch.where(known, F.softplus(other / heads), 0.0).sum() / known.sum().clamp_min(1)
        return EDGE_SHARE * F.softplus(-edge / heads).mean() + OTHER_SHARE * others_loss
