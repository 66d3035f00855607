"""Networks over fixed operators: whatever is constant during training is an input, computed before training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from sobgnn.baselines.source import Operator
from sobgnn.nn.cascade import shared_product
from sobgnn.nn.dropout import row_hashes
from sobgnn.propagation.drop import column_hashes, kept, thresholds


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


_HEAD = 1000  # separates the logits' dropout from that of layers


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
        """Draw new weights; the bias is 0."""
        glorot(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the map."""
        return shared_product(x.unsqueeze(1), self.weight).squeeze(1) + self.bias


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


class SIGN(nn.Module):
    """SIGN: a linear map for each of X, S X, …, S^K X, concatenated, and an MLP on top.

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


class FilterConv(nn.Module):
    r"""One layer over polynomials of a fixed operator.

    .. math:: H' = \sum_{k \in \mathcal{K}} T_k(S) H W_k + b

    with Chebyshev's polynomials :math:`T_k`. Degrees {1} over :math:`D^{-1/2}(A+I)D^{-1/2}` is GCNConv, {0, 1} over
    :math:`D^{-1}(A+I)` ClusterGCNConv, {0, …, K-1} over :math:`-D^{-1/2}AD^{-1/2}` ChebConv with K terms.

    Evaluated from the highest degree down (Clenshaw's recurrence), so that S acts on rows of ``out_channels``.
    """

    def __init__(self, in_channels: int, out_channels: int, degrees: Sequence[int]) -> None:
        super().__init__()
        self.degrees = tuple(degrees)
        self.weight = nn.Parameter(torch.empty(len(self.degrees), in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights; the bias is 0."""
        glorot(self.weight)
        nn.init.zeros_(self.bias)

    def constant(self, terms: Tensor) -> Tensor:
        """The layer from precomputed T_k(S) H, side by side: [R, |K| · in] to [R, out]."""
        product = shared_product(terms.unsqueeze(1), self.weight.flatten(0, 1).unsqueeze(0))
        return product.squeeze(1) + self.bias

    def forward(self, h: Tensor, operator: Operator, last: Operator | None = None) -> Tensor:
        """The layer at the rows of ``last``, which has rows of ``operator`` (by default all)."""
        last = operator if last is None else last
        terms = {k: h @ self.weight[i] for i, k in enumerate(self.degrees)}
        above: Tensor | None = None
        above2: Tensor | None = None
        for k in range(max(self.degrees), 0, -1):
            here = _sum(terms.get(k), None if above is None else 2 * operator(above), _negative(above2))
            above, above2 = here, above
        total = _sum(
            last.own(terms[0]) if 0 in terms else None,
            None if above is None else last(above),
            None if above2 is None else -last.own(above2),
        )
        assert total is not None
        return total + self.bias


class FilterNet(nn.Module):
    """Layers of :class:`FilterConv` with ReLU and dropout between them; the last one returns logits.

    Args:
        sizes: Features, hidden sizes, classes.
        degrees: Degrees of every layer's polynomials.
        dropout: Share of hidden entries dropped.
    """

    def __init__(self, sizes: Sequence[int], degrees: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(FilterConv(a, b, degrees) for a, b in pairwise(sizes))
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(self, first: Tensor, operator: Operator, last: Operator) -> Tensor:
        """Logits at the rows of ``last``, from T_k(S) X side by side [N, |K| · F]."""
        h: Tensor = self.layers[0].constant(first)  # type: ignore[operator]
        for i, layer in enumerate(self.layers):
            if i > 0:
                h = layer(self.dropout(h.relu()), operator, last if i == len(self.layers) - 1 else None)
        return h


def glorot(weight: Tensor) -> None:
    """Uniform weights [..., in, out] within ±√(6 / (in + out))."""
    bound = math.sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
    nn.init.uniform_(weight, -bound, bound)


def _sum(*terms: Tensor | None) -> Tensor | None:
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


def _negative(term: Tensor | None) -> Tensor | None:
    return None if term is None else -term
