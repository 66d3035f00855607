"""Approximate search inside cells: k-means, exact search in the nearest cells of each point, recall measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.graphs.neighbors.exact import Groups, Heaps, Progress, by_distance, measure, scan, search_exact
from sobgnn.graphs.neighbors.points import Dense

# Points of a cell on average. Smaller ones need fewer comparisons for a recall, and more work for each comparison.
SIZE = 256
# Cells are split from this many times the average.
_LARGE = 4
# Rows of k-means for each center, and its steps.
_ROWS, _STEPS = 48, 5
# Cells searched for each point at least; more of them are tried until the recall is reached.
_LEAST = 4
_SAMPLE = 1000
# Candidates beyond k, whose distances are computed from differences: products cannot order neighbors by themselves.
_SPARE = 4
_BATCH = 1 << 16
# Queries for each cell up to which a search waits for memory, not for products; and visits that are made at once then.
_FEW, _VISITS = 8, 1 << 18


class Cells:
    """Points in the cells of a k-means clustering of two levels; the same for any number of threads.

    Cells of more than four times the average are clustered again. If k-means cannot part their points, they are cut,
    and of equal points only the first ones are searched: they would take the places of other cells.

    Attributes:
        home: int32 [N], the cell of each point.
        order: int32 [≤ N], the rows of the points that are searched, cell by cell.
        start: int64 [C + 1], where each cell starts in ``order``.
        centers: float32 [C, D], means of the cells' points.
    """

    def __init__(self, base: Dense, seed: int = 0, size: int = SIZE) -> None:
        self.base, self._random = base, np.random.default_rng([seed, 1])
        self.order: npt.NDArray[np.int32] = np.arange(base.n, dtype=np.int32)
        self.start = np.array([0, base.n], np.int64)
        wanted = max(1, base.n // size)
        self._split(np.array([round(wanted**0.5)]))
        self._split(np.maximum(1, np.diff(self.start) // size))
        for _ in range(3):
            large = np.diff(self.start) > _LARGE * size
            if large.any():
                self._split(np.where(large, -(-np.diff(self.start) // size), 1))
        self.home = np.empty(base.n, np.int32)
        self.home[self.order] = np.repeat(np.arange(self.count, dtype=np.int32), np.diff(self.start))
        if (np.diff(self.start) > _LARGE * size).any():
            self._cap(size)
        self.centers = self._means(np.arange(len(self.order)), self.start)
        self._squares = self.centers.double().square().sum(1).float()

    @property
    def count(self) -> int:
        """Number of cells C."""
        return len(self.start) - 1

    def enough(self, k: int, recall: float) -> tuple[int, float]:
        """How many of the nearest cells to search for a recall on sampled points, and the recall reached with them."""
        n = self.base.n
        sample = np.sort(np.random.default_rng(0).choice(n, min(_SAMPLE, n), replace=False))
        _, truth = search_exact(self.base, self.base, k, sample)
        near = _LEAST
        while near < self.count:
            _, squared = self.search(self.base, sample, k, near)
            # By distance, not by index: any of several points at the k-th distance is a right answer.
            reached = float((squared <= truth[:, -1:]).mean())
            if reached >= recall:
                return near, reached
            near += max(2, near // 3)
        return self.count, 1.0

    def search(
        self, query: Dense, at: npt.NDArray[np.int64], k: int, near: int, progress: Progress | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Indices and squared distances [m, k] of query rows ``at`` [m], by the ``near`` cells nearest to each."""
        itself = query is self.base
        queries = query.low if len(at) == query.n else query.low[torch.from_numpy(at)]
        heaps = Heaps(len(at), min(k + itself + _SPARE, self.base.n), queries.device)
        visits = self._nearest(queries, at, near, itself)
        spans = np.stack([self.start[:-1], self.start[1:]], 1)
        if len(at) < _FEW * self.count:
            self._visit_at_once(queries, visits, spans, heaps)
        else:
            for turn in range(visits.shape[1]):
                groups = Groups.by_cell(visits[:, turn], spans, self.order, queries.device)
                scan(self.base.low, self.base.squares, queries, groups, heaps)
                if progress is not None:
                    progress(len(at) * (turn + 1) // visits.shape[1], len(at))
        indices, squared = np.empty((len(at), k), np.int64), np.empty((len(at), k), np.float64)
        for first in range(0, len(at), _BATCH):
            rows = slice(first, first + _BATCH)
            names = torch.from_numpy(at[rows]).to(queries.device)
            found = heaps.found[rows].long()
            missing = found < 0
            found = found.clamp_(min=0)
            d2 = measure(self.base, query, names, found)
            if itself:
                missing |= found == names.unsqueeze(1)
            found, d2 = by_distance(found, d2.masked_fill_(missing, torch.inf))
            indices[rows], squared[rows] = found[:, :k].cpu().numpy(), d2[:, :k].cpu().numpy()
        lost = np.flatnonzero(np.isinf(squared[:, -1]))  # its cells have too few points
        if len(lost):
            indices[lost], squared[lost] = search_exact(self.base, query, k, at[lost])
        return indices, squared

    def _visit_at_once(
        self, queries: Tensor, visits: npt.NDArray[np.int32], spans: npt.NDArray[np.int64], heaps: Heaps
    ) -> None:
        """Search the cells of all visits [m, near], each with a heap of its own: the points of a cell are read once."""
        most, near = heaps.scores.shape[1], visits.shape[1]
        step = max(1, _VISITS // near)
        for first in range(0, len(visits), step):
            part = slice(first, first + step)
            cell = visits[part].ravel()
            own = Heaps(len(cell), most, queries.device)
            groups = Groups.by_cell(cell, spans, self.order, queries.device)
            scan(self.base.low, self.base.squares, queries[part].repeat_interleave(near, dim=0), groups, own)
            best = own.scores.view(-1, near * most).topk(most, dim=1, largest=False)
            heaps.scores[part] = best.values
            heaps.found[part] = own.found.view(-1, near * most).gather(1, best.indices)

    def _nearest(self, queries: Tensor, at: npt.NDArray[np.int64], near: int, itself: bool) -> npt.NDArray[np.int32]:
        """The cells to search for each query, nearest first, int32 [m, near]."""
        near = min(near, self.count)
        heaps = Heaps(len(queries), near, queries.device)
        if not itself:
            groups = Groups.all_points(self.count, len(queries))
        else:
            # Only the centers around a point's own cell are compared with it.
            around = Heaps(self.count, min(4 * near + 16, self.count), queries.device)
            every = Groups.all_points(self.count, self.count, -(-self.count // 512))
            scan(self.centers, self._squares, self.centers, every, around)
            width = around.found.shape[1]
            first = np.arange(self.count, dtype=np.int64) * width
            listed = np.sort(around.found.cpu().numpy(), axis=1).ravel()
            groups = Groups.by_cell(self.home[at], np.stack([first, first + width], 1), listed, queries.device)
        scan(self.centers, self._squares, queries, groups, heaps)
        turn = heaps.scores.argsort(dim=1, stable=True)
        return np.ascontiguousarray(heaps.found.gather(1, turn).cpu().numpy())

    def _split(self, pieces: npt.NDArray[np.int64]) -> None:
        """Cluster each cell into a number of pieces [C] by k-means, started and trained on rows drawn from it."""
        low, lengths = self.base.low, np.diff(self.start)
        pieces = np.minimum(pieces, np.maximum(lengths, 1))
        drawn = self._draw(np.minimum(lengths, np.where(pieces > 1, _ROWS * pieces, 0)))
        first = _starts(pieces)
        centers = low[torch.from_numpy(self.order[self._draw(pieces)[0]].astype(np.int64)).to(low.device)]
        for _ in range(_STEPS):
            child = self._assign(centers, first, *drawn)
            turn = np.argsort(child, kind="stable")
            start = np.searchsorted(child[turn], np.arange(len(centers) + 1))
            held = np.flatnonzero(np.diff(start))
            centers[torch.from_numpy(held).to(low.device)] = self._means(
                drawn[0][turn], np.append(start[held], len(turn))
            )
        cell = np.repeat(np.where(pieces > 1, np.arange(len(pieces)), -1), lengths)
        child = self._assign(centers, first, np.arange(self.base.n), cell)
        child = np.where(child < 0, np.repeat(first[:-1], lengths), child)
        turn = np.argsort(child, kind="stable")
        lengths = np.bincount(child, minlength=len(centers))
        self.order, self.start = self.order[turn], _starts(lengths[lengths > 0])

    def _cap(self, size: int) -> None:
        """Leave out all but the first ``size`` of equal points, and cut what is still large."""
        first = self.base.first_copies(size).cpu().numpy()
        kept = first[self.order]
        lengths = np.bincount(self.home[self.order[kept]], minlength=self.count)
        pieces = np.where(lengths > _LARGE * size, -(-lengths // size), 1)
        of = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.arange(len(of)) - _starts(pieces)[of]
        self.order = self.order[kept]
        self.start = np.append(_starts(lengths)[of] + lengths[of] * piece // pieces[of], len(self.order))
        self.home = _starts(pieces)[self.home].astype(np.int32)
        self.home[self.order] = np.repeat(np.arange(len(of), dtype=np.int32), np.diff(self.start))

    def _draw(self, counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Places in ``order`` of some rows of each cell, one from each of equal parts, and their cells."""
        cell = np.repeat(np.arange(len(counts)), counts)
        part = np.arange(len(cell)) - _starts(counts)[cell] + self._random.random(len(cell))
        return self.start[cell] + (part * np.diff(self.start)[cell] / counts[cell]).astype(np.int64), cell

    def _assign(
        self,
        centers: Tensor,
        first: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        cell: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """The nearest of their cells' new centers, for rows at places in ``order``; -1 for cells of -1."""
        rows, low = self.order[places], self.base.low
        spans, names = np.stack([first[:-1], first[1:]], 1), np.arange(len(centers), dtype=np.int32)
        groups = Groups.by_cell(cell.astype(np.int32), spans, names)
        heaps = Heaps(self.base.n, 1, low.device)
        squares = centers.double().square().sum(1).float()
        scan(centers, squares, low, groups._replace(queries=rows[groups.queries]), heaps)
        return heaps.found[:, 0].cpu().numpy()[rows].astype(np.int64)

    def _means(self, places: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> Tensor:
        """Means of runs of rows, at places in ``order``, float32."""
        low = self.base.low
        means = low.new_empty((len(start) - 1, self.base.terms))
        cuts = np.unique(np.searchsorted(start, np.arange(0, len(places) + _BATCH, _BATCH)).clip(max=len(means)))
        for begin, end in itertools.pairwise(cuts):
            rows = self.order[places[start[begin] : start[end]]].astype(np.int64)
            block = low[torch.from_numpy(rows).to(low.device)].double()
            lengths = torch.from_numpy(np.diff(start[begin : end + 1])).to(low.device)
            means[begin:end] = torch.segment_reduce(block, "mean", lengths=lengths)
        return means


def _starts(counts: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
