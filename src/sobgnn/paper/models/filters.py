"""GCN, Cheby, ClusterGCN, SGC and SIGN, over polynomials of a fixed operator, and MLP, which reads no graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from sobgnn.paper.models.contract import COMMON, DEEP, Axis, Kind, Network, Operator, Setting, Source, at_rows, choice
from sobgnn.paper.models.layers import Blocks, Net, layer_sizes, product


class FilterConv(Blocks):
    r"""One layer over polynomials of a fixed operator.

    .. math:: H' = \sum_{k \in \mathcal{K}} T_k(S) H W_k + b

    with Chebyshev's polynomials :math:`T_0 = 1, \, T_1(S) = S, \, T_2(S) = 2S^2 - 1`. Degrees {0} are a linear map, {1}
    over :math:`D^{-1/2}(A+I)D^{-1/2}` GCNConv, {0, 1} over :math:`D^{-1}(A+I)` ClusterGCNConv, {0, …, K-1} over
    :math:`-D^{-1/2}AD^{-1/2}` ChebConv with K terms.
    """

    def __init__(self, in_channels: int, out_channels: int, degrees: Sequence[int] = (0,)) -> None:
        super().__init__(len(degrees), in_channels, out_channels, one_bias=True)
        self.degrees = tuple(degrees)

    def forward(self, h: Tensor, operators: tuple[Operator, Operator] | None = None) -> Tensor:
        """The layer at the rows of the second operator, which has rows of the first.

        Without operators ``h`` are precomputed terms T_k(S) H, side by side, [R, |K| · in] or [R, |K|, in].
        """
        if operators is None:
            return product(h.flatten(1), self.weight.flatten(0, 1).unsqueeze(0)) + self.bias
        operator, last = operators
        terms = {k: h @ self.weight[i] for i, k in enumerate(self.degrees)}
        parts = [at_rows(terms[0], last.index)] if 0 in terms else []
        if 2 in terms:  # S acts on rows of out_channels alone: S (H W_1 + 2 S H W_2) - H W_2
            parts += [last(terms[1] + 2 * operator(terms[2])), -at_rows(terms[2], last.index)]
        elif 1 in terms:
            parts.append(last(terms[1]))
        return sum(parts[1:], parts[0]) + self.bias


def mlp(sizes: Sequence[int], setting: Setting) -> Net:
    """Linear maps with ReLU and dropout between them; with one, a linear classifier. Its forward reads ``x``."""
    return Net([FilterConv(a, b) for a, b in pairwise(sizes)], setting)


def _filters(kind: Kind, degrees: Sequence[int] | None, **extra: Axis) -> Network:
    """A network of filters; without ``degrees``, they are 0, …, terms - 1 of the setting."""

    def degrees_of(setting: Setting) -> Sequence[int]:
        return range(int(setting["terms"])) if degrees is None else degrees

    def build(features: int, classes: int, setting: Setting) -> nn.Module:
        sizes = layer_sizes(features, classes, setting)
        return Net([FilterConv(a, b, degrees_of(setting)) for a, b in pairwise(sizes)], setting)

    def inputs(source: Source, setting: Setting, rows: Tensor | None) -> dict[str, Any]:
        whole, last = source.operator(kind), source.operator(kind, rows)
        terms = [source.X, source.power(kind, 1)]
        if 2 in degrees_of(setting):
            terms.append(2 * whole(terms[1]) - source.X)
        middle = [(whole, whole)] * (int(setting["layers"]) - 2)
        return {
            "x": torch.cat([terms[k] for k in degrees_of(setting)], dim=1),
            "graphs": [None, *middle, (whole, last)],
        }

    def width(setting: Setting) -> int:
        return int(setting["hidden"]) * (int(setting["layers"]) - 1) * (6 + 2 * len(degrees_of(setting)))

    return Network(build, inputs, {**DEEP, **extra}, width, headed=True)


def _build_sign(features: int, classes: int, setting: Setting) -> nn.Module:
    """A linear map for each of X, S X, …, S^K X, concatenated, and an MLP on top."""
    hops, hidden = int(setting["hops"]) + 1, int(setting["hidden"])
    top = mlp([hops * hidden, *layer_sizes(features, classes, setting)[2:]], setting)
    return Net([Blocks(hops, features, hidden), *top.layers], setting)


def _sign_inputs(source: Source, setting: Setting, rows: Tensor | None) -> dict[str, Any]:
    hops = (source.power("adjacency", k) for k in range(int(setting["hops"]) + 1))
    return {"x": torch.stack([at_rows(x, rows) for x in hops], dim=1)}


GCN = _filters("gcn", (1,))
CLUSTER_GCN = _filters("cluster", (0, 1))
CHEBY = _filters("chebyshev", None, terms=choice(1, 2, 3))
SGC = Network(
    build=lambda features, classes, setting: mlp([features, classes], setting),
    inputs=lambda source, setting, rows: {"x": at_rows(source.power("gcn", int(setting["layers"])), rows)},
    space={**COMMON, "layers": choice(2, 3, 4, 5)},
    width=lambda setting: 128,
    headed=True,
)
SIGN = Network(
    build=_build_sign,
    inputs=_sign_inputs,
    space={**DEEP, "hops": choice(1, 2, 3)},
    width=lambda setting: int(setting["hidden"]) * 5 * (int(setting["hops"]) + int(setting["layers"])),
)
MLP = Network(
    build=lambda features, classes, setting: mlp(layer_sizes(features, classes, setting), setting),
    inputs=lambda source, setting, rows: {"x": at_rows(source.X, rows)},
    space=DEEP,
    width=lambda setting: int(setting["hidden"]) * 6 * int(setting["layers"]),
)
