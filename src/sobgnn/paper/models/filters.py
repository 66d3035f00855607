"""GCN, Cheby and ClusterGCN: layers over polynomials of a fixed operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from sobgnn.paper.models.contract import DEEP, Call, Choice, Network, Setting, layer_sizes
from sobgnn.paper.models.layers import Layers, draw, product, with_head
from sobgnn.paper.models.source import Kind, Operator, Source


class FilterConv(nn.Module):
    r"""One layer over polynomials of a fixed operator.

    .. math:: H' = \sum_{k \in \mathcal{K}} T_k(S) H W_k + b

    with Chebyshev's polynomials :math:`T_0 = 1, \, T_1(S) = S, \, T_2(S) = 2S^2 - 1`. Degrees {1} over
    :math:`D^{-1/2}(A+I)D^{-1/2}` is GCNConv, {0, 1} over :math:`D^{-1}(A+I)` ClusterGCNConv, {0, …, K-1} over
    :math:`-D^{-1/2}AD^{-1/2}` ChebConv with K terms.
    """

    def __init__(self, in_channels: int, out_channels: int, degrees: Sequence[int]) -> None:
        super().__init__()
        self.degrees = tuple(degrees)
        self.weight = nn.Parameter(torch.empty(len(self.degrees), in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights; the bias is 0."""
        draw(self)

    def constant(self, terms: Tensor) -> Tensor:
        """The layer from precomputed T_k(S) H, side by side: [R, |K| · in] to [R, out]."""
        return product(terms, self.weight.flatten(0, 1).unsqueeze(0)) + self.bias

    def forward(self, h: Tensor, operator: Operator, last: Operator) -> Tensor:
        """The layer at the rows of ``last``, which has rows of ``operator``."""
        terms = {k: h @ self.weight[i] for i, k in enumerate(self.degrees)}
        parts = [last.own(terms[0])] if 0 in terms else []
        if 2 in terms:  # S acts on rows of out_channels alone: S (H W_1 + 2 S H W_2) - H W_2
            parts += [last(terms[1] + 2 * operator(terms[2])), -last.own(terms[2])]
        elif 1 in terms:
            parts.append(last(terms[1]))
        return sum(parts[1:], parts[0]) + self.bias


class FilterNet(Layers):
    """Layers of :class:`FilterConv` with ReLU and dropout between them; the last one returns logits.

    Args:
        sizes: Features, hidden sizes, classes.
        degrees: Degrees of every layer's polynomials.
        dropout: Share of hidden entries dropped.
    """

    def __init__(self, sizes: Sequence[int], degrees: Sequence[int], dropout: float) -> None:
        super().__init__([FilterConv(a, b, degrees) for a, b in pairwise(sizes)], dropout)

    def forward(self, first: Tensor, operator: Operator, last: Operator) -> Tensor:
        """Logits at the rows of ``last``, from T_k(S) X side by side [N, |K| · F]."""
        h: Tensor = self.layers[0].constant(first)  # type: ignore[operator]
        for i, layer in enumerate(self.layers):
            if i > 0:
                h = layer(self.dropout(h.relu()), operator, last if i == len(self.layers) - 1 else operator)
        return h


def _network(kind: Kind, degrees: Sequence[int] | None, sign: int = 1, **extra: Choice) -> Network:
    """A row of the table; without ``degrees``, they are 0, …, terms - 1 of the setting."""

    def degrees_of(setting: Setting) -> Sequence[int]:
        return range(int(setting["terms"])) if degrees is None else degrees

    def build(features: int, classes: int, setting: Setting) -> nn.Module:
        sizes = layer_sizes(features, classes, setting)
        return with_head(FilterNet(sizes, degrees_of(setting), float(setting["dropout"])), setting)

    def inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
        operator, last = (replace(source.operator(kind, at), sign=sign) for at in (None, rows))
        degrees = degrees_of(setting)
        terms = [source.X, operator(source.X)]
        if 2 in degrees:
            terms.append(2 * operator(terms[1]) - source.X)
        return Call((torch.cat([terms[k] for k in degrees], dim=1), operator, last))

    def width(setting: Setting) -> int:
        return int(setting["hidden"]) * (int(setting["layers"]) - 1) * (6 + 2 * len(degrees_of(setting)))

    return Network(build, inputs, {**DEEP, **extra}, width, headed=True)


GCN = _network("gcn", (1,))
CLUSTER_GCN = _network("cluster", (0, 1))
CHEBY = _network("adjacency", None, -1, terms=Choice((1, 2, 3)))
