"""GAT, SuperGAT and the graph Transformer: PyG's layers, computed by one fused pass for many members at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sobgnn.baselines.edges import Edges, own_edges
from sobgnn.baselines.links import Links
from sobgnn.baselines.networks import Dropout, glorot
from sobgnn.nn.cascade import shared_product
from sobgnn.nn.dropout import row_hashes
from sobgnn.propagation import backend
from sobgnn.propagation.attention import additive, gated, scaled_dot
from sobgnn.propagation.attention.layer import (
    Drop,
    Weights,
    attend_members,
    fits,
    product_members,
    products_members,
)
from sobgnn.propagation.attention.links import link_losses
from sobgnn.propagation.attention.terms import ADDITIVE, GATED, SCALED_DOT
from sobgnn.propagation.attention.walks import Shape
from sobgnn.propagation.drop import column_hashes, thresholds

Kind = Literal["GAT", "SuperGAT", "Transformer"]
LINK_WEIGHT = 4.0  # weight of SuperGAT's link prediction loss, relative to cross-entropy
_SCORES = {"GAT": ADDITIVE, "SuperGAT": GATED, "Transformer": SCALED_DOT}


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
            mixed = mixed + _product(edges.own(h), self.skip)
        return mixed + self.bias

    def values(self, h: Tensor) -> Tensor:
        """v = H W [N, H, c] of GAT and SuperGAT."""
        return _product(h, self.weight).view(-1, self.heads, self.out_channels)

    def maps(self, own: Mapping[str, Tensor], h: Tensor, edges: Edges) -> tuple[Tensor, Tensor | None]:
        """Inputs of :meth:`members`, from h [N, S, in], or [N, in] if S members share it.

        Returns:
            Inputs of :func:`attend_members` and, for the Transformer's last layer, what belongs only to rows: queries
            and H_i W_0 [R, S, H · c + c].
        """
        if self.kind != "Transformer":
            return product_members(h, own["weight"].squeeze(1)), None
        query, key, value = own["weight"].unbind(dim=1)
        skip = own["skip"].squeeze(1)
        if self.concat:
            return product_members(h, query, skip, key, value), None
        size, features, _ = skip.shape
        if h.ndim == 2:  # the only layer, whose input may be padded
            h = h[:, None, :features].expand(-1, size, -1).contiguous()
        return products_members(h, edges.own_members(size), (key, value), (query, skip))

    def members(
        self, own: Mapping[str, Tensor], maps: Tensor, at_rows: Tensor | None, edges: Edges, drop: Drop | None
    ) -> Tensor:
        """The layer of S members on CUDA.

        Args:
            own: The members' parameters by name, stacked [S, ...].
            maps: First result of :meth:`maps`.
            at_rows: Second result of :meth:`maps`.
            edges: Edges into R rows.
            drop: Dropout after ReLU, if heads are concatenated.

        Returns:
            Dropout of ReLU of the result [R, S, out] if heads are concatenated; otherwise their mean [R, S, out].
        """
        size, width = len(own["weight"]), self.heads * self.out_channels
        queries, skip = (None, None) if at_rows is None else torch.split(at_rows, [width, self.out_channels], dim=2)
        if self.kind == "Transformer":
            first, second, edge = own["map_bias"].flatten(1), own["edge"].flatten(0, 1), None
        else:
            first, second = own["target"].flatten(0, 1), own["source"].flatten(0, 1)
            edge = own["edge_score"].flatten() if self.kind == "GAT" else None
        result = attend_members(
            edges.pattern,
            edges.nodes,
            _SCORES[self.kind],
            Shape(size, self.heads, self.out_channels),
            maps,
            Weights(first, second, edge, own["bias"].flatten() if self.concat else None),
            drop,
            long=edges.long,
            queries=queries,
            apart=edges.members > 1,
        )
        if self.concat:
            return result.view(len(result), size, -1)
        mixed = result.view(len(result), size, self.heads, -1).mean(dim=2) + own["bias"]
        return mixed if skip is None else mixed + skip

    def _attend(self, h: Tensor, v: Tensor, edges: Edges) -> Tensor:
        # (H W) a is H (W a): a narrow product, instead of passes over all of v.
        ends = torch.stack([self.target, self.source])
        maps = torch.einsum("ihc,ehc->ieh", self.weight.view(-1, self.heads, self.out_channels), ends)
        target, source = _product(h, maps.flatten(1).unsqueeze(0)).view(-1, 2, self.heads).unbind(dim=1)
        target = edges.own(target)
        if self.kind == "SuperGAT":
            return gated(edges.pattern, edges.own(v), target, source, v)
        return additive(edges.pattern, target, source, self.edge_score, v)

    def _transformer(self, h: Tensor, edges: Edges) -> Tensor:
        maps = shared_product(h.unsqueeze(1).expand(-1, 3, -1), self.weight) + self.map_bias
        q, k, v = maps.view(-1, 3, self.heads, self.out_channels).unbind(dim=1)
        q = edges.own(q)
        sums, mean_weight = scaled_dot(edges.pattern, q, k, (q * self.edge).sum(dim=2), v)
        return sums + mean_weight.unsqueeze(2) * self.edge


class AttentionNet(nn.Module):
    """Layers of :class:`AttentionConv` with ReLU and dropout between them, heads concatenated; the last averages them.

    Args:
        kind: Which attention.
        sizes: Features, size of each head in each hidden layer, classes.
        heads: Number of heads of every layer.
        dropout: Share of hidden entries dropped.

    SuperGAT may also learn to distinguish edges from other pairs (``links``): in training, its link prediction loss,
    summed over the layers and times 4, the factor of PyG's example, is then returned with the logits.
    """

    keyed_dropout = True

    def __init__(self, kind: Kind, sizes: Sequence[int], heads: int, dropout: float) -> None:
        super().__init__()
        last = len(sizes) - 2
        self.layers = nn.ModuleList(
            AttentionConv(kind, a if i == 0 else a * heads, b, heads, concat=i < last)
            for i, (a, b) in enumerate(pairwise(sizes))
        )
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(
        self, x: Tensor, edges: Edges, last: Edges, links: Links | None = None, dropout_key: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits at the rows of ``last``; with a key, randomness is a function of key, node, layer and column."""
        losses = []
        for i, layer in enumerate(self._convs()):
            h = x if i == 0 else self.dropout(x.relu(), dropout_key, i)
            if links is not None and self.training and dropout_key is not None:
                losses.append(links.loss(layer.values(h), links.others(dropout_key, i)))
            x = layer(h, edges if layer.concat else last)
        return (x, LINK_WEIGHT * torch.stack(losses).sum(dim=0)) if losses else x

    def members(
        self,
        stacked: Mapping[str, Tensor],
        keys: Tensor | None,
        x: Tensor,
        edges: Edges,
        last: Edges,
        links: Links | None = None,
    ) -> Tensor | tuple[Tensor, Tensor] | None:
        """The forward of S members, logits [S, R, C], from their stacked parameters and buffers.

        On CUDA every layer is a few kernels for all members; elsewhere, ``None``: map the forward over them.
        """
        size = len(next(iter(stacked.values())))
        if not self._at_once(x, size) or (self.training and keys is None):
            return None
        layers = self._convs()
        # Rows start at multiples of 16 bytes: tensor cores are slow otherwise.
        h = F.pad(x, (0, -x.shape[1] % 8))
        losses = []
        for i, layer in enumerate(layers):
            own = {name: stacked[f"layers.{i}.{name}"] for name, _ in layer.named_parameters()}
            drop = None
            if self.training and keys is not None and layer.concat:
                rate = stacked.get("dropout.p", self.dropout.p).to(x).expand(len(keys))
                rows = row_hashes(edges.nodes.unsqueeze(1), keys, i + 1)
                columns = column_hashes(layer.heads * layer.out_channels, x.device)
                drop = Drop(rows, columns, thresholds(rate), 1 / (1 - rate))
            into = edges if layer.concat else last
            maps, at_rows = layer.maps(own, h, into)
            if links is not None and self.training and keys is not None:
                shape = Shape(size, layer.heads, layer.out_channels)
                losses.append(link_losses(edges.pattern, links.others(keys, i).int(), shape, maps, edges.long))
            h = layer.members(own, maps, at_rows, into, drop)
        logits = h.transpose(0, 1)
        return (logits, LINK_WEIGHT * torch.stack(losses).sum(dim=0)) if losses else logits

    def own_rows(
        self, rows: Tensor, x: Tensor, edges: Edges, last: Edges, *links: Links
    ) -> tuple[Tensor | Edges | Links, ...] | None:
        """Inputs of :meth:`members` for logits [S, T, C] at each member's own rows [S, T] among those of last."""
        return (x, edges, own_edges(last, rows), *links) if self._at_once(x, len(rows)) else None

    def _at_once(self, x: Tensor, members: int) -> bool:
        """Whether there are kernels for this number of members and these inputs."""
        shapes = (Shape(members, layer.heads, layer.out_channels) for layer in self._convs())
        return x.dtype == torch.float32 and backend(x) == "triton" and all(fits(len(x), shape) for shape in shapes)

    def _convs(self) -> list[AttentionConv]:
        return [layer for layer in self.layers if isinstance(layer, AttentionConv)]


def _product(h: Tensor, weight: Tensor) -> Tensor:
    return shared_product(h.unsqueeze(1), weight).squeeze(1)
