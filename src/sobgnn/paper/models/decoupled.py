"""D-SobGNN: a decoupled Sobolev network, whose features are propagated once and which trains like an MLP."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sobgnn.nn.features import SobolevFeatures
from sobgnn.paper.models.contract import COMMON, HIDDEN, Network, Operator, Setting, Source, at_rows, choice
from sobgnn.paper.models.layers import Blocks, Dropout
from sobgnn.paper.models.sobolev import ALPHA, EPSILON


class DSobGNN(nn.Module):
    r"""A small MLP for each of X and its propagated forms, and a learned weighted mean of their logits.

    .. math:: Z = \sum_b \mathrm{softmax}(\gamma)_b \left(\mathrm{ReLU}(\nu(X_b W_b + w_b)) \, V_b + v_b\right), \qquad
        X_b \in \{X\} \cup \{\hat{A}_\rho^k X : \rho \in \text{orders}, \, k = 1, \dots, \text{hops}\}

    with :math:`\nu` the identity or each row's layer norm. The gates :math:`\gamma` weight the blocks, initially
    equally. It is trained only on labeled rows, and predicts with the neighbors' help:

    .. math:: P = (1 - \beta) \, \mathrm{softmax}(Z) + \beta \, D^{-1/2} A D^{-1/2} \, \mathrm{softmax}(Z)

    Args:
        in_channels: Number of features F.
        out_channels: Number of classes C.
        blocks: Number of blocks B.
        setting: ``hidden``, the size of each block's hidden rows; ``dropout``, the share of hidden entries dropped;
            ``norm``, ``"layer"`` or ``"none"``; ``smooth``, :math:`\beta` in [0, 1]; ``drop_input``, whether entries of
            the features are dropped too, at half the rate.

    Shapes:
        [R, B, F] to [R, C].
    """

    def __init__(self, in_channels: int, out_channels: int, blocks: int, setting: Setting) -> None:
        super().__init__()
        self.norm, self.smooth = setting["norm"] == "layer", float(setting["smooth"])
        self.drop_input = bool(setting.get("drop_input", False))
        self.hidden = Blocks(blocks, in_channels, int(setting["hidden"]))
        self.head = Blocks(blocks, int(setting["hidden"]), out_channels)
        self.gate = nn.Parameter(torch.ones(blocks))
        self.dropout = Dropout(float(setting["dropout"]))

    def reset_parameters(self) -> None:
        """Draw new Glorot weights; biases are 0 and gates equal."""
        self.hidden.reset_parameters()
        self.head.reset_parameters()
        nn.init.ones_(self.gate)

    def forward(self, blocks: Tensor, every: Tensor | None = None, neighbors: Operator | None = None) -> Tensor:
        """Logits of every row; in evaluation, given the blocks of all N points and R rows of the operator, log P."""
        if self.training or every is None or neighbors is None:
            return self._logits(blocks)
        known = self._logits(every).softmax(dim=1)
        mixed = (1 - self.smooth) * at_rows(known, neighbors.index) + self.smooth * neighbors(known)
        return mixed.clamp_min(torch.finfo(mixed.dtype).tiny).log()

    def _logits(self, blocks: Tensor) -> Tensor:
        if self.drop_input and self.training:
            rate = self.dropout.p / 2
            blocks = blocks * ((torch.rand_like(blocks) >= rate) / (1 - rate))
        h = self.hidden(blocks)
        h = F.layer_norm(h, h.shape[-1:]) if self.norm else h
        logits: Tensor = self.head(self.dropout(h.relu()))
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


def _inputs(source: Source, setting: Setting, rows: Tensor | None) -> dict[str, Any]:
    blocks = sobolev_blocks(source, int(setting["alpha"]), float(setting["epsilon"]), int(setting["hops"]))
    mixed = {"every": blocks, "neighbors": source.operator("adjacency", rows)} if setting["smooth"] else {}
    return {"blocks": at_rows(blocks, rows), **mixed}


def _width(setting: Setting) -> int:
    dropped = 1200 if setting.get("drop_input") else 0  # each member's own features
    return (int(setting["hidden"]) * 6 + dropped) * _blocks(setting)


# Not in the paper: it reads Sobolev orders of the features and has no layers over the graph.
DECOUPLED = Network(
    build=lambda features, classes, setting: DSobGNN(features, classes, _blocks(setting), setting),
    inputs=_inputs,
    space={
        **COMMON,
        "hidden": HIDDEN,
        "alpha": ALPHA,
        "epsilon": EPSILON,
        "hops": choice(1, 2),
        "norm": choice("none", "layer"),
        "smooth": choice(0.25, 0.5),
    },
    width=_width,
)
