"""The nearest points of groups of queries, and distances from differences: compiled, or else in torch."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.propagation import backend, native

_PRODUCTS = 2**24  # held at once where there is no compiled kernel


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
    return _kernel("sobgnn_scan_f32", 9) is not None and device.type == "cpu" and backend() == "native"


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
        lists = (groups.point_spans, groups.points, groups.query_spans, groups.queries)
        addresses = [tensor.data_ptr() for tensor in (points, squares, queries)]
        addresses += [part.ctypes.data for part in lists] + [heaps.scores.data_ptr(), heaps.found.data_ptr()]
        sizes = (len(groups.point_spans), points.shape[1], most)
        _kernel("sobgnn_scan_f32", 9)(*addresses, *sizes, torch.get_num_threads())
        return
    device = points.device
    for (p, p_end), (q, q_end) in zip(groups.point_spans.tolist(), groups.query_spans.tolist(), strict=True):
        if p == p_end or q == q_end:
            continue
        names = torch.from_numpy(groups.points[p:p_end]).to(device)
        y, y_squares = points[names.long()], squares[names.long()]
        asked = torch.from_numpy(groups.queries[q:q_end]).long().to(device)
        for some in torch.split(asked, max(1, _PRODUCTS // len(names))):
            products = torch.addmm(y_squares, queries[some], y.T, alpha=-2)
            scores = torch.cat([heaps.scores[some], products], 1)
            best = scores.topk(most, dim=1, largest=False, sorted=True)
            rows = torch.cat([heaps.found[some], names.expand(len(some), -1)], 1).gather(1, best.indices)
            heaps.scores[some], heaps.found[some] = best.values.flip(1), rows.flip(1)


def measured(points: Any, queries: Any, to: Tensor) -> Tensor | None:
    """|x - y|² in float64 from differences of query rows x [M, D] and rows ``to`` [M, c]; None where not compiled.

    ``points`` and ``queries`` are arrays or tensors on the CPU, contiguous and of one type, float32 or float64.
    """
    kinds = {str(part.dtype).removeprefix("torch.") for part in (points, queries)}
    name = {"float32": "sobgnn_measure_f32", "float64": "sobgnn_measure_f64"}.get(kinds.pop())
    if kinds or name is None or backend() != "native" or _kernel(name, 4) is None:
        return None
    arrays = [part.numpy() if isinstance(part, Tensor) else part for part in (points, queries)]
    if not all(array.flags.c_contiguous for array in arrays):
        return None
    out = torch.empty(to.shape, dtype=torch.float64)
    rows = to.to(torch.int32).contiguous()
    sizes = (len(to), points.shape[1], to.shape[1])
    _kernel(name, 4)(
        *(array.ctypes.data for array in arrays), rows.data_ptr(), out.data_ptr(), *sizes, torch.get_num_threads()
    )
    return out


@functools.cache
def _kernel(name: str, addresses: int) -> Any:
    return native.kernel(name, addresses, 3)
