"""Nearest neighbors over shards: points are sent to the shards of the cells near them, and answers come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.graphs.neighbors.exact import Groups, Heaps, scan
from sobgnn.graphs.neighbors.points import squared_distances
from sobgnn.sharded.cells import router
from sobgnn.sharded.steps import Run

Array = npt.NDArray[Any]

# Candidates beyond k, whose distances are computed from differences: products cannot order neighbors by themselves.
_SPARE = 4
# Least number of cells that are searched for a point.
_LEAST = 2
_BLOCK = 1 << 16


def sections(run: Run, step: str, shard: int) -> list[tuple[int, int, int]]:
    """Other shards with the rows that they have for this one, by the counts that a step found."""
    counts = np.array([found["counts"] for found in run.found(step)])
    ends = np.cumsum(counts, axis=1)
    return [(s, int(ends[s, shard] - counts[s, shard]), int(ends[s, shard])) for s in range(len(counts)) if s != shard]


def firsts(run: Run) -> npt.NDArray[np.int64]:
    """The number of each shard's first node, and the number of all nodes, [S + 1]."""
    return np.concatenate([[0], np.cumsum([found["rows"] for found in run.found("gather")])])


def loaded(points: Array) -> Tensor:
    """Points of a file in float32."""
    return torch.from_numpy(np.ascontiguousarray(points, np.float32))


def probes(run: Run, k: int) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """The sampled points that recall is measured on, and the numbers of their nodes."""
    first, points, nodes = firsts(run), [], []
    for shard in range(run.shards):
        at, number = run.store.load(f"chosen-{shard}").T
        some = run.store.load("probes")[number]
        points.append(run.store.load(f"chosen-points-{shard}")[some])
        nodes.append(first[shard] + at[some])
    return loaded(np.concatenate(points)), np.concatenate(nodes)


def truth(run: Run, shard: int) -> None:
    """The sampled points' nearest points of a shard, all of which are compared."""
    k = int(run.plan["k"])
    queries, nodes = probes(run, k)
    points, first = run.store.load(f"points-{shard}"), firsts(run)[shard]
    heaps = Heaps(len(queries), k + 1 + _SPARE, queries.device)
    for start in range(0, len(points), _BLOCK):
        block = loaded(points[start : start + _BLOCK])
        here = Heaps(len(queries), heaps.scores.shape[1], queries.device)
        scan(block, _squares(block), queries, Groups.all_points(len(block), len(queries), 16), here)
        here.found[here.found >= 0] += start
        scores = torch.cat([heaps.scores, here.scores], dim=1)
        best = scores.topk(heaps.scores.shape[1], dim=1, largest=False)
        heaps.scores = best.values
        heaps.found = torch.cat([heaps.found, here.found], dim=1).gather(1, best.indices)
    rows = heaps.found.numpy()
    distance, home = np.full(rows.shape, np.inf), np.full(rows.shape, -1)
    if len(points):
        used, place = np.unique(rows.clip(min=0), return_inverse=True)
        found = torch.from_numpy(place.reshape(rows.shape).astype(np.int32))
        distance = _distances(loaded(points[used]), queries, found)
        distance[(rows < 0) | (first + rows == nodes[:, None])] = np.inf
        home = run.store.load(f"home-{shard}")[rows.clip(min=0)]
    run.store.save(f"truth-distance-{shard}", distance)
    run.store.save(f"truth-home-{shard}", home)


def recall(run: Run, _: int) -> dict[str, Any]:
    """The least number of nearest cells that hold enough of the sampled points' neighbors.

    Inside the cells the search is exact: a neighbor is found if the rank of its cell among those nearest to the point
    is below that number.
    """
    k, store = int(run.plan["k"]), run.store
    queries, _nodes = probes(run, k)
    distance = np.concatenate([store.load(f"truth-distance-{shard}") for shard in range(run.shards)], axis=1)
    home = np.concatenate([store.load(f"truth-home-{shard}") for shard in range(run.shards)], axis=1)
    order = np.argsort(distance, axis=1, kind="stable")[:, :k]
    home = np.take_along_axis(home, order, axis=1)
    cells = router(store.root)
    near = cells.near(queries.numpy(), cells.home(queries.numpy()), len(cells.centers))
    rank = np.full(home.shape, near.shape[1])
    for place in range(near.shape[1] - 1, -1, -1):
        rank[home == near[:, place : place + 1]] = place
    reached = np.array([(rank < count).mean() for count in range(near.shape[1] + 1)])
    enough = np.flatnonzero(reached >= run.plan["recall"])
    count = max(min(_LEAST, near.shape[1]), int(enough[0]) if len(enough) else near.shape[1])
    return {"near": count, "recall": float(reached[count])}


def ask(run: Run, shard: int) -> dict[str, Any]:
    """Which cells each point looks into; the points that look into other shards, for these."""
    store, cuts = run.store, np.array(run.found("cells")[0]["cuts"])
    points, home = store.load(f"points-{shard}"), store.load(f"home-{shard}")
    count = run.found("recall")[0]["near"]
    cells = router(store.root)
    near = np.empty((len(points), count), np.int32)
    for start in range(0, len(points), _BLOCK):
        rows = slice(start, start + _BLOCK)
        near[rows] = cells.near(loaded(points[rows]).numpy(), home[rows], count)
    store.save(f"near-{shard}", near)
    owner = np.searchsorted(cuts, near, side="right") - 1
    own = [
        np.flatnonzero((owner == other).any(axis=1)) if other != shard else np.empty(0, np.int64)
        for other in range(run.shards)
    ]
    asked = np.concatenate(own)
    store.save(f"asked-rows-{shard}", asked.astype(np.int32))
    sent = store.save(f"asked-near-{shard}", near[asked]) + store.save(f"asked-points-{shard}", points[asked])
    return {"counts": [len(rows) for rows in own], "sent": sent}


