r"""Exact search: float32 products propose, float64 differences order, an error bound proves.

Matrix products cannot order neighbors by themselves, since :math:`|x|^2 + |y|^2 - 2 x \cdot y` cancels. They
propose a few more than k candidates; the candidates' distances are recomputed from differences in float64; and a
bound on the products' rounding error proves that no point left out is closer. Rows it cannot prove (ties,
clusters far smaller than the spread of the data) are searched again in float64, where every point within
the bound is looked at. The answer therefore depends neither on block sizes nor on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.graphs.neighbors import tiles
from sobgnn.graphs.neighbors.points import Dense
from sobgnn.propagation import backend, native

_BLOCK_BYTES = 2**27  # of float64 products held at once
_FEW = 256  # rows searched in float64 for which no equal rows are looked for
# Queries that are compared between two calls of progress, and by a thread at once, with all points or with a cell.
_SCANNED, _SCAN_PART, _PART = 1 << 15, 2048, 4096

# Comparing two points costs as much as this many multiplications, besides one for each feature: 8.6 ns per pair with 10
# features and 24 ns with 1,000.
_PAIR = 500

_CPU = torch.device("cpu")

Progress = Callable[[int, int], None]
Found = tuple[Tensor, Tensor]


def query_cost(points: int, features: int) -> float:
    """Cost of an exact query among some points, in multiplications."""
    return float(points) * (features + _PAIR)


def search_exact(
    base: Any,
    query: Any,
    k: int,
    which: npt.NDArray[np.int64] | None = None,
    progress: Progress | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Indices and squared distances of the k nearest rows of ``base`` to all or some query rows: [M, k].

    ``query is base`` leaves each row itself out.
    """
    at = torch.arange(query.n) if which is None else torch.from_numpy(which)
    at = at.to(base.device)
    if not (isinstance(base, Dense) and (compiled(base.device) or tiles.keeps_float32(base.device))):
        found, d2 = _search_float64(base, query, k, at, progress)
    else:
        many = min(k + max(8, k // 4), base.n - (query is base))
        propose = _propose if compiled(base.device) else tiles.propose
        last, candidates = propose(base, query, many, at, progress)
        found, d2 = _prove(base, query, k, at, last, candidates)
    return found.cpu().numpy(), d2.cpu().numpy()


def _prove(base: Dense, query: Dense, k: int, at: Tensor, last: Tensor, candidates: Tensor) -> Found:
    """The k nearest of each row ``at`` by float64 distances, from candidates where these are proven enough."""
    parts, proven, itself = [], [], query is base
    for rows, near, least in zip(*(torch.split(part, _SCANNED) for part in (at, candidates, last)), strict=True):
        d2 = measure(base, query, rows, near)
        if itself:
            d2[near == rows.unsqueeze(1)] = torch.inf
        near, d2 = by_distance(near, d2)
        bound = _bound(base, query.low_sq[rows], d2[:, k - 1], torch.float32)
        proven.append((least > bound) | (near.shape[1] >= base.n - itself))
        parts.append((near[:, :k], d2[:, :k]))
    found, d2 = (torch.cat(part) for part in zip(*parts, strict=True))
    doubtful = (~torch.cat(proven)).nonzero().flatten()
    if len(doubtful):
        found[doubtful], d2[doubtful] = _search_float64(base, query, k, at[doubtful], None)
    return found, d2


def measure(base: Any, query: Any, at: Tensor, to: Tensor) -> Tensor:
    """Squared distances in float64, [b, c]; what is rounding alone is 0."""
    d2: Tensor = base.squared(query, at, to)
    # Parallel rows differ by rounding once they have unit length; they are equal, and ties go by index.
    if base.cosine:
        d2[d2 < 1e-30] = 0.0
    return d2


def by_distance(found: Tensor, d2: Tensor) -> Found:
    """Each row in the order of (distance, index)."""
    found, order = found.sort(dim=1)
    d2, order = d2.gather(1, order).sort(dim=1, stable=True)
    return found.gather(1, order), d2


def _bound(base: Any, own: Tensor, farthest: Tensor, level: torch.dtype) -> Tensor:
    """What the computed |x - y|² of a y among the k nearest cannot exceed, given the k-th candidate's: [b].

    Such a y is within far of x, hence no longer than |x| + far. A sum of t terms in precision u is off by at
    most t·u times the sum of their sizes, in whatever order it is taken; the sizes sum to (|x| + |y|)².
    """
    u = torch.finfo(level).eps / 2
    length, far = own.sqrt(), farthest.sqrt()
    reach: Tensor = (length + far).clamp_(max=base.reach) + length
    shift = (u + 2.0**-50 * math.sqrt(base.terms)) * (reach + 1)  # the rows themselves are rounded
    slack: Tensor = 2.1 * (base.terms + 8) * u * reach.square() + base.terms * torch.finfo(level).tiny
    return (far + shift).square() + slack


# ---------------------------------------------------------------------------------- float32: candidates


class Groups(NamedTuple):
    """Groups of queries, each compared with a group of points: spans [G, 2] of lists of rows.

    A query is in at most one group.
    """

    point_spans: npt.NDArray[np.int64]
    points: npt.NDArray[np.int32]
    query_spans: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]

    @classmethod
    def all_points(cls, points: int, queries: int, parts: int | None = None) -> Groups:
        """Every query compared with every point, in groups that threads can share."""
        parts = -(-queries // _PART) if parts is None else parts
        ends = np.arange(parts + 1, dtype=np.int64) * queries // parts
        whole, listed = np.tile(np.array([[0, points]], np.int64), (parts, 1)), np.arange(points, dtype=np.int32)
        return cls(whole, listed, np.stack([ends[:-1], ends[1:]], 1), np.arange(queries, dtype=np.int32))

    @classmethod
    def by_cell(
        cls,
        cell: npt.NDArray[np.int32],
        spans: npt.NDArray[np.int64],
        points: npt.NDArray[np.int32],
        device: torch.device = _CPU,
    ) -> Groups:
        """Queries by their cells [M], -1 for none, each compared with its cell's part of ``points``, ``spans`` [C, 2].

        Large groups are cut, so that threads can share them.
        """
        turn = torch.from_numpy(cell).to(device).argsort(stable=True).int().cpu().numpy()
        start = np.searchsorted(cell[turn], np.arange(len(spans) + 1))
        pieces = -(-np.diff(start) // _PART)
        of, parts = np.repeat(np.arange(len(spans)), pieces), np.repeat(pieces, pieces)
        piece, length = np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces), np.diff(start)[of]
        ends = np.stack([piece * length // parts, (piece + 1) * length // parts], axis=1)
        return cls(spans[of], points, start[of, None] + ends, turn)


class Heaps:
    """The ``most`` smallest scores of each query so far, [M, most] in no order, the largest of them first.

    Attributes:
        scores: float32, infinite where there is none yet.
        found: int32, the rows of the points; -1 where there is none yet.
    """

    def __init__(self, queries: int, most: int, device: torch.device) -> None:
        self.scores = torch.full((queries, most), torch.inf, dtype=torch.float32, device=device)
        self.found = torch.full((queries, most), -1, dtype=torch.int32, device=device)


def compiled(device: torch.device) -> bool:
    """Whether :func:`scan` is compiled here."""
    return device.type == "cpu" and backend() == "native"


def scan(points: Tensor, squares: Tensor, queries: Tensor, groups: Groups, heaps: Heaps) -> None:
    r"""Update the heaps by :math:`|y|^2 - 2 \, x \cdot y` for every query x and point y of each group.

    Args:
        points: float32 [N, D], contiguous.
        squares: float32 [N], their squared lengths.
        queries: float32 [M, D], contiguous.
        groups: What is compared. The answer does not depend on their order, or on the number of threads.
        heaps: For M queries.
    """
    if not compiled(points.device):
        return tiles.scan(points, squares, queries, *groups, heaps.scores, heaps.found)
    sizes = (len(groups.point_spans), points.shape[1], heaps.scores.shape[1])
    native.call("sobgnn_scan", torch.float32, points, squares, queries, *groups, heaps.scores, heaps.found, *sizes)


def _propose(base: Dense, query: Dense, many: int, at: Tensor, progress: Progress | None) -> Found:
    """As :func:`tiles.propose`, by the compiled kernel; a row is one of its candidates, of which there is one more."""
    lasts, columns, done = [], [], 0
    for rows in torch.split(at, _SCANNED):
        heaps = Heaps(len(rows), many + (query is base), base.device)
        parts = max(-(-len(rows) // _SCAN_PART), min(4 * torch.get_num_threads(), -(-len(rows) // 16)))
        scan(base.low, base.squares, query.low[rows], Groups.all_points(base.n, len(rows), parts), heaps)
        lasts.append(heaps.scores[:, 0].double() + query.low_sq[rows])
        columns.append(heaps.found.long())
        done += len(rows)
        if progress is not None:
            progress(done, len(at))
    return torch.cat(lasts), torch.cat(columns)


# ------------------------------------------------------------------------------- float64: the last word


def _search_float64(base: Any, query: Any, k: int, at: Tensor, progress: Progress | None) -> Found:
    # Of equal rows only the first k, and one for the row itself, can be neighbors. Without this, a set with
    # many equal rows would compare each with each.
    eligible = base.first_copies(k + 1) if len(at) > _FEW else None
    parts, done = [], 0
    for rows in torch.split(at, max(1, _BLOCK_BYTES // (8 * base.n))):
        parts.append(_search_block(base, query, k, rows, eligible))
        done += len(rows)
        if progress is not None:
            progress(done, len(at))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def _search_block(base: Any, query: Any, k: int, at: Tensor, eligible: Tensor | None) -> Found:
    others = base.n - (query is base)
    many = min(k + 8, others)
    values, own = base.products(query, at)
    if query is base:
        tiles.leave_out_itself(values, at, 0)
    top = values.topk(many, dim=1, largest=False, sorted=False)
    found, d2 = by_distance(top.indices, measure(base, query, at, top.indices))
    bound = _bound(base, own, d2[:, k - 1], torch.float64)
    found, d2 = found[:, :k].contiguous(), d2[:, :k].contiguous()
    doubtful = (top.values.amax(1) <= bound).nonzero().flatten()
    if many == others or len(doubtful) == 0:
        return found, d2
    within = (values <= bound.unsqueeze(1))[doubtful]
    if eligible is not None:
        within &= eligible
    # The k nearest among the columns within the bound, all of whose distances are computed. nonzero() lists columns in
    # order, so two stable sorts leave (row, distance, column).
    row, column = within.nonzero(as_tuple=True)
    measured = measure(base, query, at[doubtful][row], column.unsqueeze(1)).flatten()
    order = measured.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    counts = torch.bincount(row, minlength=len(doubtful))
    take = order[(counts.cumsum(0) - counts).unsqueeze(1) + torch.arange(k, device=row.device)]
    found[doubtful], d2[doubtful] = column[take], measured[take]
    return found, d2
