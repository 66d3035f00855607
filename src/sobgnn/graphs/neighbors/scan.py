"""The nearest points of groups of queries, and distances from differences: compiled, or else in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.propagation import backend, native

# Where there is no compiled kernel: products held at once, and queries of a group.
_PRODUCTS, _TOGETHER = {"cpu": 2**22, "cuda": 2**26}, 512


class Groups(NamedTuple):
    """Groups of queries, each compared with a group of points: spans [G, 2] of lists of rows.

    A query is in at most one group.
    """

    point_spans: npt.NDArray[np.int64]
    points: npt.NDArray[np.int32]
    query_spans: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]

    @classmethod
    def all_points(cls, points: int, queries: int, parts: int) -> Groups:
        """Every query compared with every point, in groups that threads can share."""
        ends = np.arange(parts + 1, dtype=np.int64) * queries // parts
        whole = np.tile(np.array([[0, points]], np.int64), (parts, 1))
        return cls(
            whole,
            np.arange(points, dtype=np.int32),
            np.stack([ends[:-1], ends[1:]], 1),
            np.arange(queries, dtype=np.int32),
        )


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
    most = heaps.scores.shape[1]
    if compiled(points.device):
        sizes = (len(groups.point_spans), points.shape[1], most)
        native.call("sobgnn_scan", torch.float32, points, squares, queries, *groups, heaps.scores, heaps.found, *sizes)
        return
    for part in _batches(groups, _PRODUCTS.get(points.device.type, 2**24)):
        _scan_batch(points, squares, queries, part, heaps)


def _batches(groups: Groups, products: int) -> Iterator[Groups]:
    """Groups of similar sizes, with at most a number of products together: some queries of each at a time."""
    lengths = np.diff(groups.point_spans)[:, 0]
    most = np.maximum(1, np.minimum(products // np.maximum(lengths, 1), _TOGETHER))
    parts = np.where(lengths > 0, -(-np.diff(groups.query_spans)[:, 0] // most), 0)
    group = np.repeat(np.arange(len(parts)), parts)
    part = np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)
    begin = groups.query_spans[group, 0] + part * most[group]
    spans = np.stack([begin, np.minimum(begin + most[group], groups.query_spans[group, 1])], 1)
    order = np.lexsort((np.diff(spans)[:, 0], lengths[group]))
    spans, point_spans = spans[order], groups.point_spans[group[order]]
    # Of a batch, sorted by the number of points, every group is padded to the last one's.
    widest = np.diff(point_spans)[:, 0]
    first = 0
    while first < len(spans):
        last = np.searchsorted(widest, 1.25 * widest[first] + 32, side="right")
        last = min(last, first + max(1, products // (int(widest[last - 1]) * _TOGETHER)))
        yield Groups(point_spans[first:last], groups.points, spans[first:last], groups.queries)
        first = last


def _scan_batch(points: Tensor, squares: Tensor, queries: Tensor, groups: Groups, heaps: Heaps) -> None:
    """Compare all groups by one product of padded matrices, [G, Q, P]."""
    device = points.device
    names, present = _padded(groups.points, groups.point_spans, device)
    asked, real = _padded(groups.queries, groups.query_spans, device)
    offsets = squares[names].masked_fill_(~present, torch.inf).unsqueeze(1)
    products = torch.baddbmm(offsets, queries[asked], points[names].transpose(1, 2), alpha=-2)
    scores = torch.cat([heaps.scores[asked], products], 2)
    best = scores.topk(heaps.scores.shape[1], dim=2, largest=False, sorted=True)
    known = heaps.scores.shape[1]
    found = names.int().unsqueeze(1).expand(-1, asked.shape[1], -1).gather(2, (best.indices - known).clamp_(min=0))
    earlier = heaps.found[asked].gather(2, best.indices.clamp(max=known - 1))
    found = torch.where(best.indices < known, earlier, found)
    heaps.scores[asked[real]], heaps.found[asked[real]] = best.values[real].flip(1), found[real].flip(1)


def _padded(rows: npt.NDArray[np.int32], spans: npt.NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows of each span, [G, longest], repeating a span's last one, and which of them are not repeated."""
    place = spans[:, :1] + np.arange(np.diff(spans).max())
    present = place < spans[:, 1:]
    names = rows[np.minimum(place, spans[:, 1:] - 1)]
    return torch.from_numpy(names).to(device).long(), torch.from_numpy(present).to(device)


def measured(points: Any, queries: Any, to: Tensor) -> Tensor | None:
    """|x - y|² in float64 from differences of query rows x [M, D] and rows ``to`` [M, c]; None where not compiled.

    ``points`` and ``queries`` are arrays or tensors on the CPU, contiguous and of one type, float32 or float64.
    """
    arrays = [part.numpy() if isinstance(part, Tensor) else part for part in (points, queries)]
    kind = arrays[0].dtype
    usable = all(array.flags.c_contiguous and array.dtype == kind for array in arrays)
    if kind not in (np.float32, np.float64) or not usable or backend() != "native":
        return None
    out = torch.empty(to.shape, dtype=torch.float64)
    dtype = torch.float64 if kind == np.float64 else torch.float32
    sizes = (len(to), points.shape[1], to.shape[1])
    native.call("sobgnn_measure", dtype, *arrays, to.to(torch.int32), out, *sizes)
    return out
