"""GCN, Cheby and ClusterGCN: layers over polynomials of a fixed operator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from sobgnn.nn.filter_bank import shared_product
from sobgnn.paper.models.contract import DEEP, Call, Network, layer_sizes
from sobgnn.paper.models.layers import Dropout, glorot, with_head
from sobgnn.paper.models.source import Kind, Operator, Source, chebyshev
from sobgnn.paper.models.space import Choice, Setting, Uniform


class FilterConv(nn.Module):
    r"""One layer over polynomials of a fixed operator.

    .. math:: H' = \sum_{k \in \mathcal{K}} T_k(S) H W_k + b

    with Chebyshev's polynomials :math:`T_k`. Degrees {1} over :math:`D^{-1/2}(A+I)D^{-1/2}` is GCNConv, {0, 1} over
    :math:`D^{-1}(A+I)` ClusterGCNConv, {0, …, K-1} over :math:`-D^{-1/2}AD^{-1/2}` ChebConv with K terms.

    Evaluated from the highest degree down (Clenshaw's recurrence), so that S acts on rows of ``out_channels``.
    """

    def __init__(self, in_channels: int, out_channels: int, degrees: Sequence[int]) -> None:
        super().__init__()
        self.degrees = tuple(degrees)
        self.weight = nn.Parameter(torch.empty(len(self.degrees), in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights; the bias is 0."""
        glorot(self.weight)
        nn.init.zeros_(self.bias)

    def constant(self, terms: Tensor) -> Tensor:
        """The layer from precomputed T_k(S) H, side by side: [R, |K| · in] to [R, out]."""
        product = shared_product(terms.unsqueeze(1), self.weight.flatten(0, 1).unsqueeze(0))
        return product.squeeze(1) + self.bias

    def forward(self, h: Tensor, operator: Operator, last: Operator | None = None) -> Tensor:
        """The layer at the rows of ``last``, which has rows of ``operator`` (by default all)."""
        last = operator if last is None else last
        terms = {k: h @ self.weight[i] for i, k in enumerate(self.degrees)}
        above: Tensor | None = None
        above2: Tensor | None = None
        for k in range(max(self.degrees), 0, -1):
            here = _sum(terms.get(k), None if above is None else 2 * operator(above), _negative(above2))
            above, above2 = here, above
        total = _sum(
            last.own(terms[0]) if 0 in terms else None,
            None if above is None else last(above),
            None if above2 is None else -last.own(above2),
        )
        assert total is not None
        return total + self.bias


class FilterNet(nn.Module):
    """Layers of :class:`FilterConv` with ReLU and dropout between them; the last one returns logits.

    Args:
        sizes: Features, hidden sizes, classes.
        degrees: Degrees of every layer's polynomials.
        dropout: Share of hidden entries dropped.
    """

    def __init__(self, sizes: Sequence[int], degrees: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(FilterConv(a, b, degrees) for a, b in pairwise(sizes))
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(self, first: Tensor, operator: Operator, last: Operator) -> Tensor:
        """Logits at the rows of ``last``, from T_k(S) X side by side [N, |K| · F]."""
        h: Tensor = self.layers[0].constant(first)  # type: ignore[operator]
        for i, layer in enumerate(self.layers):
            if i > 0:
                h = layer(self.dropout(h.relu()), operator, last if i == len(self.layers) - 1 else None)
        return h


def _sum(*terms: Tensor | None) -> Tensor | None:
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


def _negative(term: Tensor | None) -> Tensor | None:
    return None if term is None else -term


def _network(kind: Kind, degrees: Sequence[int] | None, factor: float = 1.0, **extra: Uniform | Choice) -> Network:
    """A row of the table; without ``degrees``, they are 0, …, terms - 1 of the setting."""

    def degrees_of(setting: Setting) -> tuple[int, ...]:
        return tuple(range(int(setting["terms"]))) if degrees is None else tuple(degrees)

    def build(features: int, classes: int, setting: Setting) -> nn.Module:
        sizes = layer_sizes(features, classes, setting)
        return with_head(FilterNet(sizes, degrees_of(setting), float(setting["dropout"])), setting)

    def inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
        operator, last = (source.operator(kind, at).scaled(factor) for at in (None, rows))
        terms = chebyshev(operator, source.X, max(degrees_of(setting)))
        return Call((torch.cat([terms[k] for k in degrees_of(setting)], dim=1), operator, last))

    def width(setting: Setting) -> int:
        return int(setting["hidden"]) * (int(setting["layers"]) - 1) * (6 + 2 * len(degrees_of(setting)))

    return Network(build, inputs, {**DEEP, **extra}, width, headed=True)


GCN = _network("gcn", (1,))
CLUSTER_GCN = _network("cluster", (0, 1))
CHEBY = _network("adjacency", None, -1.0, terms=Choice((1, 2, 3)))
