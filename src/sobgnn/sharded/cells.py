"""Cells over shards: k-means of a sample, rows in the order of their cells, and a range of cells for each shard."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn._system.process import eigen
from sobgnn.graphs.neighbors.cells import Cells
from sobgnn.graphs.neighbors.exact import Groups, Heaps, scan
from sobgnn.graphs.neighbors.points import Dense, peak
from sobgnn.sharded.rows import Source, as_ids, keys_of
from sobgnn.sharded.sample import make_labels, make_map, read_map
from sobgnn.sharded.steps import Run

Array = npt.NDArray[Any]

# Sampled rows for each cell.
SAMPLED = 32
# Nearest cells of each cell, which alone are compared with its points.
AROUND = 256
# Groups of cells that are searched for the cell of a point, and cells up to which all of them are.
_GROUPS, _FEW_CELLS = 4, 1024
# Equal points that are searched, in cells of more than this many times the mean.
_COPIES, _LARGE = 128, 4


def inspect(run: Run, part: int) -> dict[str, Any]:
    """Read rows once: are they finite, which have labels; keep a sample of them, and what tells ids apart."""
    plan, store = run.plan, run.store
    source = Source(plan["source"])
    file, start, stop, before = plan["parts"][part]
    ids, points = source.read(file, start, stop)
    generator = np.random.default_rng([plan["seed"], part])
    share = plan["sample"] / source.rows
    picked = np.sort(generator.permutation(len(points))[: int(np.ceil(share * len(points)))])
    store.save(f"sample-{part}", points[picked].astype(np.float32))
    if source.identity is not None:
        store.save(f"keys-{part}", np.sort(keys_of(ids)))
    wanted = as_ids(store.load("label-ids").tolist(), ids)
    order = np.argsort(wanted)
    place = np.searchsorted(wanted, ids, sorter=order).clip(max=len(wanted) - 1)
    number = order[place]
    rows = np.flatnonzero(wanted[number] == ids)
    store.save(f"labeled-{part}", np.stack([before + rows, number[rows]], axis=1))
    store.save(f"labeled-points-{part}", points[rows].astype(np.float32))
    return {"labels": len(rows), "rows": len(points)}


def check_ids(run: Run, _: int) -> None:
    """Raise if an id occurs twice, or a label's id not at all."""
    plan, store = run.plan, run.store
    source, parts = Source(plan["source"]), range(len(plan["parts"]))
    if source.identity is not None:
        keys = np.concatenate([store.load(f"keys-{part}") for part in parts])
        keys.sort()
        for key in keys[1:][keys[1:] == keys[:-1]][:100]:
            seen: list[Any] = []
            for part in parts:
                own = store.load(f"keys-{part}")
                at = int(np.searchsorted(own, key))
                if at < len(own) and own[at] == key:
                    file, start, stop, _before = plan["parts"][part]
                    ids = source.read(file, start, stop)[0]
                    seen += [(one, source.files[file][0]) for one in ids[keys_of(ids) == key].tolist()]
            twice = next((pair for pair in seen if sum(one == pair[0] for one, _url in seen) > 1), None)
            if twice is not None:  # and not two texts with one key
                url = next(url for one, url in seen[::-1] if one == twice[0])
                raise ValueError(f"The id {twice[0]!r:.60} occurs more than once, last in {url}. Ids must be distinct.")
    labeled = np.concatenate([store.load(f"labeled-{part}") for part in parts])
    known = np.zeros(len(store.load("label-ids")), bool)
    known[labeled[:, 1]] = True
    if not known.all():
        missing = store.load("label-ids")[~known]
        raise ValueError(f"Labels name {len(missing)} ids that no row has (first: {missing[0].item()!r:.60}).")


