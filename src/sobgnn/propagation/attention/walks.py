"""How kernels of a whole attention layer on CUDA walk edges: sizes, tiles, and rows of many edges in segments.

A program walks the edges of a row one after the other. With rows of thousands of edges all others would wait for these
few; so their edges are cut into segments, each walked like a row of its own, and a third launch merges the segments of
each row. No sum depends on which program is first: the same bits every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sobgnn.propagation.attention.terms import ADDITIVE, GATED, SCALED_DOT, SLOPE, EdgePattern


class Walk(NamedTuple):
    """How a pass walks the edges of a row.

    Attributes:
        lanes: Number of edges whose rows are read at once.
        halved: Heads of at least this many channels are walked as two halves.
        unroll: Number of steps by which the loop is unrolled.
    """

    lanes: int
    halved: int = 32
    unroll: int = 1


# The fastest of those tried on an H200.
_NEVER = 1 << 30
_WALKS = {
    ("forward", ADDITIVE): Walk(8, _NEVER),
    ("forward", GATED): Walk(4),
    ("forward", SCALED_DOT): Walk(8),
    ("rows", ADDITIVE): Walk(1),
    ("rows", GATED): Walk(1, unroll=2),
    ("rows", SCALED_DOT): Walk(2, _NEVER, unroll=2),
    ("nodes", ADDITIVE): Walk(4),
    ("nodes", GATED): Walk(2),
    ("nodes", SCALED_DOT): Walk(1, 64),
}
# Entries of a tile of one member's heads.
_TILE = 256
# Maximum number of edges of a row that is walked as a whole, and of a segment of a longer row. The two further launches
# pay off if the longest row has over twice as many edges.
MOST, SEGMENT = 256, 128


class Shape(NamedTuple):
    """Sizes of a layer.

    Attributes:
        members: S.
        heads: H, of each member.
        channels: c, of each head.
    """

    members: int
    heads: int
    channels: int

    @property
    def total(self) -> int:
        """Heads of all members."""
        return self.members * self.heads

    @property
    def padded(self) -> int:
        """Channels to a power of two, at least 8: 16 bytes in float16."""
        return max(8, 1 << (self.channels - 1).bit_length())


class Cut(NamedTuple):
    """Rows of many edges and the segments that these are cut into, V of L rows.

    Attributes:
        segments: int32 [3, V]: row, first edge and end of each segment, in the order of the edges.
        merged: int32 [3, L]: row, first segment and end of each row.
    """

    segments: Tensor
    merged: Tensor


class Long(NamedTuple):
    """Rows and nodes of many edges.

    Attributes:
        rows: Rows of more than ``most`` edges; ``None`` if no row has over twice as many.
        nodes: Nodes of more than ``most`` edges, likewise.
        most: Maximum number of edges of all others.
    """

    rows: Cut | None
    nodes: Cut | None
    most: int

    @classmethod
    def of(cls, edges: EdgePattern, most: int = MOST, segment: int = SEGMENT) -> Long:
        """Those of a pattern, in segments of at most ``segment`` edges; synchronizes with the device."""
        return cls(_cut(edges.indptr, most, segment), _cut(edges.t_indptr, most, segment), most)


def _cut(indptr: Tensor, most: int, segment: int) -> Cut | None:
    counts = indptr.diff()
    if not (counts > 2 * most).any():
        return None
    rows = (counts > most).nonzero().flatten()
    pieces = (counts[rows] + segment - 1) // segment
    ends = pieces.cumsum(0)
    begins = ends - pieces
    owner = torch.arange(len(rows), device=rows.device).repeat_interleave(pieces)
    row = rows[owner]
    first = indptr[row] + segment * (torch.arange(len(owner), device=rows.device) - begins[owner])
    end = torch.minimum(first + segment, indptr[row + 1])
    return Cut(torch.stack([row, first, end]).int(), torch.stack([rows, begins, ends]).int())


class Seen(NamedTuple):
    """A layer as the passes over edges see it: all members' heads at each row, or one member's where they are apart."""

    shape: Shape
    apart: bool = False

    @property
    def members(self) -> int:
        """Members with rows of their own; 1 where all share them."""
        return self.shape.members if self.apart else 1

    @property
    def total(self) -> int:
        """Heads at a row."""
        return self.shape.heads if self.apart else self.shape.total


def walk_edges(
    kernel: Any, step: str, kind: int, seen: Seen, rows: int, cut: Cut | None, *arguments: Any, **constants: Any
) -> None:
    """Launch a pass over the edges of rows or nodes; those of many edges in segments."""
    grid, options = launch_sizes(rows, seen, kind, _WALKS[step, kind])
    options |= {"SLOPE": SLOPE, **constants}
    # Two vectors and up to four numbers of each head.
    results = (seen.total, 2 * seen.shape.padded + 4)
    launch_parts(kernel, grid, rows, cut, results, arguments, options)


def launch_parts(
    kernel: Any,
    grid: tuple[int, int],
    length: int,
    cut: Cut | None,
    results: tuple[int, ...],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> None:
    """Launch a kernel over all rows; where some have many edges, over the others, then segments, then these rows.

    Args:
        kernel: Its first arguments are ``long``, ``length`` and ``parts``, where segments leave their results; what its
            constant ``PART`` means is told at :func:`~sobgnn.propagation.attention.walks_triton.own_edges`.
        grid: Programs: rows, and blocks of a row.
        length: Rows of each member.
        cut: Rows of many edges.
        results: Shape of what a segment leaves.
        arguments: All others.
        options: Constants.
    """
    if cut is None:
        unread = arguments[0]
        kernel[grid](unread, length, unread, *arguments, PART=0, **options)
        return
    parts = torch.empty(cut.segments.shape[1], *results, dtype=torch.float32, device=cut.segments.device)
    kernel[grid](cut.segments, length, parts, *arguments, PART=1, **options)
    for part, long in ((2, cut.segments), (3, cut.merged)):
        kernel[long.shape[1], grid[1]](long, long.shape[1], parts, *arguments, PART=part, **options)


def launch_sizes(rows: int, seen: Seen, kind: int, walk: Walk | None = None) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid and a program's tile; without a walk, of the kernel that reads no edges."""
    columns = seen.shape.padded
    options: dict[str, Any] = {"KIND": kind, "c": seen.shape.channels, "num_warps": 1}
    if seen.apart and walk is not None:
        # One member's heads are too few to occupy a warp: more edges do.
        block = 1 << (seen.total - 1).bit_length()
        lanes = max(1, _TILE // (block * columns))
        return (rows * seen.members, 1), options | {"B": block, "C": columns, "E": lanes, "TWO": False, "UNROLL": 1}
    two = walk is not None and columns >= walk.halved
    part = columns // 2 if two else columns
    # A thread reads 16 bytes, 8 channels: so many heads occupy a warp. Fewer are not worth a kernel of their own.
    block = max(1, 256 // part)
    options |= {"B": block, "C": part}
    if walk is not None:
        options |= {"E": walk.lanes, "TWO": two, "UNROLL": walk.unroll}
    return (rows, -(-seen.total // block)), options
