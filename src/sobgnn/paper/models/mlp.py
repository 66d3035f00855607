"""MLP, which reads no graph, and SGC, a linear classifier of propagated features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from sobgnn.paper.models.contract import COMMON, DEEP, Call, Network, at_rows, layer_sizes
from sobgnn.paper.models.layers import Dropout, Linear, with_head
from sobgnn.paper.models.source import Source
from sobgnn.paper.models.space import Choice, Setting


class MLP(nn.Module):
    """Linear maps with ReLU and dropout between them: X [N, F] to [N, C]. With one layer, a linear classifier."""

    def __init__(self, sizes: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        """Logits of every row."""
        for i, layer in enumerate(self.layers):
            x = layer(x if i == 0 else self.dropout(x.relu()))
        return x


def _build_mlp(features: int, classes: int, setting: Setting) -> nn.Module:
    return MLP(layer_sizes(features, classes, setting), float(setting["dropout"]))


def _mlp_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    return Call((at_rows(source.X, rows),))


def _build_sgc(features: int, classes: int, setting: Setting) -> nn.Module:
    return with_head(MLP([features, classes], float(setting["dropout"])), setting)


def _sgc_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    return Call((at_rows(source.powers("gcn", int(setting["layers"]))[-1], rows),))


PERCEPTRON = Network(_build_mlp, _mlp_inputs, DEEP, lambda setting: int(setting["hidden"]) * 6 * int(setting["layers"]))
SGC = Network(_build_sgc, _sgc_inputs, {**COMMON, "layers": Choice((2, 3, 4, 5))}, lambda setting: 128, headed=True)
