"""One layer: a cascade of sparse Sobolev filters and their combination."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vmap

from sobgnn.graphs.edges import check_how
from sobgnn.nn.cache import Cache
from sobgnn.nn.filter_bank import autocast_dtype, filter_bank, in_its_type, row_product, shared_product
from sobgnn.nn.inputs import OperatorSpec, Size, as_edges, as_operators, check_size, directed, number_of_targets
from sobgnn.nn.lazy import LazyWeights
from sobgnn.nn.without_messages import WithoutMessages
from sobgnn.operators import EdgeOperators, Normalize, SobolevRows, check_alpha, check_epsilon

Combine = Literal["linear", "concat"]


class SobolevConv(LazyWeights, WithoutMessages):
    r"""The sparse Sobolev convolution of "Higher-order Sparse Convolutions in Graph Neural Networks".

    .. math::
        B_\rho = \sigma(\hat{A}_\rho H W_\rho + b_\rho), \quad \rho = 1, \dots, \alpha, \qquad
        H' = \sum_\rho \mu_\rho B_\rho

    with the operators :math:`\hat{A}_\rho` of :class:`~sobgnn.SobolevOperators` and σ = ReLU. α = 1, ε = 1 and
    μ = 1 is ReLU of a graph convolution (GCN) of the same weights.

    Edge weights have gradients wherever they require them: those given as ``edge_weight``, and those of the graph of
    operators. The layer is one of PyG's ``MessagePassing`` modules, so that ``to_hetero`` and ``Explainer`` know it.

    Args:
        in_channels: Size of each input row; -1: taken from the first input. A pair for sources and targets of their own
            sizes, each with weights of its own.
        out_channels: Size of each output row.
        alpha: Number of filters, at least 1.
        epsilon: Weight of self-loops, at least 0. Used when operators are built here from edges.
        combine: ``"linear"`` sums the filters with learned scalars μ (the paper); ``"concat"`` puts a linear map
            on their concatenation.
        self_branch: Add ρ = 0, the graph-free filter :math:`\sigma(H W_0 + b_0)`.
        activation: Apply σ. Off for a last layer, whose outputs are logits.
        learn_epsilon: Learn ε, which starts at ``epsilon`` > 0. Operators are then built here, from edges or a graph.
        normalize: ``"sym"``, the paper's, for symmetric graphs; ``"row"`` for directed ones and for edges between two
            sets of nodes, see :class:`~sobgnn.operators.EdgeOperators`.
        symmetrize: ``"union"`` or ``"mutual"``: make ``edge_index`` symmetric first, as in :meth:`Graph.from_edges`.
        cached: Keep the operators built from ``edge_index`` and use them again for the same edges and weights, which
            are compared entry by entry at every call.
        flow: PyG's: ``"source_to_target"``, or ``"target_to_source"`` for edges listed the other way round.

    Shapes:
        x [N, in_channels], operators of N nodes or ``edge_index`` [2, E] and ``edge_weight`` [E]; gives
        [N, out_channels], or [R, out_channels] for ``operators.rows(index)`` of R rows. For x_src [S, F], x_dst [T, F']
        and edges between them [T, out_channels].

    Examples:
        >>> import torch
        >>> from sobgnn import SobolevConv, knn_graph
        >>> x = torch.rand(20, 8)
        >>> graph = knn_graph(x, k=3)
        >>> SobolevConv(8, 16, alpha=3)(x, *graph.edges()).shape
        torch.Size([20, 16])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        alpha: int = 3,
        epsilon: float = 1.0,
        combine: Combine = "linear",
        self_branch: bool = False,
        *,
        activation: bool = True,
        learn_epsilon: bool = False,
        normalize: Normalize = "sym",
        symmetrize: str | None = None,
        cached: bool = False,
        flow: str = "source_to_target",
    ) -> None:
        super().__init__()
        if combine not in ("linear", "concat"):
            raise ValueError(f'`combine` must be "linear" or "concat", but got {combine!r}.')
        if normalize not in ("sym", "row"):
            raise ValueError(f'`normalize` must be "sym" or "row", but got {normalize!r}.')
        check_how(symmetrize)
        if learn_epsilon and not epsilon > 0:
            raise ValueError(f"A learned epsilon must start above 0, but got epsilon={epsilon}.")
        self.out_channels = out_channels
        self.alpha = check_alpha(alpha)
        self.start_epsilon = check_epsilon(epsilon)
        self.combine = combine
        self.self_branch = self_branch
        self.activation = activation
        self.normalize: Normalize = normalize
        self.symmetrize = symmetrize
        self.flow = flow
        self._cache = Cache() if cached else None
        self.log_epsilon = nn.Parameter(torch.empty(())) if learn_epsilon else None
        branches = self.alpha + self_branch
        # Branch 0 is the graph-free one where there is one; the orders 1..α follow.
        self._make_weights(branches, in_channels, out_channels)
        self.bias = nn.Parameter(torch.empty(branches, out_channels))
        if combine == "linear":
            self.mu = nn.Parameter(torch.empty(branches))
        else:
            self.mix = nn.Linear(branches * out_channels, out_channels)
        self.reset_parameters()

    @property
    def epsilon(self) -> float:
        """Weight of self-loops."""
        return self.start_epsilon if self.log_epsilon is None else float(_bounded_exp(self.log_epsilon.detach()))

    @property
    def spec(self) -> OperatorSpec:
        """What this layer asks of its operators."""
        epsilon = self.start_epsilon if self.log_epsilon is None else _bounded_exp(self.log_epsilon)
        # An explainer's mask need not be the same in both directions of an edge.
        return OperatorSpec(self.alpha, epsilon, self.normalize, self.symmetrize, directed=bool(self.explain))

    def reset_parameters(self) -> None:
        """Draw new weights: Glorot for the filters, an even average for μ."""
        self._draw_weights()
        nn.init.zeros_(self.bias)
        if self.log_epsilon is not None:
            nn.init.constant_(self.log_epsilon, math.log(self.start_epsilon))
        if self.combine == "linear":
            nn.init.constant_(self.mu, 1.0 / self.mu.numel())
        else:
            self.mix.reset_parameters()

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
        *,
        size: Size | None = None,
        propagated: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer.

        Args:
            x: Input rows [N, in_channels], dense or torch sparse; B signals [B, N, in_channels] of one graph; or
                (sources, targets) of either form; targets of ``None`` have no rows, and so no self-loops.
            edge_index: Operators (or some of their rows) with this layer's α; or what operators are built from at
                every call: PyG's ``edge_index`` or EdgeIndex, a torch sparse adjacency matrix (entry [i, j] is the edge
                from j to i), a :class:`~sobgnn.Graph`. Where the graph stays the same, build them once, or use
                ``cached=True``. ``None`` where ``propagated`` holds all that is needed of them.
            edge_weight: Weights of ``edge_index``.
            size: Number of sources and of targets, each or ``None``, checked against ``x``; needed where targets have
                no rows.
            propagated: ``operators.propagate(x)`` [N, α, in_channels], where x never changes and it is at hand; of B
                signals [B, N, α, in_channels].
        """
        first = x[0] if isinstance(x, tuple) else x
        if isinstance(first, Tensor) and first.ndim == 3:
            return self._signals(x, edge_index, edge_weight, size, propagated)
        rows, targets, spec = self._rows(x, edge_index, size)
        operators = edge_index
        if operators is not None:
            operators = self._operators(operators, edge_weight, rows, targets, spec, size)
        return self._one(rows, targets, operators, propagated)

    def _rows(self, x: Any, given: Any, size: Size | None) -> tuple[Tensor, Tensor | None, OperatorSpec]:
        """Input rows, the targets' own where there are two sets of nodes, and the operators that they need."""
        spec = self.spec
        rows, targets = x if isinstance(x, tuple) else (x, None)
        sources, own = self.in_channels if isinstance(self.in_channels, tuple) else (self.in_channels, self.in_channels)
        if isinstance(x, tuple) and targets is None:  # rows of zeros, of which no average has a share
            count, channels = number_of_targets(given, size), rows.shape[1] if own == -1 else own
            targets = torch.zeros(count, channels, dtype=rows.dtype, device=rows.device)
            spec = dataclasses.replace(spec, epsilon=0.0)
        elif self.weight_dst is not None and not isinstance(x, tuple):  # as PyG reads it: sources that are targets too
            targets = rows
        for name, part, channels in (("x", rows, sources), ("x of the targets", targets, own)):
            known = channels != -1  # no `in` below: sizes may be symbols
            if part is not None and not isinstance(part, Tensor):
                raise TypeError(f"{name} must be a torch tensor, but got {type(part).__name__}. Use torch.as_tensor.")
            if part is not None and (part.ndim != 2 or (known and channels != part.shape[1])):
                raise ValueError(f"{name} must have shape [N, {channels}], but got {list(part.shape)}.")
        self._materialize(rows, targets)
        return rows, targets, spec

    def _operators(
        self,
        given: Any,
        edge_weight: Tensor | None,
        rows: Tensor,
        targets: Tensor | None,
        spec: OperatorSpec,
        size: Size | None,
    ) -> Any:
        x = rows if targets is None else (rows, targets)
        if self.explain and not isinstance(given, EdgeOperators):
            if not isinstance(given, Tensor):
                raise ValueError("An explanation needs edge_index: operators do not show their edges.")
            given, edge_weight = as_edges(given, edge_weight)
            carried = row_product(rows, self.weight[int(self.self_branch) :]).mean(dim=1)
            edge_weight = self._explained(given, edge_weight, rows, rows if targets is None else targets, carried)
        given = directed(given, self.flow, two_sets=targets is not None)
        check_size(given, x, size)
        if self._cache is None or not isinstance(given, Tensor) or torch.compiler.is_compiling():
            return as_operators(given, edge_weight, x, spec)
        return self._cache.get(given, edge_weight, x, spec, lambda: as_operators(given, edge_weight, x, spec))

    def _one(self, rows: Tensor, targets: Tensor | None, operators: Any, propagated: Tensor | None) -> Tensor:
        """The layer of one signal."""
        if propagated is not None:
            nodes = None if operators is None else operators.nodes
            shape = (rows.shape[0] if nodes is None else nodes.shape[0], self.alpha, rows.shape[1])
            if tuple(propagated.shape) != shape:
                raise ValueError(
                    f"propagated must be what the operators make of x, {list(shape)}, but got {list(propagated.shape)}."
                )
        elif operators is None:
            raise ValueError("Without operators the layer needs `propagated`, what they make of x.")
        dense = targets is None and rows.layout == torch.strided
        # Per edge, aggregating first reads one row of in_channels, transforming first α rows of out_channels.
        if not dense or (propagated is None and self.weight.shape[1] > self.alpha * self.out_channels):
            if operators is None:
                raise ValueError("Sparse x needs a graph or operators.")
            return self._finish(self._transformed(rows, targets, operators))
        own, dtype = None, autocast_dtype(rows)
        if self.self_branch:
            own = rows[operators.own] if isinstance(operators, SobolevRows) else rows
        if dtype is not None:
            rows, own = rows.to(dtype), None if own is None else own.to(dtype)
        if propagated is None:
            propagated = in_its_type(operators.propagate, rows)
        if self.combine == "linear" and dtype is None:
            return filter_bank(own, propagated, self.weight, self.bias, self.mu, relu=self.activation)
        weight = self.weight if dtype is None else self.weight.to(dtype)
        filtered = shared_product(propagated.to(weight.dtype), weight[int(self.self_branch) :])
        if own is not None:
            filtered = torch.cat([shared_product(own.unsqueeze(1), weight[:1]), filtered], dim=1)
        return self._finish(filtered)

    def _transformed(self, rows: Tensor, targets: Tensor | None, operators: Any) -> Tensor:
        """All branches [R, branches, out_channels], rows multiplied by the weights before they are propagated.

        Inputs of edges between two sets of nodes are the sources, then the targets for their self-loops.
        """
        skip = int(self.self_branch)
        inputs, own = row_product(rows, self.weight[skip:]), None
        if targets is not None:
            if not isinstance(operators, EdgeOperators):
                raise ValueError("Sources and targets need the edges between them, or EdgeOperators of those.")
            known = (operators.num_inputs - operators.num_nodes, operators.num_nodes)
            if known != (rows.shape[0], targets.shape[0]):
                raise ValueError(
                    f"x must have the sources and targets of the operators, {known}, but got "
                    f"{(rows.shape[0], targets.shape[0])}."
                )
            product = row_product(targets, self.weight if self.weight_dst is None else self.weight_dst)
            inputs, own = torch.cat([inputs, product[:, skip:]]), product[:, :skip]
        elif skip and rows.layout == torch.strided:
            own = rows[operators.own] if isinstance(operators, SobolevRows) else rows
            own = shared_product(own.unsqueeze(1), self.weight[:1].to(inputs.dtype))
        elif skip:
            own = row_product(rows, self.weight[:1])
            own = own[operators.own] if isinstance(operators, SobolevRows) else own
        filtered = in_its_type(operators.propagate_each, inputs)
        return filtered if own is None else torch.cat([own, filtered], dim=1)

    def _finish(self, filtered: Tensor) -> Tensor:
        """Bias, σ and combination of [R, branches, out_channels]."""
        filtered = filtered + self.bias.to(filtered.dtype)
        if self.activation:
            filtered = filtered.relu()
        if self.combine == "linear":
            return (filtered * self.mu.to(filtered.dtype).unsqueeze(1)).sum(dim=1)
        mixed: Tensor = self.mix(filtered.flatten(1))
        return mixed

    def _signals(
        self, x: Any, edge_index: Any, edge_weight: Tensor | None, size: Size | None, propagated: Tensor | None
    ) -> Tensor:
        """Several signals of one graph [B, N, in_channels] to [B, N, out_channels]."""
        pair = x if isinstance(x, tuple) else (x,)
        parts = [part for part in pair if part is not None]
        count = len(parts[0])
        if not count or any(part.ndim != 3 or len(part) != count for part in parts):
            raise ValueError(
                "Signals of one graph need at least one signal, and as many of the targets as of the sources, but got "
                f"{[list(part.shape) for part in parts]}."
            )
        if propagated is not None and (propagated.ndim != 4 or len(propagated) != count):
            raise ValueError(
                "propagated must be what the operators make of each signal, "
                f"[{count}, {x.shape[1]}, {self.alpha}, {x.shape[2]}], but got {list(propagated.shape)}."
            )

        def rows_of(signal: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor | None, OperatorSpec]:
            return self._rows(signal if isinstance(x, tuple) else signal[0], edge_index, size)

        def one(signal: tuple[Tensor | None, ...], known: Tensor | None) -> Tensor:
            return self._one(*rows_of(signal)[:2], operators, known)

        signals = [tuple(None if part is None else part[i] for part in pair) for i in range(count)]
        operators = edge_index
        if operators is not None:
            operators = self._operators(edge_index, edge_weight, *rows_of(signals[0]), size)
        if torch.compiler.is_compiling():  # which does not know vmap's rules of ours
            known = [None] * count if propagated is None else list(propagated)
            return torch.stack([one(*given) for given in zip(signals, known, strict=True)])
        places = tuple(None if part is None else 0 for part in pair)
        out: Tensor = vmap(one, (places, None if propagated is None else 0))(tuple(pair), propagated)
        return out.contiguous()  # whose signals and rows can be viewed as one dimension, as those of PyG's layers

    @property
    def shares_operators(self) -> bool:
        """Whether all layers of a model may use the operators that one of them builds: not where each learns its ε."""
        return self.log_epsilon is None

    def operators(self, given: Any, edge_weight: Tensor | None, x: Tensor) -> Any:
        """The operators that this layer applies to x."""
        return self._operators(given, edge_weight, x, None, self.spec, None)

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
        extra += "" if self.log_epsilon is None else ", learn_epsilon=True"
        extra += "" if self.normalize == "sym" else f", normalize={self.normalize!r}"
        return (
            f"SobolevConv({self.in_channels}, {self.out_channels}, alpha={self.alpha}, epsilon={self.epsilon}, "
            f"combine={self.combine!r}{extra})"
        )


def _bounded_exp(log_epsilon: Tensor) -> Tensor:
    """ε within the range of edge weights, 1.2e-38 to 8.5e37; bounded before exp, which has no gradient at infinity."""
    return log_epsilon.clamp(-87.0, 87.0).exp()
