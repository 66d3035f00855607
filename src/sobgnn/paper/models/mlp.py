"""MLP, which reads no graph, SGC, a linear classifier of propagated features, and SIGN, an MLP of several hops."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sobgnn.nn.filter_bank import shared_product
from sobgnn.paper.models.contract import COMMON, DEEP, Call, Choice, Network, Setting, at_rows, layer_sizes
from sobgnn.paper.models.layers import MLP, Dropout, draw, with_head
from sobgnn.paper.models.source import Source


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
        draw(self)
        self.top.reset_parameters()

    def forward(self, hops: Tensor) -> Tensor:
        """Logits of every row."""
        h = shared_product(hops, self.weight) + self.bias
        return self.top(self.dropout(h.relu()).flatten(1))  # type: ignore[no-any-return]


def _build_mlp(features: int, classes: int, setting: Setting) -> nn.Module:
    return MLP(layer_sizes(features, classes, setting), float(setting["dropout"]))


def _mlp_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    return Call((at_rows(source.X, rows),))


def _build_sgc(features: int, classes: int, setting: Setting) -> nn.Module:
    return with_head(MLP([features, classes], float(setting["dropout"])), setting)


def _sgc_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    return Call((at_rows(source.powers("gcn", int(setting["layers"]))[-1], rows),))


def _build_sign(features: int, classes: int, setting: Setting) -> nn.Module:
    hidden, layers, hops = (int(setting[name]) for name in ("hidden", "layers", "hops"))
    return SIGN(features, hidden, classes, layers, hops, float(setting["dropout"]))


def _sign_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    hops = source.powers("adjacency", int(setting["hops"]))
    return Call((torch.stack([at_rows(x, rows) for x in hops], dim=1),))


def _sign_width(setting: Setting) -> int:
    return int(setting["hidden"]) * 5 * (int(setting["hops"]) + int(setting["layers"]))


PERCEPTRON = Network(_build_mlp, _mlp_inputs, DEEP, lambda setting: int(setting["hidden"]) * 6 * int(setting["layers"]))
SGC = Network(_build_sgc, _sgc_inputs, {**COMMON, "layers": Choice((2, 3, 4, 5))}, lambda setting: 128, headed=True)
INCEPTION = Network(_build_sign, _sign_inputs, {**DEEP, "hops": Choice((1, 2, 3))}, _sign_width)
