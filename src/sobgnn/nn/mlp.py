"""A multilayer perceptron, for members trained side by side."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from sobgnn.nn.cascade import shared_product
from sobgnn.nn.dropout import dropout


class MLP(nn.Module):
    r"""A multilayer perceptron: :math:`H^{(l+1)} = \mathrm{ReLU}(H^{(l)} W_l + b_l)`, the last layer without ReLU.

    Shapes:
        x [N, in_channels] gives [N, out_channels].
    """

    keyed_dropout = True

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.dropout = dropout
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(i, o)) for i, o in pairwise(sizes))
        self.biases = nn.ParameterList(nn.Parameter(torch.empty(o)) for o in sizes[1:])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights: Glorot, biases 0."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = math.sqrt(6 / sum(weight.shape))
            nn.init.uniform_(weight, -bound, bound)
            nn.init.zeros_(bias)

    def forward(self, x: Tensor, *, nodes: Tensor | None = None, dropout_key: Tensor | None = None) -> Tensor:
        """Logits; ``nodes`` [N] and ``dropout_key`` are those of :func:`sobgnn.nn.dropout.dropout`."""
        h = x
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer > 0:
                h = dropout(h.relu(), self.dropout, self.training, dropout_key, nodes, layer)
            h = shared_product(h.unsqueeze(1), weight.unsqueeze(0)).squeeze(1) + bias
        return h
