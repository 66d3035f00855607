"""What kernels that walk edges on CUDA share, in Triton: which edges a program has, where a segment's results stand."""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

# Loads of so many segments are under way at once.
MERGED = tl.constexpr(4)


@triton.jit
def own_edges(long, length, indptr, head, total, members, most, PART: tl.constexpr):
    """A program's row or node, its member, where its edges begin and end, and its heads.

    All rows of a member follow each other: what they gather stays in the cache. Of members that share rows,
    ``members`` is 1. ``PART`` is

    - 0: all rows, ``length`` of each member.
    - 1: The same; a row of over ``most`` edges has no edges and no heads here, so that nothing of it is stored.
    - 2: ``long`` [3, length]: a row, and where a segment of its edges begins and ends.
    - 3: ``long`` [3, length]: a row, and where its segments begin and end, instead of its edges.
    """
    program = tl.program_id(0)
    if PART >= 2:
        place = tl.load(long + program)
        member = place % members
        place = place.to(tl.int64)
        begin = tl.load(long + length + program)
        end = tl.load(long + 2 * length + program)
    else:
        member = program // length
        place = ((program % length) * members + member).to(tl.int64)
        begin = tl.load(indptr + place)
        end = tl.load(indptr + place + 1)
    if PART == 1:
        left_out = end - begin > most
        end = tl.where(left_out, begin, end)
        head = tl.where(left_out, total, head)
    return place, member, begin, end, head


@triton.jit
def part_places(parts, segment, head, column, total, P: tl.constexpr):
    """Where a segment's results stand: columns of its first vector [B, C], the second one P further; numbers [B]."""
    start = parts + (tl.cast(segment, tl.int64) * total + head) * (2 * P + 4)
    return start[:, None] + column[None, :], start + 2 * P
