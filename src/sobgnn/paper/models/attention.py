"""GAT, SuperGAT and the graph Transformer: PyG's layers, written so that many members map over them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import add_self_loops

from sobgnn.graphs.graph import Graph
from sobgnn.nn.dropout import row_hashes
from sobgnn.nn.filter_bank import shared_product
from sobgnn.paper.models.contract import DEEP, Network, Setting, Source, at_rows, choice
from sobgnn.paper.models.layers import Net, glorot, layer_sizes, product

Kind = Literal["GAT", "SuperGAT", "Transformer"]
SLOPE = 0.2  # of the leaky ReLU, PyG's default
LINK_WEIGHT = 4.0  # weight of SuperGAT's link prediction loss, relative to cross-entropy: that of PyG's example
# Of the pairs that PyG's SuperGATConv samples, which are 0.8 of the edges and half as many others.
EDGE_SHARE, OTHER_SHARE, OTHERS_PER_EDGE = 2 / 3, 1 / 3, 0.4
_LAYER = 2000  # separates the draws of pairs from those of dropout


@dataclass(frozen=True)
class Edges:
    """The edges into R of N nodes, sorted by row and source.

    Attributes:
        targets: int64 [E], the row that each edge goes to.
        sources: int64 [E], the node that it comes from.
        weight: float32 [E]; self-loops have the mean weight of their node's edges, as in PyG.
        rows: R.
        index: int64 [R], the nodes of the rows; ``None`` for all in their order.
    """

    targets: Tensor
    sources: Tensor
    weight: Tensor
    rows: int
    index: Tensor | None = None

    def softmax(self, score: Tensor) -> Tensor:
        """The shares [E, H] of each edge among those into its row, of scores [E, H]."""
        lowest = score.new_full((self.rows, score.shape[1]), float("-inf"))
        highest = lowest.scatter_reduce(0, self.targets.unsqueeze(1).expand_as(score), score.detach(), "amax")
        powers = (score - highest.index_select(0, self.targets)).exp()
        return powers / self.sums(powers).index_select(0, self.targets)

    def sums(self, values: Tensor) -> Tensor:
        """Sums of [E, H] over the edges into each row: [R, H]."""
        return values.new_zeros(self.rows, values.shape[1]).index_add(0, self.targets, values)

    def dots(self, query: Tensor, key: Tensor) -> Tensor:
        """The product of each edge's row of ``query`` [R, H, c] and node of ``key`` [N, H, c]: [E, H]."""
        found: Tensor = _Dots.apply(query, self.targets, key, self.sources)  # type: ignore[no-untyped-call]
        return found

    def weighted(self, shares: Tensor, value: Tensor) -> Tensor:
        """Sums of shares [E, H] times ``value`` [N, H, c] over the edges into each row: [R, H, c]."""
        found: Tensor = _Sums.apply(shares, value, self.targets, self.sources, self.rows)  # type: ignore[no-untyped-call]
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
    nodes = graph.num_nodes
    (sources, targets), weight = graph.edges()
    if loops:
        (sources, targets), weight = add_self_loops(torch.stack([sources, targets]), weight, "mean", nodes)
    if index is not None:
        place = torch.full((nodes,), -1, device=index.device)
        place[index] = torch.arange(len(index), device=index.device)
        kept = place[targets] >= 0
        sources, targets, weight = sources[kept], place[targets[kept]], weight[kept]
    order = torch.argsort(targets * nodes + sources)
    return Edges(targets[order], sources[order], weight[order], nodes if index is None else len(index), index)


