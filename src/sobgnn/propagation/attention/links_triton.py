"""The kernel of the loss of link prediction on CUDA, in Triton: a program is one node of one member."""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

from sobgnn.propagation.attention.walks_triton import MERGED, own_edges


@triton.jit
def _pairs(partner, valid, own, value, member, row, width, inverse_heads, column, inside, SIGN: tl.constexpr):
    """Losses [E] of a node's pairs and their gradient by its own row [D]; SIGN is 1 of edges, -1 of others."""
    place = partner.to(tl.int64)[:, None] * row + member * width + column[None, :]
    rows = tl.load(value + place, mask=valid[:, None] & inside[None, :], other=0.0).to(tl.float32)
    score = -SIGN * inverse_heads * tl.sum(rows * own[None, :], axis=1)
    loss = tl.maximum(score, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(score)))
    slope = tl.where(valid, -SIGN * inverse_heads * tl.sigmoid(score), 0.0)
    return tl.where(valid, loss, 0.0), tl.sum(slope[:, None] * rows, axis=0)


@triton.jit(do_not_specialize=["length", "nodes", "drawn", "members", "width", "most"])
def links(
    long, length, parts, indptr, sources, others, value, scale, losses, gradient, nodes, drawn, members, width, most,
    inverse_heads, PART: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """A node's part of the loss, and the gradient of all of it by the node's row."""
    member = tl.program_id(1)
    row = members * width
    column = tl.arange(0, D)
    # All members have the same nodes; one that is left out has no columns.
    node, _, start, end, own_width = own_edges(long, length, indptr, width, 0, 1, most, PART)
    inside = column < own_width
    lane = tl.arange(0, E)
    at = node * row + member * width + column
    own = tl.load(value + at, mask=inside, other=0.0).to(tl.float32)
    loss, to_own = tl.zeros([E], tl.float32), tl.zeros([D], tl.float32)
    if PART == 3:
        for segment in tl.range(start, end, loop_unroll_factor=MERGED):
            stands = parts + (tl.cast(segment, tl.int64) * members + member) * (D + E)
            to_own += tl.load(stands + column)
            loss += tl.load(stands + D + lane)
    else:
        for first in range(start, end, E):
            valid = first + lane < end
            partner = tl.load(sources + first + lane, mask=valid, other=0)
            part, to = _pairs(partner, valid, own, value, member, row, width, inverse_heads, column, inside, 1)
            loss += part
            to_own += to
    if PART == 2:
        stands = parts + (tl.program_id(0).to(tl.int64) * members + member) * (D + E)
        tl.store(stands + column, to_own)
        tl.store(stands + D + lane, loss)
        return
    edge_scale = tl.load(scale + member)
    loss, to_own = loss * edge_scale, to_own * edge_scale
    other_scale = tl.load(scale + members + member)
    start = (member * nodes + node) * drawn
    for first in range(0, tl.where(own_width > 0, drawn, 0), E):
        known = first + lane < drawn
        partner = tl.load(others + start + first + lane, mask=known, other=-1)
        valid = partner >= 0
        partner = tl.where(valid, partner, 0)
        part, to = _pairs(partner, valid, own, value, member, row, width, inverse_heads, column, inside, -1)
        loss += part * other_scale
        to_own += to * other_scale
    tl.store(losses + node * members + member, tl.sum(loss, axis=0), mask=own_width > 0)
    tl.store(gradient + at, 2.0 * to_own, mask=inside)