def make_cells(run: Run, _: int) -> dict[str, Any]:
    """From the sample: how columns are scaled, the cells and their order, and where the shards are cut."""
    plan, store = run.plan, run.store
    parts = range(len(plan["parts"]))
    sample = np.concatenate([store.load(f"sample-{part}") for part in parts])
    labeled = np.concatenate([store.load(f"labeled-{part}") for part in parts])
    points = np.concatenate([store.load(f"labeled-points-{part}") for part in parts])
    make_labels(run, labeled, points)
    scale = make_map(run, sample, points, store.load("label-codes")[labeled[:, 1]])
    z = rounded(scale(sample), plan["half"])
    del sample
    cells = Cells(Dense(z, peak(z)), plan["seed"], max(1, len(z) // plan["cells"]))
    counts = np.diff(cells.start)
    centers = np.add.reduceat(z[cells.order], cells.start[:-1], axis=0, dtype=np.float64) / counts[:, None]
    order = bisected(centers, counts.astype(np.float64))
    centers = centers[order].astype(np.float32)
    store.save("centers", centers)
    store.save("around", nearest_centers(centers, min(AROUND, len(centers))))
    ends = np.cumsum(counts[order]) / counts.sum()
    shards = plan["shards"]
    inner = np.arange(1, shards)
    # A cell for every shard, unless there are fewer cells.
    cuts = np.clip(np.searchsorted(ends, inner / shards) + 1, inner, np.maximum(len(centers) - shards, 0) + inner)
    cuts = cuts.clip(max=len(centers))
    return {"cuts": [0, *cuts.tolist(), len(centers)], "cells": len(centers)}


def bisected(centers: Array, weight: Array) -> npt.NDArray[np.int64]:
    """An order of the cells that keeps near ones close: halves along the first principal direction, again and again."""
    out: list[npt.NDArray[np.int64]] = []
    waiting = [np.arange(len(centers))]
    while waiting:
        own = waiting.pop()
        if len(own) <= 2:
            out.append(own)
            continue
        z = centers[own] - np.average(centers[own], axis=0, weights=weight[own])
        # The direction of the largest variance, by a few steps of the power method.
        product = (z * weight[own][:, None]).T @ z
        direction = eigen(product)[1][:, -1] if len(own) >= 64 else _power(product)
        turned = own[np.argsort(z @ direction, kind="stable")]
        total = np.cumsum(weight[turned])
        cut = int(np.clip(np.searchsorted(total, total[-1] / 2), 1, len(own) - 1))
        waiting += [turned[cut:], turned[:cut]]
    return np.concatenate(out)


def _power(product: Array) -> Array:
    direction: Array = product[np.argmax(np.diag(product))]
    for _ in range(8):
        direction = product @ direction
        direction = direction / max(float(np.sqrt(np.square(direction).sum())), 1e-300)
    return direction


def nearest_centers(centers: Array, count: int) -> npt.NDArray[np.int32]:
    """The nearest cells of each cell, itself among them, in the order of their numbers, [C, count]."""
    tensor = torch.from_numpy(centers)
    heaps = Heaps(len(centers), count, tensor.device)
    groups = Groups.all_points(len(centers), len(centers), -(-len(centers) // 512))
    scan(tensor, _squares(tensor), tensor, groups, heaps)
    return np.sort(heaps.found.numpy(), axis=1)


class Router:
    """Finds the cells of points, by :class:`~sobgnn.graphs.neighbors.cells.Cells` of the centers.

    Args:
        centers: [C, D].
        around: As :func:`nearest_centers` makes it.
    """

    def __init__(self, centers: Array, around: npt.NDArray[np.int32]) -> None:
        self.centers, self.around = torch.from_numpy(np.ascontiguousarray(centers)), np.asarray(around)
        self.squares = _squares(self.centers)
        self.index: Cells | None = None
        if len(centers) > _FEW_CELLS:
            self.index = Cells(Dense(centers, peak(centers)), 0, max(64, round(len(centers) ** 0.5)))

    def home(self, points: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """The cell of each point [n], that of the nearest center among those of the nearest groups."""
        if self.index is not None:
            query = self.index.base.beside(points)
            return self.index.search(query, np.arange(len(points)), 1, _GROUPS)[0][:, 0].astype(np.int32)
        heaps = Heaps(len(points), 1, self.centers.device)
        groups = Groups.all_points(len(self.centers), len(points))
        scan(self.centers, self.squares, torch.from_numpy(points), groups, heaps)
        return heaps.found[:, 0].numpy()

    def near(self, points: npt.NDArray[np.float32], home: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.int32]:
        """The nearest cells of each point, nearest first, among those around its own: [n, count]."""
        width = self.around.shape[1]
        heaps = Heaps(len(points), min(count, width), self.centers.device)
        first = np.arange(len(self.centers), dtype=np.int64) * width
        groups = Groups.by_cell(home, np.stack([first, first + width], axis=1), self.around.ravel())
        scan(self.centers, self.squares, torch.from_numpy(points), groups, heaps)
        turn = heaps.scores.argsort(dim=1, stable=True)
        return np.ascontiguousarray(heaps.found.gather(1, turn).numpy())


@lru_cache(maxsize=1)
def router(root: str) -> Router:
    """The router of a run, kept while a process works for it."""
    store = Run(root).store
    return Router(np.array(store.load("centers")), np.array(store.load("around")))


def partition(run: Run, part: int) -> dict[str, Any]:
    """Scale rows of a file, and write them in the order of their cells."""
    plan, store = run.plan, run.store
    source = Source(plan["source"])
    file, start, stop, before = plan["parts"][part]
    ids, points = source.read(file, start, stop)
    z = rounded(read_map(run)(points), plan["half"])
    home = router(store.root).home(z)
    order = np.argsort(home, kind="stable")
    store.save(f"part-points-{part}", z[order].astype(np.float16 if plan["half"] else np.float32))
    store.save(f"part-home-{part}", home[order])
    store.save(f"part-ids-{part}", ids[order])
    store.save(f"part-rows-{part}", before + order)
    return {"bounds": np.searchsorted(home[order], run.found("cells")[0]["cuts"]).tolist()}


def gather(run: Run, shard: int) -> dict[str, Any]:
    """A shard's rows, in the order of their cells; and which of them are searched, labeled or sampled."""
    store, bounds = run.store, [found["bounds"][shard : shard + 2] for found in run.found("partition")]

    def joined(name: str) -> Array:
        return np.concatenate([store.load(f"part-{name}-{part}", *span) for part, span in enumerate(bounds)])

    home, rows = joined("home"), joined("rows")
    order = np.argsort(home, kind="stable")
    home, rows = home[order], rows[order]
    store.save(f"ids-{shard}", joined("ids")[order])
    points = joined("points")[order]
    store.save(f"points-{shard}", points)
    store.save(f"home-{shard}", home)
    store.save(f"rows-{shard}", rows)
    first, last = run.found("cells")[0]["cuts"][shard : shard + 2]
    start = np.searchsorted(home, np.arange(first, last + 1))
    searched = _without_copies(points, start)
    store.save(f"searched-{shard}", np.flatnonzero(searched).astype(np.int32))
    store.save(f"start-{shard}", np.concatenate([[0], np.cumsum(searched)])[start])
    chosen = store.load("chosen")
    number = np.searchsorted(chosen, rows).clip(max=len(chosen) - 1)
    at = np.flatnonzero(chosen[number] == rows)
    store.save(f"chosen-{shard}", np.stack([at, number[at]], axis=1))
    store.save(f"chosen-points-{shard}", points[at])
    return {"rows": len(rows)}


def _without_copies(points: Array, start: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which points are searched, [n]: of equal ones the first, since they would take the places of other cells."""
    searched = np.ones(len(points), bool)
    lengths = np.diff(start)
    for cell in np.flatnonzero(lengths > max(_COPIES, _LARGE * len(points) / max(1, len(lengths)))):
        own = slice(int(start[cell]), int(start[cell + 1]))
        _, same = np.unique(points[own], axis=0, return_inverse=True)
        order = np.argsort(same.ravel(), kind="stable")
        begins = np.searchsorted(same.ravel()[order], same.ravel()[order])
        searched[own.start + order[np.arange(len(order)) - begins >= _COPIES]] = False
    return searched


def rounded(points: npt.NDArray[np.float32], half: bool) -> npt.NDArray[np.float32]:
    """Points as they are stored, in half precision or not."""
    return points.astype(np.float16).astype(np.float32) if half else points


def _squares(points: Tensor) -> Tensor:
    return points.double().square().sum(1).float()
