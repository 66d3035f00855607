"""Candidates by products in torch: for GPUs, and for CPUs without the compiled kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.graphs.neighbors.points import Dense

_TILE = {"cpu": 4096, "cuda": 8192}  # points: float32 products of 4096² take 64 MiB
_GROUP = 16
# Products of groups that are held at once, and queries of a group.
_PRODUCTS, _TOGETHER = {"cpu": 2**22, "cuda": 2**26}, 512


def propose(
    base: Dense, query: Dense, many: int, at: Tensor, progress: Callable[[int, int], None] | None
) -> tuple[Tensor, Tensor]:
    """The largest of the ``many`` smallest |x - y|² of each row ``at`` [b], computed in float32, and their columns.

    If all points are compared with one another, a tile serves its rows and its columns, and half of them are computed.
    """
    symmetric = query is base and torch.equal(at, torch.arange(base.n, device=at.device))
    side = _TILE.get(base.device.type, 4096)
    best = torch.full((len(at), many), torch.inf, dtype=torch.float32, device=base.device)
    index = torch.zeros((len(at), many), dtype=torch.int64, device=base.device)
    starts = [(i, j) for j in range(0, base.n, side) for i in range(0, len(at), side) if i <= j or not symmetric]
    for done, (i, j) in enumerate(starts, 1):
        rows, columns, left = slice(i, i + side), slice(j, j + side), at[i : i + side]
        tile = torch.addmm(base.squares[columns], query.low[left], base.low[columns].T, alpha=-2)
        tile += query.squares[left].unsqueeze(1)
        if query is base:
            leave_out_itself(tile, left, j)
        _keep_smallest(tile, best[rows], index[rows], j)
        if symmetric and i < j:
            _keep_smallest(tile.T, best[columns], index[columns], i)
        if progress is not None:
            progress(len(at) * done // len(starts), len(at))
    return best.amax(1).double(), index


def leave_out_itself(tile: Tensor, at: Tensor, start: int) -> None:
    """Put the points ``at`` of rows infinitely far from themselves, in a tile of columns ``start``..."""
    inside = ((at >= start) & (at < start + tile.shape[1])).nonzero().flatten()
    tile[inside, at[inside] - start] = torch.inf


def _keep_smallest(tile: Tensor, best: Tensor, index: Tensor, start: int) -> None:
    """Merge a tile of columns ``start``... into the smallest values, and their columns, of its rows.

    The m smallest of a row lie in the m groups with the smallest minima. Taking minima is a vectorized pass,
    so the selection, which is not, sees a 16th of the row; and once a row has good candidates, few groups.
    """
    if extra := -tile.shape[1] % _GROUP:
        tile = F.pad(tile, (0, extra), value=torch.inf)
    width, many = tile.shape[1] // _GROUP, best.shape[1]
    minima = torch.unflatten(tile, 1, (_GROUP, width)).amin(1)
    few = min(int((minima < best.amax(1, keepdim=True)).sum(1).amax()), many, width)
    if few == 0:
        return
    groups = minima.topk(few, dim=1, largest=False, sorted=False).indices
    members = groups.unsqueeze(1) + width * torch.arange(_GROUP, device=tile.device).view(-1, 1)
    members = members.flatten(1)
    values = torch.cat([best, tile.gather(1, members)], 1)
    top = values.topk(many, dim=1, largest=False, sorted=False)
    best.copy_(top.values)
    index.copy_(torch.cat([index, members + start], 1).gather(1, top.indices))


def keeps_float32(device: torch.device) -> bool:
    """Whether float32 products are float32 here: TF32 or bfloat16 may be on, by any of several switches."""
    probe, unit = _probe(device)
    return bool(torch.equal(probe @ unit, probe))


@functools.cache
def _probe(device: torch.device) -> tuple[Tensor, Tensor]:
    """Entries that have fewer digits in other types, [32, 256], and the unit matrix: a product that takes no time."""
    kind: Any = {"dtype": torch.float32, "device": device}
    return torch.full((32, 256), 1 + 2.0**-20, **kind), torch.eye(256, **kind)


def scan(
    points: Tensor,
    squares: Tensor,
    queries: Tensor,
    point_spans: npt.NDArray[np.int64],
    listed: npt.NDArray[np.int32],
    query_spans: npt.NDArray[np.int64],
    asked: npt.NDArray[np.int32],
    scores: Tensor,
    found: Tensor,
) -> None:
    """The portable form of :func:`sobgnn.graphs.neighbors.exact.scan`, by products of groups padded to one size."""
    known = scores.shape[1]
    for point_part, query_part in _batches(point_spans, query_spans, _PRODUCTS.get(points.device.type, 2**24)):
        names, present = _padded(listed, point_part, points.device)  # [G, P]
        rows, real = _padded(asked, query_part, points.device)  # [G, Q]
        offsets = squares[names].masked_fill_(~present, torch.inf).unsqueeze(1)
        products = torch.baddbmm(offsets, queries[rows], points[names].transpose(1, 2), alpha=-2)
        best = torch.cat([scores[rows], products], 2).topk(known, dim=2, largest=False, sorted=True)
        new = names.int().unsqueeze(1).expand(-1, rows.shape[1], -1).gather(2, (best.indices - known).clamp_(min=0))
        old = found[rows].gather(2, best.indices.clamp(max=known - 1))
        merged = torch.where(best.indices < known, old, new)
        scores[rows[real]], found[rows[real]] = best.values[real].flip(1), merged[real].flip(1)


def _batches(
    point_spans: npt.NDArray[np.int64], query_spans: npt.NDArray[np.int64], products: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Groups of similar sizes, with at most a number of products together: some queries of each at a time."""
    lengths = np.diff(point_spans)[:, 0]
    most = np.maximum(1, np.minimum(products // np.maximum(lengths, 1), _TOGETHER))
    parts = np.where(lengths > 0, -(-np.diff(query_spans)[:, 0] // most), 0)
    group = np.repeat(np.arange(len(parts)), parts)
    part = np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)
    begin = query_spans[group, 0] + part * most[group]
    spans = np.stack([begin, np.minimum(begin + most[group], query_spans[group, 1])], 1)
    order = np.lexsort((np.diff(spans)[:, 0], lengths[group]))
    spans, point_spans = spans[order], point_spans[group[order]]
    # Of a batch, sorted by the number of points, every group is padded to the last one's.
    widest = np.diff(point_spans)[:, 0]
    first = 0
    while first < len(spans):
        last = np.searchsorted(widest, 1.25 * widest[first] + 32, side="right")
        last = min(last, first + max(1, products // (int(widest[last - 1]) * _TOGETHER)))
        yield point_spans[first:last], spans[first:last]
        first = last


def _padded(rows: npt.NDArray[np.int32], spans: npt.NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows of each span, [G, longest], repeating a span's last one, and which of them are not repeated."""
    place = spans[:, :1] + np.arange(np.diff(spans).max())
    present = place < spans[:, 1:]
    names = rows[np.minimum(place, spans[:, 1:] - 1)]
    return torch.from_numpy(names).to(device).long(), torch.from_numpy(present).to(device)