class AttentionConv(nn.Module):
    r"""One layer of attention over the edges into each node.

    .. math:: H'_i = \sum_{e = (i, j)} p_{e} \, v_j + \text{bias}, \qquad p = \mathrm{softmax}_i(s_e)

    for every head, with the scores, w the edge weights:

    - GAT: :math:`s = \mathrm{LeakyReLU}(a_t \cdot v_i + a_s \cdot v_j + w \, a_w)`, v = H W, self-loops added:
      GATConv with the weights as its one edge feature.
    - SuperGAT: :math:`s = \mathrm{LeakyReLU}((a_t \cdot v_i + a_s \cdot v_j) \, \sigma(v_i \cdot v_j))`, self-loops
      added: SuperGATConv (MX), which has no edge features; for its link prediction loss see :class:`Links`.
    - Transformer: :math:`s = q_i \cdot (k_j + w u) / \sqrt{c}`, values :math:`v_j + w u`, plus :math:`H_i W_0`:
      TransformerConv with the weights as its one edge feature.

    Args:
        kind: Which of these.
        in_channels: Size of each input row.
        out_channels: Size of each head.
        heads: Number of heads.
        concat: Whether heads are concatenated; otherwise they are averaged.
    """

    def __init__(self, kind: Kind, in_channels: int, out_channels: int, heads: int, *, concat: bool) -> None:
        super().__init__()
        self.kind, self.heads, self.out_channels, self.concat = kind, heads, out_channels, concat
        own = out_channels * heads if concat else out_channels
        maps = 3 if kind == "Transformer" else 1
        self.weight = nn.Parameter(torch.empty(maps, in_channels, heads * out_channels))
        self.bias = nn.Parameter(torch.empty(own))
        if kind == "Transformer":
            self.map_bias = nn.Parameter(torch.empty(3, heads * out_channels))
            self.edge = nn.Parameter(torch.empty(heads, out_channels))
            self.skip = nn.Parameter(torch.empty(1, in_channels, own))
        else:
            self.target = nn.Parameter(torch.empty(heads, out_channels))
            self.source = nn.Parameter(torch.empty(heads, out_channels))
            if kind == "GAT":
                self.edge_score = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new Glorot weights; biases are 0."""
        for name, value in self.named_parameters():
            if name in ("bias", "map_bias"):
                nn.init.zeros_(value)
            elif name == "edge_score":  # in PyG a product of two vectors of this size
                nn.init.uniform_(value, -1 / math.sqrt(self.heads), 1 / math.sqrt(self.heads))
            else:
                glorot(value)

    def forward(self, h: Tensor, edges: Edges) -> Tensor:
        """Rows of h [N, in] to [R, out]."""
        mixed = self._transformer(h, edges) if self.kind == "Transformer" else self._attend(h, edges)
        mixed = mixed.flatten(1) if self.concat else mixed.mean(dim=1)
        if self.kind == "Transformer":
            mixed = mixed + product(at_rows(h, edges.index), self.skip)
        return mixed + self.bias

    def values(self, h: Tensor) -> Tensor:
        """v = H W [N, H, c] of GAT and SuperGAT."""
        return product(h, self.weight).view(-1, self.heads, self.out_channels)

    def _attend(self, h: Tensor, edges: Edges) -> Tensor:
        v = self.values(h)
        # (H W) a is H (W a): a narrow product, instead of passes over all of v.
        ends = torch.stack([self.target, self.source])
        maps = torch.einsum("ihc,ehc->ieh", self.weight.view(-1, self.heads, self.out_channels), ends)
        target, source = product(h, maps.flatten(1).unsqueeze(0)).view(-1, 2, self.heads).unbind(dim=1)
        score = at_rows(target, edges.index).index_select(0, edges.targets) + source.index_select(0, edges.sources)
        if self.kind == "SuperGAT":
            score = score * edges.dots(at_rows(v, edges.index), v).sigmoid()
        else:
            score = score + edges.weight.to(h.dtype).unsqueeze(1) * self.edge_score
        return edges.weighted(edges.softmax(F.leaky_relu(score, SLOPE)), v)

    def _transformer(self, h: Tensor, edges: Edges) -> Tensor:
        maps = shared_product(h.unsqueeze(1).expand(-1, 3, -1), self.weight) + self.map_bias
        q, k, v = maps.view(-1, 3, self.heads, self.out_channels).unbind(dim=1)
        q, weight = at_rows(q, edges.index), edges.weight.to(h.dtype).unsqueeze(1)
        of_weight = (q * self.edge).sum(dim=2).index_select(0, edges.targets) * weight
        shares = edges.softmax((edges.dots(q, k) + of_weight) / math.sqrt(self.out_channels))
        return edges.weighted(shares, v) + edges.sums(shares * weight).unsqueeze(2) * self.edge


class Links:
    """SuperGAT's second loss: in training, edges are told from pairs of nodes without one, drawn at every step.

    Other pairs are drawn by stepping along a fixed random circle of all nodes, random distances forward and back, so
    that every node has equally many pairs, also in both directions; a pair that has an edge is ignored.

    Args:
        edges: Edges into all N nodes, with self-loops.
    """

    def __init__(self, edges: Edges) -> None:
        self.edges, nodes, device = edges, edges.rows, edges.targets.device
        self.keys = edges.targets * nodes + edges.sources
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(0))
        self.circle, self.place = order.to(device), order.argsort().to(device)
        self.distances = torch.arange(max(1, round(OTHERS_PER_EDGE / 2 * len(self.keys) / nodes)), device=device)

    def __call__(self, layer: nn.Module, h: Tensor, key: Tensor, number: int) -> Tensor:
        """What a layer with the input h adds to cross-entropy in the step of the key."""
        return LINK_WEIGHT * self.loss(layer.values(h), self.others(key, number))  # type: ignore[operator]

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


def _edges(source: Source, rows: Tensor | None, loops: bool) -> Edges:
    return edges_of(source.graph, rows, loops=loops)


def _links(source: Source) -> Links:
    return Links(source.keep(_edges, None, True))


def _attention(kind: Kind, *, links: bool = False) -> Network:
    """Layers of :class:`AttentionConv`, heads concatenated; the last one averages them."""

    def build(features: int, classes: int, setting: Setting) -> nn.Module:
        sizes, heads = layer_sizes(features, classes, setting), int(setting["heads"])
        last = len(sizes) - 2
        convs = [
            AttentionConv(kind, a if i == 0 else a * heads, b, heads, concat=i < last)
            for i, (a, b) in enumerate(pairwise(sizes))
        ]
        return Net(convs, setting, keyed=True)

    def inputs(source: Source, setting: Setting, rows: Tensor | None) -> dict[str, Any]:
        every, last = (source.keep(_edges, at, kind != "Transformer") for at in (None, rows))
        graphs = [every] * (int(setting["layers"]) - 1) + [last]
        return {"x": source.X, "graphs": graphs, "loss": source.keep(_links) if links else None}

    def width(setting: Setting) -> int:
        heads, layers, hidden = (int(setting[name]) for name in ("heads", "layers", "hidden"))
        return heads * layers * ((24 if kind == "Transformer" else 14 if links else 12) * hidden + 16)

    return Network(build, inputs, {**DEEP, "heads": choice(1, 2, 3, 4, 5, 6)}, width, headed=not links)


GAT, SUPERGAT, TRANSFORMER = _attention("GAT"), _attention("SuperGAT"), _attention("Transformer")
SUPERGAT_LINKS = _attention("SuperGAT", links=True)
