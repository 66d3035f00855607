"""GAT, SuperGAT and the graph Transformer: PyG's layers, written so that many members map over them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sobgnn.nn.filter_bank import shared_product
from sobgnn.paper.models.contract import DEEP, Call, Choice, Network, Setting, layer_sizes
from sobgnn.paper.models.edges import Edges, Links, edges_of
from sobgnn.paper.models.layers import Layers, glorot, product, with_head
from sobgnn.paper.models.source import Source

Kind = Literal["GAT", "SuperGAT", "Transformer"]
LINK_WEIGHT = 4.0  # weight of SuperGAT's link prediction loss, relative to cross-entropy
SLOPE = 0.2  # of the leaky ReLU, PyG's default


class AttentionConv(nn.Module):
    r"""One layer of attention over the edges into each node.

    .. math:: H'_i = \sum_{e = (i, j)} p_{e} \, v_j + \text{bias}, \qquad p = \mathrm{softmax}_i(s_e)

    for every head, with the scores, w the edge weights:

    - GAT: :math:`s = \mathrm{LeakyReLU}(a_t \cdot v_i + a_s \cdot v_j + w \, a_w)`, v = H W, self-loops added:
      GATConv with the weights as its one edge feature.
    - SuperGAT: :math:`s = \mathrm{LeakyReLU}((a_t \cdot v_i + a_s \cdot v_j) \, \sigma(v_i \cdot v_j))`, self-loops
      added: SuperGATConv (MX), which has no edge features; for its link prediction loss see :class:`AttentionNet`.
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
        mixed = self._transformer(h, edges) if self.kind == "Transformer" else self._attend(h, self.values(h), edges)
        mixed = mixed.flatten(1) if self.concat else mixed.mean(dim=1)
        if self.kind == "Transformer":
            mixed = mixed + product(edges.own(h), self.skip)
        return mixed + self.bias

    def values(self, h: Tensor) -> Tensor:
        """v = H W [N, H, c] of GAT and SuperGAT."""
        return product(h, self.weight).view(-1, self.heads, self.out_channels)

    def _attend(self, h: Tensor, v: Tensor, edges: Edges) -> Tensor:
        # (H W) a is H (W a): a narrow product, instead of passes over all of v.
        ends = torch.stack([self.target, self.source])
        maps = torch.einsum("ihc,ehc->ieh", self.weight.view(-1, self.heads, self.out_channels), ends)
        target, source = product(h, maps.flatten(1).unsqueeze(0)).view(-1, 2, self.heads).unbind(dim=1)
        target = edges.own(target)
        score = target.index_select(0, edges.targets) + source.index_select(0, edges.sources)
        if self.kind == "SuperGAT":
            score = score * edges.dots(edges.own(v), v).sigmoid()
        else:
            score = score + _weight(edges, h) * self.edge_score
        return edges.weighted(edges.softmax(F.leaky_relu(score, SLOPE)), v)

    def _transformer(self, h: Tensor, edges: Edges) -> Tensor:
        maps = shared_product(h.unsqueeze(1).expand(-1, 3, -1), self.weight) + self.map_bias
        q, k, v = maps.view(-1, 3, self.heads, self.out_channels).unbind(dim=1)
        q = edges.own(q)
        weight = _weight(edges, h)
        of_weight = (q * self.edge).sum(dim=2).index_select(0, edges.targets) * weight
        shares = edges.softmax((edges.dots(q, k) + of_weight) / math.sqrt(self.out_channels))
        return edges.weighted(shares, v) + edges.sums(shares * weight).unsqueeze(2) * self.edge


class AttentionNet(Layers):
    """Layers of :class:`AttentionConv` with ReLU and dropout between them, heads concatenated; the last averages them.

    SuperGAT may also learn to distinguish edges from other pairs (``links``): in training, its link prediction loss,
    summed over the layers and times 4, the factor of PyG's example, is then returned with the logits.

    Args:
        kind: Which attention.
        sizes: Features, size of each head in each hidden layer, classes.
        heads: Number of heads of every layer.
        dropout: Share of hidden entries dropped.
    """

    keyed_dropout = True

    def __init__(self, kind: Kind, sizes: Sequence[int], heads: int, dropout: float) -> None:
        last = len(sizes) - 2
        convs = [
            AttentionConv(kind, a if i == 0 else a * heads, b, heads, concat=i < last)
            for i, (a, b) in enumerate(pairwise(sizes))
        ]
        super().__init__(convs, dropout)

    def forward(
        self, x: Tensor, edges: Edges, last: Edges, links: Links | None = None, dropout_key: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits at the rows of ``last``; with a key, randomness is a function of key, node, layer and column."""
        losses = []
        for i, layer in enumerate(self.layers):
            h = x if i == 0 else self.dropout(x.relu(), dropout_key, i)
            if links is not None and self.training and dropout_key is not None:
                losses.append(links.loss(layer.values(h), links.others(dropout_key, i)))  # type: ignore[operator]
            x = layer(h, edges if layer.concat else last)
        return (x, LINK_WEIGHT * torch.stack(losses).sum(dim=0)) if losses else x


def _weight(edges: Edges, like: Tensor) -> Tensor:
    """The edges' weights [E, 1] in the type of the rows."""
    return edges.weight.to(like.dtype).unsqueeze(1)


def _edges(source: Source, rows: Tensor | None, loops: bool) -> Edges:
    return edges_of(source.graph, rows, loops=loops)


def _links(source: Source) -> Links:
    return Links(source.keep(_edges, None, True))


def _network(kind: Kind, *, links: bool = False) -> Network:
    def build(features: int, classes: int, setting: Setting) -> nn.Module:
        sizes = layer_sizes(features, classes, setting)
        return with_head(AttentionNet(kind, sizes, int(setting["heads"]), float(setting["dropout"])), setting)

    def inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
        every, last = (source.keep(_edges, at, kind != "Transformer") for at in (None, rows))
        return Call((source.X, every, last, source.keep(_links)) if links else (source.X, every, last))

    def width(setting: Setting) -> int:
        heads, layers, hidden = (int(setting[name]) for name in ("heads", "layers", "hidden"))
        return heads * layers * ((24 if kind == "Transformer" else 14 if links else 12) * hidden + 16)

    return Network(build, inputs, {**DEEP, "heads": Choice((1, 2, 3, 4, 5, 6))}, width, headed=not links)


GAT, SUPERGAT, TRANSFORMER = _network("GAT"), _network("SuperGAT"), _network("Transformer")
SUPERGAT_LINKS = _network("SuperGAT", links=True)
