"""D-SobGNN: a decoupled network, whose features are propagated once and whose training is an MLP's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sobgnn.baselines.networks import MLP, Dropout, glorot
from sobgnn.nn.conv import shared_product
from sobgnn.operators import SobolevOperators


class DSobGNN(nn.Module):
    r"""A linear map for each of X and its propagated forms, concatenated, and an MLP on top.

    .. math:: Z = \mathrm{MLP}\left(\mathrm{ReLU}\left(\big\Vert_b \, X_b W_b + b_b\right)\right), \qquad
        X_b \in \{X\} \cup \{\hat{A}_\rho^k X : \rho \in \text{orders}, \, k = 1, \dots, \text{hops}\}

    Args:
        in_channels: Number of features F.
        hidden_channels: Size of each block's map and of hidden rows.
        out_channels: Number of classes C.
        num_layers: At least 2, the blocks' maps being the first.
        blocks: Number of blocks B.
        dropout: Share of hidden entries dropped.

    Shapes:
        [R, B, F] to [R, C].
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, blocks: int, dropout: float
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, in_channels, hidden_channels))
        self.bias = nn.Parameter(torch.empty(blocks, hidden_channels))
        self.top = MLP([blocks * hidden_channels, *[hidden_channels] * (num_layers - 2), out_channels], dropout)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights; biases are 0."""
        glorot(self.weight)
        nn.init.zeros_(self.bias)
        self.top.reset_parameters()

    def forward(self, blocks: Tensor) -> Tensor:
        """Logits of every row."""
        h = shared_product(blocks, self.weight) + self.bias
        return self.top(self.dropout(h.relu()).flatten(1))  # type: ignore[no-any-return]


def block_orders(alpha: int) -> list[int]:
    """The orders that are propagated: the first, the middle one and the last of 1, …, α."""
    return sorted({1, (1 + alpha) // 2, alpha})


def sobolev_blocks(operators: SobolevOperators, X: Tensor, orders: Sequence[int], hops: int) -> Tensor:
    """X and, for each hop and order, Â_ρ^k X: [N, F] to [N, 1 + hops · orders, F]."""
    chosen = torch.tensor([order - 1 for order in orders], device=X.device)
    blocks = [X.unsqueeze(1)]
    propagated = operators.propagate(X)
    for hop in range(hops):
        if hop > 0:
            propagated = operators.propagate_each(propagated)
        blocks.append(propagated.index_select(1, chosen))
    return torch.cat(blocks, dim=1)
