"""What networks are built of: dropout, layers one after another under an optional head, and maps of several blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sobgnn.nn.dropout import column_hashes, kept, row_hashes, thresholds
from sobgnn.nn.filter_bank import shared_product
from sobgnn.paper.models.contract import Setting

_HEAD = 1000  # separates the logits' dropout from that of layers


class Dropout(nn.Module):
    """Dropout whose rate is a buffer, so that members trained as one batch may each have their own."""

    p: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor(float(p)))

    def forward(self, h: Tensor, key: Tensor | None = None, layer: int = 0) -> Tensor:
        """Entries of h [N, c] dropped with probability p, the others scaled by 1 / (1 - p); all kept in evaluation.

        With a ``key``, a member's own for each step, they are those that :func:`sobgnn.nn.dropout.dropout` drops in
        ``layer``: a member does not depend on others in its batch.
        """
        if not self.training:
            return h
        if key is None:
            return h * ((torch.rand_like(h) >= self.p) / (1 - self.p))
        rows = row_hashes(torch.arange(len(h), device=h.device), key, layer)
        stay = kept(rows, column_hashes(h.shape[-1], h.device), thresholds(self.p))
        return h * (stay / (1 - self.p)).to(h.dtype)


class Net(nn.Module):
    """Layers one after another, with ReLU and dropout between them; the last one returns logits.

    Args:
        layers: Each with ``reset_parameters``.
        setting: Its ``dropout`` is the share of hidden entries dropped. With ``head="paper"`` the logits pass through
            ReLU and dropout too, as in the public code of the paper's authors.
        keyed: Whether dropout is a function of a member's key, node, layer and column.
    """

    def __init__(self, layers: Sequence[nn.Module], setting: Setting, *, keyed: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(float(setting["dropout"]))
        self.headed, self.keyed_dropout = setting.get("head") == "paper", keyed

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        graphs: Sequence[Any] | None = None,
        loss: Callable[[nn.Module, Tensor, Tensor, int], Tensor] | None = None,
        dropout_key: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits of every row; in training with the sum of the layers' losses, if there are any.

        Args:
            x: What the first layer reads, [N, ...].
            graphs: What each layer reads besides its rows.
            loss: (layer, its input, key, number) -> a loss, added to cross-entropy.
            dropout_key: A member's own, of each step.
        """
        losses = []
        for i, layer in enumerate(self.layers):
            h = x if i == 0 else self.dropout(x.relu(), dropout_key, i)
            if loss is not None and self.training and dropout_key is not None:
                losses.append(loss(layer, h, dropout_key, i))
            x = layer(h) if graphs is None else layer(h, graphs[i])
        x = self.dropout(x.relu(), dropout_key, _HEAD) if self.headed else x
        return (x, torch.stack(losses).sum(dim=0)) if losses else x


class Blocks(nn.Module):
    """A linear map for each of B blocks, x_b W_b + w_b: [R, B, in] to [R, B, out]."""

    def __init__(self, blocks: int, in_channels: int, out_channels: int, *, one_bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels) if one_bias else torch.empty(blocks, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new Glorot weights; biases are 0."""
        glorot(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the maps."""
        return shared_product(x, self.weight) + self.bias


def layer_sizes(features: int, classes: int, setting: Setting) -> list[int]:
    """Sizes of rows before, between and after a network's layers."""
    return [features, *[int(setting["hidden"])] * (int(setting["layers"]) - 1), classes]


def product(h: Tensor, weight: Tensor) -> Tensor:
    """h [N, in] times weight [1, in, out]; one product for members mapped over that share h."""
    return shared_product(h.unsqueeze(1), weight).squeeze(1)


def glorot(weight: Tensor) -> None:
    """Uniform weights [..., in, out] within ±√(6 / (in + out))."""
    bound = math.sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
    nn.init.uniform_(weight, -bound, bound)
