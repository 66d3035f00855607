r"""Exact search: float32 products propose, float64 differences order, an error bound proves.

Matrix products cannot order neighbors by themselves, since :math:`|x|^2 + |y|^2 - 2 x \cdot y` cancels. They
propose a few more than k candidates; the candidates' distances are recomputed from differences in float64; and a
bound on the products' rounding error proves that no point left out is closer. Rows it cannot prove (ties,
clusters far smaller than the spread of the data) are searched again in float64, where every point within
the bound is looked at. The answer therefore depends neither on block sizes nor on the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.graphs.neighbors.distances import Dense, Space
from sobgnn.graphs.neighbors.scan import Groups, Heaps, compiled, scan

_TILE = 4096  # points: float32 products of a tile take 64 MiB; 8192 saves 15 % of the time and takes 256 MiB
_CUDA_TILE = 8192
_BLOCK_BYTES = 2**27  # of float64 products held at once
_GROUP = 16
_FAR = 1e30  # squared distance of the rows that pad a tile; real ones are at most 4 × features
_FEW = 256  # rows searched in float64 for which no equal rows are looked for
# Queries that are compared between two calls of progress, and by a thread at once.
_SCANNED, _SCAN_PART = 1 << 15, 2048

# Comparing two points costs as much as this many multiplications, besides one for each feature: 8.6 ns per pair with 10
# features and 24 ns with 1,000.
_PAIR = 500

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
    if not isinstance(base, Dense) or not _keeps_float32(base.device):
        found, d2 = _search_float64(base, query, k, at, progress)
    else:
        many = min(k + max(8, k // 4), base.n - (query is base))
        propose = _propose_compiled if compiled(base.device) else _propose
        last, candidates = propose(base, query, many, None if which is None else at, progress)
        found, d2 = _prove(base, query, k, at, last, candidates)
    return found.cpu().numpy(), d2.cpu().numpy()


def _prove(base: Dense, query: Dense, k: int, at: Tensor, last: Tensor, candidates: Tensor) -> Found:
    """The k nearest of each row ``at`` by float64 distances, from candidates where these are proven enough."""
    many = candidates.shape[1]
    itself = query is base
    found = torch.empty((len(at), k), dtype=torch.int64, device=base.device)
    d2 = torch.empty((len(at), k), dtype=torch.float64, device=base.device)
    proven = torch.empty(len(at), dtype=torch.bool, device=base.device)
    for rows in torch.arange(len(at), device=base.device).split(_TILE):  # type: ignore[no-untyped-call]
        d2_of = measure(base, query, at[rows], candidates[rows])
        if itself:
            d2_of[candidates[rows] == at[rows].unsqueeze(1)] = torch.inf
        nearest, exactly = by_distance(candidates[rows], d2_of)
        bound = _bound(base, query.low_sq[at[rows]], exactly[:, k - 1], torch.float32)
        proven[rows] = (last[rows] > bound) | (many >= base.n - itself)
        found[rows], d2[rows] = nearest[:, :k], exactly[:, :k]
    doubtful = (~proven).nonzero().flatten()
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


def _bound(base: Space, own: Tensor, farthest: Tensor, level: torch.dtype) -> Tensor:
    """What the computed |x - y|² of a y among the k nearest cannot exceed, given the k-th candidate's: [b].

    Such a y is within far of x, hence no longer than |x| + far. A sum of t terms in precision u is off by at
    most t·u times the sum of their sizes, in whatever order it is taken; the sizes sum to (|x| + |y|)².
    """
    u = torch.finfo(level).eps / 2
    length, far = own.sqrt(), farthest.sqrt()
    reach = (length + far).clamp_(max=base.reach) + length
    shift = (u + 2.0**-50 * math.sqrt(base.terms)) * (reach + 1)  # the rows themselves are rounded
    slack = 2.1 * (base.terms + 8) * u * reach.square() + base.terms * torch.finfo(level).tiny
    return (far + shift).square() + slack


# ---------------------------------------------------------------------------------- float32: candidates


def _propose_compiled(base: Dense, query: Dense, many: int, at: Tensor | None, progress: Progress | None) -> Found:
    """As :func:`_propose`, by the compiled kernel; a row itself is among its candidates, of which there is one more."""
    queries = query.low if at is None else query.low[at]
    own = query.low_sq if at is None else query.low_sq[at]
    lasts, columns = [], []
    for start in range(0, len(queries), _SCANNED):
        some = queries[start : start + _SCANNED]
        heaps = Heaps(len(some), many + (query is base), base.device)
        parts = max(-(-len(some) // _SCAN_PART), min(4 * torch.get_num_threads(), -(-len(some) // 16)))
        scan(base.low, base.low_sq_32, some, Groups.all_points(base.n, len(some), parts), heaps)
        lasts.append(heaps.scores[:, 0].double() + own[start : start + _SCANNED])
        columns.append(heaps.found.long())
        if progress is not None:
            progress(start + len(some), len(queries))
    return torch.cat(lasts), torch.cat(columns)


def _propose(base: Dense, query: Dense, many: int, at: Tensor | None, progress: Progress | None) -> Found:
    """The ``many`` smallest products of the query rows: the largest of them [M], and their columns [M, many].

    Tile by tile, each row keeping its best so far. Products of a set with itself are symmetric, so a tile off
    the diagonal serves its rows and its columns, and only half of the tiles are computed.
    """
    symmetric = query is base and at is None
    side = _CUDA_TILE if base.device.type == "cuda" else _TILE
    count = query.n if at is None else len(at)
    best = torch.full((count, many), torch.inf, dtype=torch.float32, device=base.device)
    index = torch.zeros((count, many), dtype=torch.int64, device=base.device)
    left_starts, right_starts = range(0, count, side), range(0, base.n, side)
    total, done = len(left_starts) * len(right_starts), 0
    if symmetric:
        total = len(left_starts) * (len(left_starts) + 1) // 2
    # Into memory that is there: that of a large new tensor has to be cleared by the system, which takes half as long as
    # the product.
    sides = (min(side, length) + _GROUP for length in (count, base.n))
    memory = torch.empty(math.prod(sides), dtype=torch.float32, device=base.device)
    for j in right_starts:
        columns = slice(j, min(j + side, base.n))
        right = _augmented(base, columns, right=True)
        for i in left_starts:
            if symmetric and i > j:
                break
            done += 1
            rows = slice(i, min(i + side, count))
            left = _augmented(query, rows if at is None else at[rows], right=False)
            tile = torch.mm(left, right.T, out=memory[: len(left) * len(right)].view(len(left), len(right)))
            if query is base:
                _leave_out_itself(tile, torch.arange(count, device=base.device)[rows] if at is None else at[rows], j)
            _keep_smallest(tile, best, index, rows, j)
            if symmetric and i < j:
                _keep_smallest(tile.T, best, index, columns, i)
            if progress is not None:
                progress(count * done // total, count)
    return best.amax(1).double(), index


def _augmented(space: Dense, rows: slice | Tensor, *, right: bool) -> Tensor:
    """Rows [x, |x|², 1] or [-2y, 1, |y|²], whose products are |x - y|²; padded to whole groups by far ones."""
    x, sq = space.low[rows], space.low_sq_32[rows]
    extra = -len(x) % _GROUP
    out = x.new_zeros((len(x) + extra, space.terms + 2))
    torch.mul(x, -2.0 if right else 1.0, out=out[: len(x), : space.terms])
    out[: len(x), space.terms + right] = sq
    out[len(x) :, space.terms + right] = _FAR
    out[:, space.terms + (not right)] = 1.0
    return out


def _leave_out_itself(tile: Tensor, at: Tensor, start: int) -> None:
    inside = ((at >= start) & (at < start + tile.shape[1])).nonzero().flatten()
    tile[inside, at[inside] - start] = torch.inf


def _keep_smallest(tile: Tensor, best: Tensor, index: Tensor, rows: slice, start: int) -> None:
    """Merge a tile of columns ``start``... into the smallest values, and their columns, of its rows.

    The m smallest of a row lie in the m groups with the smallest minima. Taking minima is a vectorized pass,
    so the selection, which is not, sees a 16th of the row; and once a row has good candidates, few groups.
    """
    count = rows.stop - rows.start
    width = tile.shape[1] // _GROUP
    if tile.is_contiguous():
        minima = tile.view(len(tile), _GROUP, width).amin(1)[:count]
    else:
        minima = tile.T.view(_GROUP, width, len(tile)).amin(0).T[:count].contiguous()
    many = best.shape[1]
    better = int((minima < best[rows].amax(1, keepdim=True)).sum(1).amax())
    few = min(better, many, width)
    if few == 0:
        return
    groups = minima.topk(few, dim=1, largest=False, sorted=False).indices
    members = groups.unsqueeze(1) + width * torch.arange(_GROUP, device=tile.device).view(-1, 1)
    members = members.flatten(1)
    values = torch.cat([best[rows], tile[:count].gather(1, members)], 1)
    names = torch.cat([index[rows], members + start], 1)
    top = values.topk(many, dim=1, largest=False, sorted=False)
    best[rows], index[rows] = top.values, names.gather(1, top.indices)


def _keeps_float32(device: torch.device) -> bool:
    """Whether float32 products are float32 here: TF32 or bfloat16 may be on, by any of several switches."""
    probe, unit = _probe(device)
    return bool(torch.equal(probe @ unit, probe))


@functools.cache
def _probe(device: torch.device) -> tuple[Tensor, Tensor]:
    """Entries that have fewer digits in other types, [32, 256], and the unit matrix: a product that takes no time."""
    return torch.full((32, 256), 1 + 2.0**-20, dtype=torch.float32, device=device), torch.eye(
        256, dtype=torch.float32, device=device
    )


# ------------------------------------------------------------------------------- float64: the last word


def _search_float64(base: Any, query: Any, k: int, at: Tensor, progress: Progress | None) -> Found:
    # Of equal rows only the first k, and one for the row itself, can be neighbors. Without this, a set with
    # many equal rows would compare each with each.
    eligible = base.first_copies(k + 1) if len(at) > _FEW else None
    step = max(1, _BLOCK_BYTES // (8 * base.n))
    parts = []
    for start in range(0, len(at), step):
        parts.append(_search_block(base, query, k, at[start : start + step], eligible))
        if progress is not None:
            progress(min(start + step, len(at)), len(at))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def _search_block(base: Any, query: Any, k: int, at: Tensor, eligible: Tensor | None) -> Found:
    others = base.n - (query is base)
    many = min(k + 8, others)
    values, own = base.products(query, at)
    if query is base:
        _leave_out_itself(values, at, 0)
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
    found[doubtful], d2[doubtful] = _among(base, query, k, at[doubtful], within)
    return found, d2


def _among(base: Any, query: Any, k: int, at: Tensor, within: Tensor) -> Found:
    """The k nearest of each row among the columns set in ``within``, all of whose distances are computed."""
    row, column = within.nonzero(as_tuple=True)
    d2 = measure(base, query, at[row], column.unsqueeze(1)).flatten()
    # nonzero() lists columns in order, so two stable sorts leave (row, distance, column).
    order = d2.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    counts = torch.bincount(row, minlength=len(at))
    first = counts.cumsum(0) - counts
    take = order[first.unsqueeze(1) + torch.arange(k, device=row.device)]
    return column[take], d2[take]
