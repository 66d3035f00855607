r"""A whole layer of attention for many members at once, on CUDA: scores, softmax, sum, bias, ReLU and dropout.

The same equations as :mod:`~sobgnn.propagation.attention.registration`, for a caller that has all members' rows side by
side and follows a hidden layer with bias, ReLU and dropout. Against an operator for each of these it saves passes over
memory: an entry is written once on its way from one matrix product to the next, and the backward pass finds in the
layer's output what ReLU and dropout did.

With :func:`torch.set_float32_matmul_precision` at ``"highest"``, torch's default, everything is float32. Otherwise
the rows that the passes over edges gather are rounded to float16, whose mantissa is that of TF32, in which the matrix
products that made them are computed; sums stay in float32. A row of gradients is divided by its largest entry first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sobgnn.propagation.attention.terms import ADDITIVE, GATED, SCALED_DOT, EdgePattern
from sobgnn.propagation.attention.walks import Long, Seen, Shape, launch_sizes, walk_edges


class Drop(NamedTuple):
    """Which entries of a hidden layer are dropped: those where a hash of row and column is below the threshold.

    Attributes:
        rows: int32 [N, S], see :func:`sobgnn.propagation.drop.kept`.
        columns: int32 [H · c].
        threshold: int32 [S].
        factor: float32 [S], by which the others grow.
    """

    rows: Tensor
    columns: Tensor
    threshold: Tensor
    factor: Tensor


class Weights(NamedTuple):
    """What a layer learns apart from its maps; all members'.

    Attributes:
        first: The targets' vectors [S · H, c]; of the scaled dot product the maps' biases [S, 3 · H · c].
        second: The sources' vectors [S · H, c]; of the scaled dot product the edges' vectors.
        edge: The factors of edge weights [S · H] of additive scores.
        bias: [S · H · c] of a hidden layer.
    """

    first: Tensor
    second: Tensor
    edge: Tensor | None
    bias: Tensor | None


def attend_members(
    edges: EdgePattern,
    index: Tensor,
    kind: int,
    shape: Shape,
    maps: Tensor,
    weights: Weights,
    drop: Drop | None = None,
    *,
    long: Long,
    queries: Tensor | None = None,
    apart: bool = False,
) -> Tensor:
    """One layer of attention for S members.

    Args:
        edges: Into R rows from N nodes.
        index: int64 [R], the nodes of the rows.
        kind: ``ADDITIVE``, ``GATED`` or ``SCALED_DOT``.
        shape: Sizes.
        maps: float32 [N, S · W]. A member's columns are its heads' values, W = H · c; of the scaled dot product its
            keys and values, W = 2 · H · c, and in a hidden layer, whose rows are the nodes, before them its queries and
            what is added to the result, W = 4 · H · c.
        weights: With a bias, the layer is a hidden one.
        drop: Dropout of a hidden layer in training.
        long: Rows and nodes of many edges.
        queries: float32 [R, S, H · c], of the scaled dot product in a last layer.
        apart: Members have rows of their own, R each, in a last layer. Edges and index are then those of R · S rows and
            N · S nodes: row r of member s is r · S + s, and so are nodes.

    Returns:
        Of a hidden layer its entries after bias, ReLU and dropout [R, S · H · c]; else each head's sums [R, S · H, c].
    """
    result: Tensor = _Layer.apply(edges, index, kind, shape, drop, long, apart, maps, queries, *weights)  # type: ignore[no-untyped-call]
    return result


def fits(nodes: int, shape: Shape) -> bool:
    """Whether a layer is small enough for :func:`attend_members`, which counts entries in 32 bits."""
    return nodes * shape.total * shape.padded < 2**31


def product_members(x: Tensor, *weights: Tensor) -> Tensor:
    """x [N, f] of all members, or [N, S, f], times weights [S, F, o], F <= f, side by side: [N, S · Σ o].

    Where x is shared, it may be padded with columns of zeros, so that its rows begin at multiples of 16 bytes: tensor
    cores are slow without.
    """
    product: Tensor = _Product.apply(x, *weights)  # type: ignore[no-untyped-call]
    return product


def products_members(
    x: Tensor, index: Tensor, weights: Sequence[Tensor], own: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """:func:`product_members` of x [N, S, f], and some of its rows times other weights, side by side: [R, S, Σ q].

    Args:
        x: Members' rows.
        index: int64 [R · S], different ones: row n of member s is n · S + s.
        weights: [S, f, o] each, of all rows.
        own: [S, f, q] each, of those in the index.
    """
    products: tuple[Tensor, Tensor] = _Products.apply(  # type: ignore[no-untyped-call]
        x, index, torch.cat(tuple(weights), dim=2), torch.cat(tuple(own), dim=2)
    )
    return products


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.widths = [weight.shape[2] for weight in weights]
        if x.ndim == 3:
            weight = torch.cat(weights, dim=2)
            ctx.save_for_backward(x, weight)
            return _beside(x, weight).flatten(1)
        members, features, _ = weights[0].shape
        beside = x.new_empty(x.shape[1], members, sum(ctx.widths))
        beside[features:] = 0
        for part, weight in zip(torch.split(beside[:features], ctx.widths, dim=2), weights, strict=True):
            part.copy_(weight.transpose(0, 1))
        ctx.features = features
        ctx.save_for_backward(x, beside)
        return x @ beside.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if x.ndim == 3:
            to_x, to_weight = _beside_backward(x, weight, grad)
            return to_x, *torch.split(to_weight, ctx.widths, dim=2)
        to_weight = (x.t() @ grad.contiguous())[: ctx.features].view(ctx.features, *weight.shape[1:])
        return None, *torch.split(to_weight.transpose(0, 1), ctx.widths, dim=2)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, weight: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        some = x.flatten(0, 1).index_select(0, index).view(-1, *x.shape[1:])
        ctx.save_for_backward(x, index, weight, own, some)
        return _beside(x, weight).flatten(1), _beside(some, own)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, to_some: Tensor) -> tuple[Tensor | None, ...]:
        x, index, weight, own, some = ctx.saved_tensors
        to_x, to_weight = _beside_backward(x, weight, grad)
        of_some, to_own = _beside_backward(some, own, to_some)
        to_x.flatten(0, 1).index_add_(0, index, of_some.flatten(0, 1))  # each row once, so in no order
        return to_x, None, to_weight, to_own


def _beside(x: Tensor, weight: Tensor) -> Tensor:
    """Each member's own product: x [N, S, f] times weight [S, f, o], [N, S, o]."""
    out = x.new_empty(*x.shape[:2], weight.shape[2])
    torch.bmm(x.transpose(0, 1), weight, out=out.transpose(0, 1))
    return out


