"""SIGN: features of several hops side by side, and an MLP on top."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sobgnn.nn.filter_bank import shared_product
from sobgnn.paper.models.contract import DEEP, Call, Network, at_rows
from sobgnn.paper.models.layers import Dropout, glorot
from sobgnn.paper.models.mlp import MLP
from sobgnn.paper.models.source import Source
from sobgnn.paper.models.space import Choice, Setting


class SIGN(nn.Module):
    """A linear map for each of X, S X, …, S^K X, concatenated, and an MLP on top.

    Args:
        in_channels: Number of features F.
        hidden_channels: Size of each hop's map and of hidden rows.
        out_channels: Number of classes C.
        num_layers: At least 2; the hops' maps are the first.
        hops: K.
        dropout: Share of hidden entries dropped.

    Shapes:
        [R, K+1, F] to [R, C].
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, hops: int, dropout: float
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hops + 1, in_channels, hidden_channels))
        self.bias = nn.Parameter(torch.empty(hops + 1, hidden_channels))
        sizes = [(hops + 1) * hidden_channels, *[hidden_channels] * (num_layers - 2), out_channels]
        self.top = MLP(sizes, dropout)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        glorot(self.weight)
        nn.init.zeros_(self.bias)
        self.top.reset_parameters()

    def forward(self, hops: Tensor) -> Tensor:
        """Logits of every row."""
        h = shared_product(hops, self.weight) + self.bias
        return self.top(self.dropout(h.relu()).flatten(1))  # type: ignore[no-any-return]


def _build(features: int, classes: int, setting: Setting) -> nn.Module:
    hidden, layers, hops = (int(setting[name]) for name in ("hidden", "layers", "hops"))
    return SIGN(features, hidden, classes, layers, hops, float(setting["dropout"]))


def _inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    hops = source.powers("adjacency", int(setting["hops"]))
    return Call((torch.stack([at_rows(x, rows) for x in hops], dim=1),))


def _width(setting: Setting) -> int:
    return int(setting["hidden"]) * 5 * (int(setting["hops"]) + int(setting["layers"]))


INCEPTION = Network(_build, _inputs, {**DEEP, "hops": Choice((1, 2, 3))}, _width)
