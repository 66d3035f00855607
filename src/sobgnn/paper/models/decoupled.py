"""D-SobGNN: a decoupled Sobolev network, whose features are propagated once and which trains like an MLP."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sobgnn.nn.features import SobolevFeatures
from sobgnn.nn.filter_bank import shared_product
from sobgnn.paper.models.contract import COMMON, HIDDEN, Call, Choice, Network, Setting, at_rows
from sobgnn.paper.models.layers import Dropout, glorot
from sobgnn.paper.models.sobolev import ALPHA, EPSILON
from sobgnn.paper.models.source import Operator, Source


class DSobGNN(nn.Module):
    r"""A small MLP for each of X and its propagated forms, and a learned weighted mean of their logits.

    .. math:: Z = \sum_b \mathrm{softmax}(\gamma)_b \left(\mathrm{ReLU}(\nu(X_b W_b + w_b)) \, V_b + v_b\right), \qquad
        X_b \in \{X\} \cup \{\hat{A}_\rho^k X : \rho \in \text{orders}, \, k = 1, \dots, \text{hops}\}

    with :math:`\nu` the identity or each row's layer norm. The gates :math:`\gamma` weight the blocks, initially
    equally. It is trained only on labeled rows, and predicts with the neighbors' help:

    .. math:: P = (1 - \beta) \, \mathrm{softmax}(Z) + \beta \, D^{-1/2} A D^{-1/2} \, \mathrm{softmax}(Z)

    Args:
        in_channels: Number of features F.
        hidden_channels: Size of each block's hidden rows.
        out_channels: Number of classes C.
        blocks: Number of blocks B.
        dropout: Share of hidden entries dropped.
        norm: Whether hidden rows are normalized, ``"layer"`` or ``"none"``.
        drop_input: Also drop entries of the features, at half that rate.
        smooth: :math:`\beta`, the neighbors' share of a prediction, in [0, 1].

    Shapes:
        [R, B, F] to [R, C].
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        blocks: int,
        dropout: float,
        norm: str = "none",
        drop_input: bool = False,
        smooth: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm, self.drop_input, self.smooth = norm, drop_input, smooth
        self.weight = nn.Parameter(torch.empty(blocks, in_channels, hidden_channels))
        self.bias = nn.Parameter(torch.empty(blocks, hidden_channels))
        self.head = nn.Parameter(torch.empty(blocks, hidden_channels, out_channels))
        self.head_bias = nn.Parameter(torch.empty(blocks, out_channels))
        self.gate = nn.Parameter(torch.empty(blocks))
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new Glorot weights; biases are 0 and gates equal."""
        for weight in (self.weight, self.head):
            glorot(weight)
        for bias in (self.bias, self.head_bias):
            nn.init.zeros_(bias)
        nn.init.ones_(self.gate)

    def forward(self, blocks: Tensor, every: Tensor | None = None, neighbors: Operator | None = None) -> Tensor:
        """Logits of every row; in evaluation, given the blocks of all N points and R rows of the operator, log P."""
        if self.training or every is None or neighbors is None:
            return self._logits(blocks)
        known = self._logits(every).softmax(dim=1)
        mixed = (1 - self.smooth) * neighbors.own(known) + self.smooth * neighbors(known)
        return mixed.clamp_min(torch.finfo(mixed.dtype).tiny).log()

    def _logits(self, blocks: Tensor) -> Tensor:
        if self.drop_input and self.training:
            rate = self.dropout.p / 2
            blocks = blocks * ((torch.rand_like(blocks) >= rate) / (1 - rate))
        h = shared_product(blocks, self.weight) + self.bias
        if self.norm == "layer":
            h = F.layer_norm(h, h.shape[-1:])
        logits = shared_product(self.dropout(h.relu()), self.head) + self.head_bias
        return (logits * self.gate.softmax(dim=0).unsqueeze(1)).sum(dim=1)


def block_orders(alpha: int) -> list[int]:
    """The orders that are propagated: the first, the middle one and the last of 1, …, α."""
    return sorted({1, (1 + alpha) // 2, alpha})


def sobolev_blocks(source: Source, alpha: int, epsilon: float, hops: int) -> Tensor:
    """X and, for each hop k and chosen order ρ, Â_ρ^k X: [N, 1 + hops · orders, F]."""
    every = SobolevFeatures(alpha, epsilon, hops)(source.X, source.sobolev(alpha, epsilon))
    chosen = [0, *(alpha * hop + order for hop in range(hops) for order in block_orders(alpha))]
    blocks: Tensor = every[:, chosen]
    return blocks


def _blocks(setting: Setting) -> int:
    return 1 + int(setting["hops"]) * len(block_orders(int(setting["alpha"])))


def _build(features: int, classes: int, setting: Setting) -> nn.Module:
    size = (features, int(setting["hidden"]), classes, _blocks(setting), float(setting["dropout"]))
    drop_input = bool(setting.get("drop_input", False))
    return DSobGNN(*size, norm=str(setting["norm"]), drop_input=drop_input, smooth=float(setting["smooth"]))


def _inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    blocks = sobolev_blocks(source, int(setting["alpha"]), float(setting["epsilon"]), int(setting["hops"]))
    if setting["smooth"] == 0:
        return Call((at_rows(blocks, rows),))
    return Call((at_rows(blocks, rows), blocks, source.operator("adjacency", rows)))


def _width(setting: Setting) -> int:
    dropped = 1200 if setting.get("drop_input") else 0  # each member's own features
    return (int(setting["hidden"]) * 6 + dropped) * _blocks(setting)


# Not in the paper: it reads Sobolev orders of the features and has no layers over the graph.
DECOUPLED = Network(
    _build,
    _inputs,
    {
        **COMMON,
        "hidden": HIDDEN,
        "alpha": ALPHA,
        "epsilon": EPSILON,
        "hops": Choice((1, 2)),
        "norm": Choice(("none", "layer")),
        "smooth": Choice((0.25, 0.5)),
    },
    _width,
)
