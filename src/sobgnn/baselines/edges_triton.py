"""Sums over edges on CUDA, in Triton: one program for a row and a head walks the row's edges in tiles."""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sobgnn.baselines.edges import Edges

_TILE = 16  # edges whose rows of channels are read at once
_WIDE = 64  # edges whose scores are


@triton.jit
def _sum(
    indptr, other, place, p, x, out, edges, heads, channels,
    PLACED: tl.constexpr, E: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    lane = tl.arange(0, E)
    column = tl.arange(0, C)
    inside = column < channels
    total = tl.zeros([E, C], tl.float32)
    for start in range(begin, end, E):
        e = start + lane
        valid = e < end
        j = tl.load(other + e, mask=valid, other=0).to(tl.int64)
        if PLACED:
            e = tl.load(place + e, mask=valid, other=0).to(tl.int64)
        share = tl.load(p + head * edges + e, mask=valid, other=0.0)
        at = (j * heads + head) * channels
        rows = tl.load(x + at[:, None] + column[None, :], mask=valid[:, None] & inside[None, :], other=0.0)
        total += share[:, None] * rows
    tl.store(out + (row * heads + head) * channels + column, tl.sum(total, axis=0), mask=inside)


@triton.jit
def _dot(indptr, other, a, b, out, edges, heads, channels, E: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    lane = tl.arange(0, E)
    column = tl.arange(0, C)
    inside = column < channels
    own = tl.load(a + (row * heads + head) * channels + column, mask=inside, other=0.0)
    for start in range(begin, end, E):
        e = start + lane
        valid = e < end
        j = tl.load(other + e, mask=valid, other=0).to(tl.int64)
        at = (j * heads + head) * channels
        rows = tl.load(b + at[:, None] + column[None, :], mask=valid[:, None] & inside[None, :], other=0.0)
        tl.store(out + head * edges + e, tl.sum(rows * own[None, :], axis=1), mask=valid)


@triton.jit
def _softmax(indptr, scores, out, edges, E: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    lane = tl.arange(0, E)
    scores += head * edges
    out += head * edges
    highest = tl.full([E], float("-inf"), tl.float32)
    for start in range(begin, end, E):
        e = start + lane
        highest = tl.maximum(highest, tl.load(scores + e, mask=e < end, other=float("-inf")))
    top = tl.max(highest, axis=0)
    total = tl.zeros([E], tl.float32)
    for start in range(begin, end, E):
        e = start + lane
        total += tl.exp(tl.load(scores + e, mask=e < end, other=float("-inf")) - top)
    whole = tl.sum(total, axis=0)
    for start in range(begin, end, E):
        e = start + lane
        power = tl.exp(tl.load(scores + e, mask=e < end, other=float("-inf")) - top)
        tl.store(out + e, power / whole, mask=e < end)


@triton.jit
def _softmax_backward(indptr, shares, grad, out, edges, E: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    lane = tl.arange(0, E)
    shares += head * edges
    grad += head * edges
    out += head * edges
    total = tl.zeros([E], tl.float32)
    for start in range(begin, end, E):
        e = start + lane
        total += tl.load(shares + e, mask=e < end, other=0.0) * tl.load(grad + e, mask=e < end, other=0.0)
    whole = tl.sum(total, axis=0)
    for start in range(begin, end, E):
        e = start + lane
        share = tl.load(shares + e, mask=e < end, other=0.0)
        tl.store(out + e, share * (tl.load(grad + e, mask=e < end, other=0.0) - whole), mask=e < end)


def dot(edges: Edges, a: Tensor, b: Tensor) -> Tensor:
    """[H, E]."""
    rows, heads, channels = a.shape
    out = a.new_empty(heads, len(edges.sources))
    block, warps = _shape(channels)
    if out.numel():
        _dot[(rows, heads)](
            edges.indptr, edges.sources, a, b, out, out.shape[1], heads, channels, E=_TILE, C=block, num_warps=warps
        )
    return out


def gather(edges: Edges, p: Tensor, x: Tensor) -> Tensor:
    """[R, H, c]."""
    return _weighted(edges.indptr, edges.sources, None, p, x)


def spread(edges: Edges, p: Tensor, g: Tensor) -> Tensor:
    """[N, H, c]."""
    return _weighted(edges.t_indptr, edges.t_targets, edges.t_edge, p, g)


def softmax(edges: Edges, scores: Tensor) -> Tensor:
    """[H, E]."""
    out = torch.empty_like(scores)
    if out.numel():
        _softmax[(len(edges.indptr) - 1, len(scores))](edges.indptr, scores, out, scores.shape[1], E=_WIDE, num_warps=1)
    return out


def softmax_backward(edges: Edges, shares: Tensor, grad: Tensor) -> Tensor:
    """[H, E]."""
    out = torch.empty_like(grad)
    if out.numel():
        _softmax_backward[(len(edges.indptr) - 1, len(grad))](
            edges.indptr, shares, grad, out, grad.shape[1], E=_WIDE, num_warps=1
        )
    return out


def _weighted(indptr: Tensor, other: Tensor, place: Tensor | None, p: Tensor, x: Tensor) -> Tensor:
    heads, channels = x.shape[1:]
    rows = len(indptr) - 1
    out = x.new_empty(rows, heads, channels)
    block, warps = _shape(channels)
    if out.numel():
        _sum[(rows, heads)](
            indptr, other, other if place is None else place, p, x, out, p.shape[1], heads, channels,
            PLACED=place is not None, E=_TILE, C=block, num_warps=warps,
        )  # fmt: skip
    return out


def _shape(channels: int) -> tuple[int, int]:
    """Columns of a tile, a power of two, and warps for it."""
    block: int = triton.next_power_of_2(channels)
    return block, 1 if block <= 32 else 2 if block <= 64 else 4
