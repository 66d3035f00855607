"""One layer: a bank of sparse Sobolev filters and their combination."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.parameter import UninitializedParameter

from sobgnn.graphs.edges import check_how
from sobgnn.nn.base import Layer
from sobgnn.nn.filter_bank import autocast_dtype, filter_bank, row_product, shared_product
from sobgnn.operators import EdgeOperators, Normalize, SobolevRows, check_alpha, check_epsilon
from sobgnn.operators.edges import Nodes, as_edges, as_operators, check_size, number_of_targets

Combine = Literal["linear", "concat"]
Size = tuple[int | None, int | None]


class SobolevConv(Layer):
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
        normalize: ``"sym"`` (or True), the paper's, for symmetric graphs; ``"row"`` for directed ones and for edges
            between two sets of nodes, see :class:`~sobgnn.operators.EdgeOperators`.
        symmetrize: ``"union"`` or ``"mutual"``: make ``edge_index`` symmetric first, as in :meth:`Graph.from_edges`.
        cached: Keep the operators built from ``edge_index`` and use them again for the same edges and weights, which
            are compared entry by entry at every call.
        bias: Learn b; without, it is 0.
        add_self_loops: False is ε = 0: only the self-loops among the edges.
        improved: GCNConv's; refused, as it is ε = 2.
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
        normalize: Normalize | bool = "sym",
        symmetrize: str | None = None,
        cached: bool = False,
        bias: bool = True,
        add_self_loops: bool | None = True,
        improved: bool = False,
        flow: str = "source_to_target",
    ) -> None:
        super().__init__()
        if combine not in ("linear", "concat"):
            raise ValueError(f'`combine` must be "linear" or "concat", but got {combine!r}.')
        if normalize is True:
            normalize = "sym"
        if normalize not in ("sym", "row"):
            raise ValueError(
                f'`normalize` must be "sym" or "row", but got {normalize!r}: each order is normalized by its degrees.'
            )
        check_how(symmetrize)
        if improved:
            raise ValueError("`improved` is another weight of self-loops here. Pass epsilon=2.0.")
        epsilon = check_epsilon(epsilon) if add_self_loops or add_self_loops is None else 0.0
        if learn_epsilon and not epsilon > 0:
            raise ValueError(f"A learned epsilon must start above 0, but got epsilon={epsilon}.")
        self.out_channels = out_channels
        self.alpha = check_alpha(alpha)
        self.start_epsilon = epsilon
        self.combine = combine
        self.self_branch = self_branch
        self.activation = activation
        self.normalize: Normalize = normalize
        self.symmetrize = symmetrize
        self.cached = cached
        self.flow = flow
        # Edges, what was asked of their operators, and these: threads that share a layer replace all of it at once.
        self._kept: tuple[tuple[Any, ...], list[Tensor], EdgeOperators] | None = None
        self.log_epsilon = nn.Parameter(torch.empty(())) if learn_epsilon else None
        # Branch 0 is the graph-free one where there is one; the orders 1..α follow.
        self.branches = self.alpha + self_branch
        self.make_weights(in_channels)
        self.bias = nn.Parameter(torch.empty(self.branches, out_channels)) if bias else None
        if combine == "linear":
            self.mu = nn.Parameter(torch.empty(self.branches))
        else:
            self.mix = nn.Linear(self.branches * out_channels, out_channels, bias=bias)
        self.reset_parameters()

    @property
    def in_channels(self) -> int | tuple[int, int]:
        """Size of each input row, or a pair for sources and targets; -1: not known yet."""
        sources = _channels(self.weight)
        return sources if self.weight_dst is None else (sources, _channels(self.weight_dst))

    @property
    def epsilon(self) -> float:
        """Weight of self-loops."""
        return self.start_epsilon if self.log_epsilon is None else float(_bounded_exp(self.log_epsilon.detach()))

    def reset_parameters(self) -> None:
        """Draw new weights: Glorot for the filters, an even average for μ."""
        self.draw_weights()
        if self.bias is not None:
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
        rows, targets = self._rows(x, edge_index, size)
        operators = edge_index
        if edge_index is not None:
            no_loops = isinstance(x, tuple) and x[1] is None  # rows of zeros, of which no average has a share
            operators = self.operators(edge_index, edge_weight, rows, targets, size, 0.0 if no_loops else None)
        elif propagated is None:
            raise ValueError("Without operators the layer needs `propagated`, what they make of x.")
        if propagated is not None:
            nodes = None if operators is None else operators.nodes
            count = rows.shape[-2] if nodes is None else nodes.shape[0]
            shape = (*rows.shape[:-2], count, self.alpha, rows.shape[-1])
            if tuple(propagated.shape) != shape:
                raise ValueError(
                    f"propagated must be what the operators make of x, {list(shape)}, but got {list(propagated.shape)}."
                )
        if rows.ndim == 2:
            return self._one(operators, rows, targets, propagated)
        signals = (rows, targets, propagated)
        if torch.compiler.is_compiling():  # which does not know vmap's rules of ours
            parts: list[Any] = [[None] * len(rows) if part is None else part.unbind() for part in signals]
            return torch.stack([self._one(operators, *one) for one in zip(*parts, strict=True)])
        places = tuple(None if part is None else 0 for part in signals)
        out: Tensor = vmap(partial(self._one, operators), places)(*signals)
        return out.contiguous()  # whose signals and rows can be viewed as one dimension, as those of PyG's layers

    def _rows(self, x: Any, given: Any, size: Size | None) -> tuple[Tensor, Tensor | None]:
        """Input rows, and the targets' own where there are two sets of nodes, checked."""
        # As PyG reads one x of a layer with weights for both: sources that are targets too.
        rows, targets = x if isinstance(x, tuple) else (x, None if self.weight_dst is None else x)
        sources = _channels(self.weight)
        own = sources if self.weight_dst is None else _channels(self.weight_dst)
        for name, part, known in (("x", rows, sources), ("x of the targets", targets, own)):
            if part is not None and not isinstance(part, Tensor):
                raise TypeError(f"{name} must be a torch tensor, but got {type(part).__name__}. Use torch.as_tensor.")
            # No `in`: sizes may be symbols.
            if part is not None and (part.ndim not in (2, 3) or (known != -1 and known != part.shape[-1])):
                raise ValueError(f"{name} must have shape [N, {known}], but got {list(part.shape)}.")
        if (rows.ndim == 3 and not len(rows)) or (targets is not None and rows.shape[:-2] != targets.shape[:-2]):
            raise ValueError(
                "Signals of one graph need at least one signal, and as many of the targets as of the sources, but got "
                f"{[list(part.shape) for part in (rows, targets) if part is not None]}."
            )
        if isinstance(x, tuple) and targets is None:
            count = number_of_targets(given, size)
            width = rows.shape[-1] if own == -1 else own
            targets = torch.zeros(*rows.shape[:-2], count, width, dtype=rows.dtype, device=rows.device)
        if -1 in (sources, own):
            self.materialize(rows.shape[-1], None if targets is None else targets.shape[-1])
        return rows, targets

    def operators(
        self,
        given: Any,
        edge_weight: Tensor | None,
        rows: Tensor,
        targets: Tensor | None = None,
        size: Size | None = None,
        epsilon: float | Tensor | None = None,
    ) -> Any:
        """The operators that this layer applies to its input: those given, checked, or those built from a graph.

        Args:
            given, edge_weight, size: As in :meth:`forward`.
            rows, targets: Input rows, as it reads them of x.
            epsilon: Other than the layer's own.
        """
        if self.flow not in ("source_to_target", "target_to_source"):
            raise ValueError(f'`flow` must be "source_to_target" or "target_to_source", but got {self.flow!r}.')
        nodes: Nodes = rows.shape[-2] if targets is None else (rows.shape[-2], targets.shape[-2])
        if size is not None:
            check_size("size", size, nodes)
        if epsilon is None:
            epsilon = self.start_epsilon if self.log_epsilon is None else _bounded_exp(self.log_epsilon)
        asked: dict[str, Any] = {"alpha": self.alpha, "epsilon": epsilon, "normalize": self.normalize}
        # An explainer's mask need not be the same in both directions of an edge.
        asked |= {"symmetrize": self.symmetrize, "directed": bool(self.explain)}
        if not isinstance(given, Tensor):
            if self.explain and not isinstance(given, EdgeOperators):
                raise ValueError("An explanation needs edge_index: operators do not show their edges.")
            return as_operators(given, edge_weight, nodes, rows.dtype, **asked)
        edges, weight = as_edges(given, edge_weight, nodes, self.flow)
        if self.explain:
            ends = (rows, rows if targets is None else targets)
            weight = self.explained(edges, weight, *(part[0] if part.ndim == 3 else part for part in ends))
        learned = isinstance(epsilon, Tensor) or (weight is not None and weight.requires_grad)
        if not self.cached or learned or torch.compiler.is_compiling():
            return EdgeOperators(edges, weight, nodes, dtype=rows.dtype, **asked)
        # Comparing millions of edges takes milliseconds, where sorting them takes a hundred times as long, and is safe
        # against edges that changed in place.
        key = (nodes, rows.dtype == torch.float64, weight is None, *asked.values())
        tensors = [edges] if weight is None else [edges, weight]
        kept = self._kept
        if kept is None or kept[0] != key or not all(map(_same, tensors, kept[1])):
            with torch.inference_mode(False):  # what is kept serves training too
                copies = [tensor.detach().clone() for tensor in tensors]
                self._kept = kept = key, copies, EdgeOperators(edges, weight, nodes, dtype=rows.dtype, **asked)
        return kept[2]

    def _one(self, operators: Any, rows: Tensor, targets: Tensor | None, propagated: Tensor | None) -> Tensor:
        """The layer of one signal."""
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
            propagated = operators.propagate(rows)
        if self.combine == "linear" and dtype is None:
            bias = self.mu.new_zeros(self.branches, self.out_channels) if self.bias is None else self.bias
            inputs = (*(() if own is None else (own,)), *propagated.unbind(dim=1))
            return filter_bank(inputs, self.weight, bias, self.mu, relu=self.activation)
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
        filtered = operators.propagate_each(inputs)
        return filtered if own is None else torch.cat([own, filtered], dim=1)

    def _finish(self, filtered: Tensor) -> Tensor:
        """Bias, σ and combination of [R, branches, out_channels]."""
        if self.bias is not None:
            filtered = filtered + self.bias.to(filtered.dtype)
        if self.activation:
            filtered = filtered.relu()
        if self.combine == "linear":
            return (filtered * self.mu.to(filtered.dtype).unsqueeze(1)).sum(dim=1)
        mixed: Tensor = self.mix(filtered.flatten(1))
        return mixed

    @torch.no_grad()
    def filter_weights(self) -> Tensor:
        """How much each filter counts: [branches], summing to 1, the graph-free branch first where there is one.

        The share of |μ_ρ|, or for ``combine="concat"`` of the norm of the filter's block in the linear map.
        """
        if self.combine == "linear":
            size = self.mu.abs()
        else:
            blocks = self.mix.weight.view(-1, self.branches, self.out_channels)
            size = blocks.pow(2).sum(dim=(0, 2)).sqrt()
        return size / size.sum().clamp_min(torch.finfo(size.dtype).tiny)

    def __repr__(self) -> str:
        extra = ", self_branch=True" if self.self_branch else ""
        extra += "" if self.log_epsilon is None else ", learn_epsilon=True"
        extra += "" if self.normalize == "sym" else f", normalize={self.normalize!r}"
        extra += "" if self.bias is not None else ", bias=False"
        return (
            f"SobolevConv({self.in_channels}, {self.out_channels}, alpha={self.alpha}, epsilon={self.epsilon}, "
            f"combine={self.combine!r}{extra})"
        )


def _channels(weight: Tensor) -> int:
    return -1 if isinstance(weight, UninitializedParameter) else weight.shape[1]


def _same(tensor: Tensor, kept: Tensor) -> bool:
    return tensor.device == kept.device and tensor.dtype == kept.dtype and torch.equal(tensor, kept)


def _bounded_exp(log_epsilon: Tensor) -> Tensor:
    """ε within the range of edge weights, 1.2e-38 to 8.5e37; bounded before exp, which has no gradient at infinity."""
    return log_epsilon.clamp(-87.0, 87.0).exp()
