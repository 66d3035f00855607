"""S-SobGNN: features and operators in, logits out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from sobgnn.nn.conv import Combine, SobolevConv, as_operators
from sobgnn.nn.dropout import dropout
from sobgnn.operators import SobolevOperators, SobolevRows


class SSobGNN(nn.Module):
    r"""A Sparse Sobolev Graph Neural Network: ``num_layers`` cascades of filters, one after another.

    .. math:: H^{(1)} = X, \quad H^{(l+1)} = \mathrm{SobolevConv}(\mathrm{dropout}(H^{(l)})), \quad
        \mathrm{logits} = H^{(n+1)}

    Dropout is applied to hidden rows, not to X, so that X's propagation can be computed once. The last layer
    has no ReLU: its outputs are logits, and with α = 1, ε = 1, μ = 1 the model is GCN.

    Args:
        in_channels: Number of features.
        hidden_channels: Size of hidden rows.
        out_channels: Number of classes.
        num_layers: At least 1.
        alpha: Filters per layer, at least 1.
        epsilon: Weight of self-loops, at least 0. Used when operators are built here from edges.
        dropout: Share of hidden entries dropped in training, in [0, 1).
        combine: ``"linear"`` or ``"concat"``, see :class:`~sobgnn.SobolevConv`.
        self_branch: Add the graph-free filter to every layer.

    Shapes:
        x [N, in_channels] and operators of N nodes, or ``edge_index`` [2, E] and ``edge_weight`` [E]; gives
        [N, out_channels], or [R, out_channels] where ``rows`` are given.
    """

    keyed_dropout = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        alpha: int = 3,
        epsilon: float = 1.0,
        dropout: float = 0.5,
        combine: Combine = "linear",
        self_branch: bool = False,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, but got {num_layers}.")
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be in [0, 1), but got {dropout}.")
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.alpha = alpha
        self.epsilon = epsilon
        self.dropout = dropout
        self.convs = nn.ModuleList(
            SobolevConv(sizes[i], sizes[i + 1], alpha, epsilon, combine, self_branch, activation=i < num_layers - 1)
            for i in range(num_layers)
        )

    @property
    def layers(self) -> list[SobolevConv]:
        """The layers, first to last."""
        return cast("list[SobolevConv]", list(self.convs))

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        for layer in self.layers:
            layer.reset_parameters()

    def forward(
        self,
        x: Tensor,
        operators: SobolevOperators | Tensor,
        edge_weight: Tensor | None = None,
        *,
        propagated: Tensor | None = None,
        rows: SobolevRows | Sequence[SobolevRows] | None = None,
        dropout_key: Tensor | None = None,
    ) -> Tensor:
        """Logits of every node, or of some.

        Args:
            x: Features.
            operators: Operators of the graph with this model's α, or PyG's ``edge_index``.
            edge_weight: Weights of ``edge_index``.
            propagated: ``operators.propagate(x)``, computed once and used at every call; at the first layer's rows
                where ``rows`` restrict it.
            rows: ``operators.rows(index)``: the last layer is computed at those nodes alone. Or
                ``operators.receptive_field(index, num_layers)``: every layer where the next one reads it, x being
                the features at the first entry's ``columns``.
            dropout_key: Integer of a training step from which :func:`sobgnn.nn.dropout.dropout` draws, whatever part of
                the graph is computed where; torch's own generator if left out.
        """
        full = as_operators(operators, edge_weight, x, self.alpha, self.epsilon)
        at: list[SobolevOperators | SobolevRows] = [full] * len(self.convs)
        if isinstance(rows, SobolevRows):
            at[-1] = rows
        elif rows is not None:
            at = list(rows)
        h = x
        for i, (layer, where) in enumerate(zip(self.layers, at, strict=True)):
            if i > 0:
                h = dropout(h, self.dropout, self.training, dropout_key, at[i - 1].nodes, i)
            h = layer(h, where, propagated=propagated if i == 0 else None)
        return h

    @torch.no_grad()
    def filter_weights(self) -> Tensor:
        """How much each filter counts in each layer: [num_layers, branches], rows summing to 1.

        See :meth:`sobgnn.SobolevConv.filter_weights`.
        """
        return torch.stack([layer.filter_weights() for layer in self.layers])
