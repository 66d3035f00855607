"""One layer: a cascade of sparse Sobolev filters and their combination."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sobgnn.graphs.graph import Graph
from sobgnn.nn.cascade import cascade
from sobgnn.operators import SobolevOperators, SobolevRows, check_alpha, check_epsilon

Combine = Literal["linear", "concat"]


class SobolevConv(nn.Module):
    r"""The sparse Sobolev convolution of "Higher-order Sparse Convolutions in Graph Neural Networks".

    .. math::
        B_\rho = \sigma(\hat{A}_\rho H W_\rho + b_\rho), \quad \rho = 1, \dots, \alpha, \qquad
        H' = \sum_\rho \mu_\rho B_\rho

    with the operators :math:`\hat{A}_\rho` of :class:`~sobgnn.SobolevOperators` and σ = ReLU. α = 1, ε = 1 and
    μ = 1 is ReLU of a graph convolution (GCN) of the same weights.

    Args:
        in_channels: Size of each input row.
        out_channels: Size of each output row.
        alpha: Number of filters, at least 1.
        epsilon: Weight of self-loops, at least 0. Used when operators are built here from edges.
        combine: ``"linear"`` sums the filters with learned scalars μ (the paper); ``"concat"`` puts a linear map
            on their concatenation.
        self_branch: Add ρ = 0, the graph-free filter σ(H W_0 + b_0).
        activation: Apply σ. Off for a last layer, whose outputs are logits.

    Shapes:
        x [N, in_channels], operators of N nodes or ``edge_index`` [2, E] and ``edge_weight`` [E]; gives
        [N, out_channels], or [R, out_channels] for ``operators.rows(index)`` of R rows.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        alpha: int = 3,
        epsilon: float = 1.0,
        combine: Combine = "linear",
        self_branch: bool = False,
        *,
        activation: bool = True,
    ) -> None:
        super().__init__()
        if combine not in ("linear", "concat"):
            raise ValueError(f'`combine` must be "linear" or "concat", but got {combine!r}.')
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.alpha = check_alpha(alpha)
        self.epsilon = check_epsilon(epsilon)
        self.combine = combine
        self.self_branch = self_branch
        self.activation = activation
        branches = self.alpha + self_branch
        # Branch 0 is the graph-free one where there is one; the orders 1..α follow.
        self.weight = nn.Parameter(torch.empty(branches, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(branches, out_channels))
        if combine == "linear":
            self.mu = nn.Parameter(torch.empty(branches))
        else:
            self.mix = nn.Linear(branches * out_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights: Glorot for the filters, an even average for μ."""
        bound = math.sqrt(6 / (self.in_channels + self.out_channels))
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.zeros_(self.bias)
        if self.combine == "linear":
            nn.init.constant_(self.mu, 1.0 / self.mu.numel())
        else:
            self.mix.reset_parameters()

    def forward(
        self,
        x: Tensor,
        operators: SobolevOperators | SobolevRows | Tensor | None,
        edge_weight: Tensor | None = None,
        *,
        propagated: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer.

        Args:
            x: Input rows.
            operators: Operators (or some of their rows) with this layer's α; or PyG's ``edge_index``, from which
                operators are built at every call. Where the graph stays the same, build them once. ``None`` where
                ``propagated`` holds all that is needed of them.
            edge_weight: Weights of ``edge_index``.
            propagated: ``operators.propagate(x)`` [N, α, in_channels], where x never changes and it is at hand.
        """
        if x.ndim != 2 or x.shape[1] != self.in_channels:
            raise ValueError(f"x must have shape [N, {self.in_channels}], but got {list(x.shape)}.")
        if operators is not None:
            operators = as_operators(operators, edge_weight, x, self.alpha, self.epsilon)
        own = None
        if self.self_branch:
            own = x[operators.own] if isinstance(operators, SobolevRows) else x
        if propagated is None and operators is not None and self._aggregates_first():
            propagated = operators.propagate(x)
        if propagated is not None and self.combine == "linear":
            return cascade(own, propagated, self.weight, self.bias, self.mu, relu=self.activation)
        filtered = self._filter(x, operators, propagated)
        if own is not None:
            filtered = torch.cat([shared_product(own.unsqueeze(1), self.weight[:1]), filtered], dim=1)
        filtered = filtered + self.bias
        if self.activation:
            filtered = filtered.relu()
        if self.combine == "linear":
            return (filtered * self.mu.unsqueeze(1)).sum(dim=1)
        mixed: Tensor = self.mix(filtered.flatten(1))
        return mixed

    def _aggregates_first(self) -> bool:
        """Per edge, aggregating first reads one row of in_channels, transforming first α rows of out_channels."""
        return self.in_channels <= self.alpha * self.out_channels

    def _filter(self, x: Tensor, operators: SobolevOperators | SobolevRows | None, propagated: Tensor | None) -> Tensor:
        """Â_ρ x W_ρ for ρ = 1..α: [R, α, out_channels]."""
        weight = self.weight[1:] if self.self_branch else self.weight
        if propagated is None:
            if operators is None:
                raise ValueError("Without operators the layer needs `propagated`, what they make of x.")
            return operators.propagate_each(torch.einsum("ni,aio->nao", x, weight))
        return shared_product(propagated, weight)

    @torch.no_grad()
    def filter_weights(self) -> Tensor:
        """How much each filter counts: [branches], summing to 1, the graph-free branch first where there is one.

        The share of |μ_ρ|, or for ``combine="concat"`` of the norm of the filter's block in the linear map.
        """
        if self.combine == "linear":
            size = self.mu.abs()
        else:
            size = self.mix.weight.view(-1, *self.bias.shape).pow(2).sum(dim=(0, 2)).sqrt()
        return size / size.sum().clamp_min(torch.finfo(size.dtype).tiny)

    def __repr__(self) -> str:
        extra = ", self_branch=True" if self.self_branch else ""
        return (
            f"SobolevConv({self.in_channels}, {self.out_channels}, alpha={self.alpha}, epsilon={self.epsilon}, "
            f"combine={self.combine!r}{extra})"
        )


def shared_product(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, a, i] times weight [a, i, o], branch by branch: [N, a, o].

    Mapped over members that share x, it is one matrix product per branch with the members' weights side by side;
    vmap by itself would copy x once for each member.
    """
    product: Tensor = _SharedProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product


class _SharedProduct(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return torch.einsum("nai,aio->nao", x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x = torch.einsum("nao,aio->nai", grad, weight) if ctx.needs_input_grad[0] else None
        to_weight = torch.einsum("nai,nao->aio", x, grad) if ctx.needs_input_grad[1] else None
        return to_x, to_weight

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
        # Ordinary operations, one level further out: their gradients are autograd's own.
        if in_dims[1] is None:
            assert in_dims[0] is not None
            return torch.einsum("snai,aio->snao", x.movedim(in_dims[0], 0), weight), 0
        weight = weight.movedim(in_dims[1], 0)
        if in_dims[0] is not None:
            return torch.einsum("snai,saio->snao", x.movedim(in_dims[0], 0), weight), 0
        members, branches, i, o = weight.shape
        beside = weight.permute(1, 2, 0, 3).reshape(branches, i, members * o)
        product = torch.bmm(x.transpose(0, 1), beside).view(branches, -1, members, o)
        return product.transpose(0, 1), 2


def as_operators(
    operators: SobolevOperators | SobolevRows | Tensor,
    edge_weight: Tensor | None,
    x: Tensor,
    alpha: int,
    epsilon: float,
) -> SobolevOperators | SobolevRows:
    """Operators with ``alpha`` orders: those given, checked, or new ones from ``edge_index`` and ``edge_weight``."""
    if isinstance(operators, Tensor):
        graph = Graph.from_edges(operators, edge_weight, num_nodes=x.shape[0])
        return SobolevOperators(graph, alpha, epsilon)
    if edge_weight is not None:
        raise ValueError("edge_weight goes with edge_index; operators hold their own weights. Leave it out.")
    if operators.alpha != alpha:
        raise ValueError(
            f"The operators must have this layer's alpha={alpha}, but have alpha={operators.alpha}. Build them with "
            f"SobolevOperators(graph, alpha={alpha})."
        )
    return operators