def find(run: Run, shard: int) -> dict[str, Any]:
    """The nearest points of a shard, for its own points and for those that others sent."""
    store, k = run.store, int(run.plan["k"])
    points, own = Searched(run, shard), np.arange(firsts(run)[shard + 1] - firsts(run)[shard])
    found, distance = points.nearest(points.points, np.array(store.load(f"near-{shard}")), k, own)
    store.save(f"own-found-{shard}", found)
    store.save(f"own-distance-{shard}", distance)
    answers = []
    for other, start, stop in sections(run, "ask", shard):
        queries = loaded(store.load(f"asked-points-{other}", start, stop))
        answers.append(points.nearest(queries, np.array(store.load(f"asked-near-{other}", start, stop)), k))
    empty = (np.empty((0, k), np.int32), np.empty((0, k), np.float32))
    sent = 0
    for number, name in enumerate(("found", "distance")):
        parts = [answer[number] for answer in answers]
        sent += store.save(f"answer-{name}-{shard}", np.concatenate([empty[number], *parts]))
    # In the order of the shards that asked.
    return {"counts": [found["counts"][shard] for found in run.found("ask")], "sent": sent}


class Searched:
    """A shard's points by cells, to search in.

    Args:
        run: The run.
        shard: Whose points.
    """

    def __init__(self, run: Run, shard: int) -> None:
        store = run.store
        self.points = loaded(store.load(f"points-{shard}"))
        self.squares = _squares(self.points)
        self.listed, self.start = np.array(store.load(f"searched-{shard}")), np.array(store.load(f"start-{shard}"))
        self.first_cell = run.found("cells")[0]["cuts"][shard]

    def nearest(
        self, queries: Tensor, near: npt.NDArray[np.int32], k: int, own: Array | None = None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Rows and distances [n, k] of the nearest points in cells ``near`` [n, p]; -1 and infinity for none.

        Other shards' cells are passed over. ``own`` are the queries' own rows, if they have any, which are not found.
        """
        near = near - self.first_cell
        spans = np.stack([self.start[:-1], self.start[1:]], axis=1).astype(np.int64)
        near = np.where((near >= 0) & (near < len(spans)), near, -1)
        heaps = Heaps(len(queries), k + _SPARE + (own is not None), queries.device)
        for turn in range(near.shape[1]):
            scan(self.points, self.squares, queries, Groups.by_cell(near[:, turn], spans, self.listed), heaps)
        found, distance = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.float32)
        for start in range(0, len(queries), _BLOCK):
            rows = slice(start, start + _BLOCK)
            here = heaps.found[rows].numpy()
            far = _distances(self.points, queries[rows], heaps.found[rows].clamp(min=0))
            far[(here < 0) | (own is not None and here == own[rows, None])] = np.inf
            found[rows], distance[rows] = first_ones(np.where(np.isinf(far), -1, here), far, k)
        return found, distance


def merge(run: Run, shard: int) -> dict[str, Any]:
    """The k nearest of the shard's own answers and the others', and the edges that other shards' nodes have by them."""
    store, first = run.store, firsts(run)
    found, distance = store.load(f"own-found-{shard}").astype(np.int64), np.array(store.load(f"own-distance-{shard}"))
    found[found >= 0] += first[shard]
    ends = np.cumsum([0, *run.found("ask")[shard]["counts"]])
    for other, start, stop in sections(run, "find", shard):
        rows = store.load(f"asked-rows-{shard}", int(ends[other]), int(ends[other + 1]))
        more = store.load(f"answer-found-{other}", start, stop).astype(np.int64)
        more[more >= 0] += first[other]
        far = np.concatenate([distance[rows], store.load(f"answer-distance-{other}", start, stop)], axis=1)
        found[rows], distance[rows] = first_ones(np.concatenate([found[rows], more], axis=1), far, found.shape[1])
    store.save(f"neighbors-{shard}", found.astype(np.int32))
    store.save(f"distances-{shard}", distance)
    there = np.isfinite(distance)
    source = first[shard] + np.repeat(np.arange(len(found)), there.sum(axis=1))
    target, far = found[there], distance[there]
    owner = np.searchsorted(first, target, side="right") - 1
    turn = np.argsort(owner, kind="stable")
    turn = turn[owner[turn] != shard]
    sent = store.save(f"reverse-{shard}", np.stack([target[turn], source[turn]], axis=1).astype(np.int32))
    sent += store.save(f"reverse-distance-{shard}", far[turn])
    counts = np.bincount(owner[turn], minlength=run.shards)
    return {"counts": counts.tolist(), "sent": sent, "total": float(far.sum(dtype=np.float64)), "edges": len(far)}


def first_ones(found: Array, distance: Array, k: int) -> tuple[Array, npt.NDArray[np.float32]]:
    """The k nearest of candidates [n, m], nearest first; of equal distances the smaller number."""
    order = np.argsort(found, axis=1, kind="stable")
    found, distance = np.take_along_axis(found, order, axis=1), np.take_along_axis(distance, order, axis=1)
    order = np.argsort(distance, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(distance, order, axis=1).astype(np.float32)


def _distances(points: Tensor, queries: Tensor, found: Tensor) -> Array:
    """Distances [n, m] of queries to rows ``found`` of points, from differences."""
    return np.asarray(squared_distances(points, queries.contiguous(), found).sqrt_().numpy())


def _squares(points: Tensor) -> Tensor:
    return points.double().square().sum(1).float()
