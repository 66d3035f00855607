"""Layers that several models share: dropout, linear maps, the MLP, and the head of the authors' later code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

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


class PaperHead(nn.Module):
    """A model whose logits pass through ReLU and dropout, as in the public code of the paper's authors."""

    def __init__(self, model: nn.Module, dropout: float) -> None:
        super().__init__()
        self.model = model
        self.dropout = Dropout(dropout)
        self.keyed_dropout = getattr(model, "keyed_dropout", False)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        self.model.reset_parameters()  # type: ignore[operator]

    def forward(self, *inputs: object, dropout_key: Tensor | None = None) -> Tensor:
        """Dropout of ReLU of the model's logits."""
        own = {} if dropout_key is None else {"dropout_key": dropout_key}
        return self.dropout(self.model(*inputs, **own).relu(), dropout_key, _HEAD)  # type: ignore[no-any-return]


def with_head(model: nn.Module, setting: Setting) -> nn.Module:
    """The model, under the paper's head if the setting asks for it."""
    return PaperHead(model, float(setting["dropout"])) if setting.get("head") == "paper" else model


class Layers(nn.Module):
    """Layers one after another, each of which draws its own new weights.

    Args:
        layers: They have ``reset_parameters``.
        dropout: Share of hidden entries dropped.
    """

    def __init__(self, layers: Sequence[nn.Module], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]


class Linear(nn.Module):
    """x W + bias: x [N, in] to [N, out].

    Mapped over members that share x, this is one matrix product, with the members' weights side by side.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new Glorot weights; the bias is 0."""
        draw(self)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the map."""
        return product(x, self.weight) + self.bias


class MLP(Layers):
    """Linear maps with ReLU and dropout between them: X [N, F] to [N, C]. With one layer, a linear classifier."""

    def __init__(self, sizes: Sequence[int], dropout: float) -> None:
        super().__init__([Linear(a, b) for a, b in pairwise(sizes)], dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of every row."""
        for i, layer in enumerate(self.layers):
            x = layer(x if i == 0 else self.dropout(x.relu()))
        return x


def product(h: Tensor, weight: Tensor) -> Tensor:
    """h [N, in] times weight [1, in, out]; one product for members mapped over that share h."""
    return shared_product(h.unsqueeze(1), weight).squeeze(1)


def draw(module: nn.Module) -> None:
    """New weights for a module: Glorot's for its ``weight``, 0 for its ``bias``."""
    glorot(module.weight)  # type: ignore[arg-type]
    nn.init.zeros_(module.bias)  # type: ignore[arg-type]


def glorot(weight: Tensor) -> None:
    """Uniform weights [..., in, out] within ±√(6 / (in + out))."""
    bound = math.sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
    nn.init.uniform_(weight, -bound, bound)