def _beside_backward(x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    own = grad.contiguous().view(*x.shape[:2], -1).transpose(0, 1)
    to_x = torch.empty_like(x)
    torch.bmm(own, weight.transpose(1, 2), out=to_x.transpose(0, 1))
    return to_x, torch.bmm(x.permute(1, 2, 0), own)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, edges: EdgePattern, index: Tensor, kind: int, shape: Shape, drop: Drop | None, long: Long,
        apart: bool, maps: Tensor, queries: Tensor | None, first: Tensor, second: Tensor, edge: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:  # fmt: skip
        from sobgnn.propagation.attention import layer_triton as kernels

        maps, first, second = maps.contiguous(), first.contiguous(), second.contiguous()
        edge, bias = (None if value is None else value.contiguous() for value in (edge, bias))
        seen = Seen(shape, apart)
        nodes, rows, total, channels = len(maps), len(index) // seen.members, shape.total, shape.channels
        maps, queries = _sides(maps, queries, kind, shape)
        units, query_units = (part.stride(1) // channels for part in (maps, queries))
        storage = torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float16

        def compact(length: int) -> Tensor:
            return maps.new_empty(length, total, shape.padded, dtype=storage)

        # Queries and their part of the scores are those of rows, all else of nodes.
        value = compact(nodes)
        query, key = (compact(rows), compact(nodes)) if kind == SCALED_DOT else (value, value)
        target = maps.new_empty(rows if kind == SCALED_DOT else nodes, total)
        source = target if kind == SCALED_DOT else torch.empty_like(target)
        grid, options = launch_sizes(nodes, Seen(shape), kind)
        kernels.prepare[grid](maps, first, second, key, value, target, source, total, shape.heads, units, **options)
        if kind == SCALED_DOT:
            grid, _ = launch_sizes(rows, Seen(shape), kind)
            kernels.prepare_queries[grid](
                queries, first, second, query, target, total, shape.heads, query_units, **options
            )
        hidden = bias is not None
        out = maps.new_empty((rows, total * channels) if hidden else (rows, total, channels))
        log_sum = maps.new_empty(rows, total)
        above = compact(rows) if kind == ADDITIVE else value
        moment = torch.empty_like(log_sum) if kind == SCALED_DOT else log_sum
        # The edges' vectors stand where additive scores have their factors: a kernel reads one of the two.
        along = second if edge is None else edge
        stand_in = drop if drop is not None else Drop(index, index, index, log_sum)
        sizes = (seen.total, shape.heads, query_units, seen.members, long.most)
        walk_edges(
            kernels.forward, "forward", kind, seen, rows, long.rows,
            *edges[:3], index, queries, query, key, value, target, source, along, maps if bias is None else bias,
            *stand_in, out, above, moment, log_sum, *sizes, channels**-0.5,
            HIDDEN=hidden, DROP=drop is not None,
        )  # fmt: skip
        ctx.kind, ctx.shape, ctx.seen, ctx.count, ctx.long = kind, shape, seen, len(edges), long
        factor = maps.new_ones(shape.members) if drop is None else drop.factor
        # Of the maps only what is added to the result is read again.
        kept = queries if kind == SCALED_DOT and hidden else None
        ctx.width = maps.shape[1] * maps.stride(1)
        ctx.save_for_backward(
            *edges, index, factor, kept, query, key, value, target, source, first, second, edge, bias,
            out, above, moment, log_sum,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_result: Tensor) -> tuple[Tensor | None, ...]:
        from sobgnn.propagation.attention import layer_gradient as kernels

        kind, shape, seen = ctx.kind, ctx.shape, ctx.seen
        edges, saved = EdgePattern(*ctx.saved_tensors[: ctx.count]), ctx.saved_tensors[ctx.count :]
        (index, factor, kept, query, key, value, target, source, first, second, edge, bias,
         out, above, moment, log_sum) = saved  # fmt: skip
        to_result = to_result.contiguous()
        nodes, rows, total, channels = len(value), len(index) // seen.members, shape.total, shape.channels
        same = rows == nodes and not seen.apart
        joint = torch.empty(nodes, ctx.width, device=value.device)
        to_rows = None
        if kind == SCALED_DOT and bias is None:
            to_rows = joint.new_empty(rows, shape.members, shape.heads * channels)
        to_maps, to_queries = _sides(joint, to_rows, kind, shape)
        units, query_units = (part.stride(1) // channels for part in (to_maps, to_queries))
        to_target = torch.empty_like(target)
        if kind != SCALED_DOT and not same:  # nodes that are no rows have no targets
            to_target.zero_()
            if kind == GATED:
                joint.zero_()
        gradient = value.new_empty(rows, total, shape.padded)
        level, center = torch.empty_like(log_sum), torch.empty_like(log_sum)
        weighted = torch.empty_like(log_sum) if kind == SCALED_DOT else center
        along = second if edge is None else edge
        sizes = (seen.total, shape.heads)
        walk_edges(
            kernels.rows, "rows", kind, seen, rows, None if kind == ADDITIVE else ctx.long.rows,
            *edges[:3], index, to_queries if kept is None else kept, query, key, value, target, source, along,
            factor if bias is None else bias, factor, out, above, log_sum, to_result, gradient, level, center, weighted,
            to_target, to_queries, *sizes, query_units, seen.members, ctx.long.most, channels**-0.5,
            HIDDEN=bias is not None,
        )  # fmt: skip
        to_source = to_target if kind == SCALED_DOT else torch.empty_like(to_target)
        to_edge = torch.empty_like(to_target) if kind == ADDITIVE else to_source
        walk_edges(
            kernels.nodes, "nodes", kind, seen, nodes, ctx.long.nodes,
            *edges[3:], index, query, key, value, target, source, along, first, second, gradient, level, center,
            weighted, to_target, to_maps, to_source, to_edge, *sizes, units, seen.members, ctx.long.most,
            channels**-0.5, SAME=same or kind == SCALED_DOT,
        )  # fmt: skip

        def sums(factors: Tensor, x: Tensor) -> Tensor:
            return _weighted_sums(factors, x, channels)

        largest = (log_sum - level).exp_()
        to_bias = None
        if kind == SCALED_DOT:
            size = shape.heads * channels
            columns, of_values = to_queries.sum(dim=0), to_maps[..., size:].sum(dim=0)
            # A shift of all keys moves all scores of a row alike, so that no share changes.
            to_first = torch.cat([columns[:, :size], torch.zeros_like(of_values), of_values], dim=1)
            to_second = sums(to_target, query) + sums(moment * largest, gradient)
            to_bias = None if bias is None else columns[:, size:].reshape(-1)
        else:
            to_first, to_second = sums(to_target, value), sums(to_source, value)
            to_bias = None if bias is None else sums(largest, gradient).view(-1)
        parts = to_edge.sum(dim=0) if kind == ADDITIVE else None
        return None, None, None, None, None, None, None, joint, to_rows, to_first, to_second, parts, to_bias


def _sides(maps: Tensor, queries: Tensor | None, kind: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """What nodes give and what rows give, each [N or R, S, columns]: views of the maps where these hold both."""
    of_nodes = maps.view(len(maps), shape.members, -1)
    if kind != SCALED_DOT:
        return of_nodes, of_nodes
    if queries is None:
        of_rows, of_nodes = of_nodes.chunk(2, dim=2)
        return of_nodes, of_rows
    pitch = queries.stride(1)
    aligned = queries.stride() == (shape.members * pitch, pitch, 1) and pitch % shape.channels == 0
    return of_nodes, queries if aligned else queries.contiguous()


def _weighted_sums(factors: Tensor, x: Tensor, channels: int) -> Tensor:
    """Sums over n of factors [n, G] · x [n, G, P]: [G, c]; the same bits every time."""
    import triton

    from sobgnn.propagation.attention import layer_triton as kernels

    length, total, padded = x.shape
    lanes, steps = 32, 8
    chunks = triton.cdiv(length, lanes * steps)
    out = factors.new_empty(chunks, total, channels)
    kernels.weighted_sums[(chunks, total)](
        factors, x, out, length, total, T=lanes, STEPS=steps, c=channels, P=padded, num_warps=2
    )
    return out.sum(dim=0)
