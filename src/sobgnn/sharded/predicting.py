"""Labels for new rows, from a fit over shards: they are joined to their nearest points, which stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.graphs.knn import gaussian_weights
from sobgnn.operators.new_points import Attachment, attach
from sobgnn.sharded.cells import rounded, router
from sobgnn.sharded.engine import make_engine
from sobgnn.sharded.fitting import as_json, is_local, only_one, plan_of
from sobgnn.sharded.heads import Block, Heads, diffuses, write_table
from sobgnn.sharded.neighbors import Searched, first_ones, firsts, loaded
from sobgnn.sharded.rows import Source
from sobgnn.sharded.sample import read_map, read_state
from sobgnn.sharded.steps import Run, Steps

# New points are harder to find than sampled points, on which the number of cells was set.
_MORE_CELLS = 2
_ROWS = 1 << 14


def predict(
    run: str | os.PathLike[str],
    data: str | os.PathLike[str] | Sequence[Any],
    out: str | os.PathLike[str],
    *,
    engine: str = "local",
    progress: Callable[[str], None] | None = None,
) -> str:
    """Label new rows by a fit of :func:`~sobgnn.sharded.fit`; call it again to resume.

    Args:
        run: What ``fit`` wrote.
        data: Files with the columns that the fit read.
        out: A folder or URL for the predictions.
        engine: As for ``fit``.
        progress: Called with a line of text after each piece of work.

    Returns:
        A pattern of the Parquet files with ids, labels and probabilities, in the order of the rows.
    """
    root = os.fspath(run)
    root = str(Path(root).expanduser().absolute()) if is_local(root) else root
    fitted = Run(root)
    if fitted.store.read_json("done/score") is None:
        raise ValueError(f"{root} is no finished fit over shards. Finish it with the same `sobgnn fit`.")
    target = os.fspath(out)
    target = str(Path(target).expanduser().absolute()) if is_local(target) else target
    own = Source(fitted.plan["source"])
    source = Source.of(data, own.points, own.identity)
    if source.columns != own.columns or source.width != own.width:
        raise ValueError(f"New rows must have the columns {own.columns} that the run was fitted on.")
    with only_one(target):
        new = Run(target)
        plan = as_json({
            "format": 1, "run": root, "source": source.about(), "parts": source.parts(),
            "classes": fitted.plan["classes"], "shards": len(source.parts()),
        })  # fmt: skip
        before = plan_of(new.store)
        if before is not None and before != plan:
            raise ValueError(f"{target} holds predictions of another run or of other rows. Name another folder.")
        new.store.write_json("plan", plan)
        working = make_engine(engine)
        try:
            step, parts = Steps(new, working, progress), range(len(plan["parts"]))
            step("route", route, parts)
            step("look", look, range(fitted.shards))
            step("label", label, parts)
        finally:
            working.close()
        new.store.remove(*(f"new-{name}-{part}" for name in ("points", "near", "ids") for part in parts))
        new.store.remove(*(f"look-{name}-{s}" for name in ("rows", "found", "far") for s in range(fitted.shards)))
    return f"{target}/predictions/part-*.parquet"


def route(new: Run, part: int) -> None:
    """Scale new rows, and find the cells near them."""
    fitted, store = Run(new.plan["run"]), new.store
    file, start, stop, _before = new.plan["parts"][part]
    ids, points = Source(new.plan["source"]).read(file, start, stop)
    z = rounded(read_map(fitted)(points), fitted.plan["half"])
    cells = router(fitted.store.root)
    store.save(f"new-points-{part}", z)
    store.save(f"new-ids-{part}", ids)
    store.save(f"new-near-{part}", cells.near(z, cells.home(z), _MORE_CELLS * fitted.found("recall")[0]["near"]))


def look(new: Run, shard: int) -> dict[str, Any]:
    """The nearest points of a shard, for the new rows of every part that look into its cells."""
    fitted, store = Run(new.plan["run"]), new.store
    low, high = fitted.found("cells")[0]["cuts"][shard : shard + 2]
    points, k = Searched(fitted, shard), int(fitted.plan["k"])
    empty = np.empty((0, k), np.int32)
    kept: list[tuple[Any, ...]] = [(np.empty(0, np.int32), empty, empty.astype(np.float32))]
    for part in range(len(new.plan["parts"])):
        near = np.array(store.load(f"new-near-{part}"))
        rows = np.flatnonzero(((near >= low) & (near < high)).any(axis=1))
        queries = loaded(store.load(f"new-points-{part}")[rows])
        kept.append((rows.astype(np.int32), *points.nearest(queries, near[rows], k)))
    for name, arrays in zip(("rows", "found", "far"), zip(*kept, strict=True), strict=True):
        store.save(f"look-{name}-{shard}", np.concatenate(arrays))
    return {"counts": [len(rows) for rows, *_ in kept[1:]]}


@dataclass(frozen=True)
class _Nodes:
    """The nodes that new points are joined to, as :func:`~sobgnn.operators.new_points.attach` reads operators."""

    alpha: int
    epsilon: float
    scales: Tensor
    device: torch.device

    def scale(self) -> Tensor:
        """Columns q, t_1 … t_α."""
        return self.scales


@dataclass(frozen=True)
class _NewBlock(Block):
    """New rows, joined to nodes by edges."""

    edges: Attachment | None = None

    def joined(self, graph: str) -> Any:
        """Their edges."""
        return self.edges


def label(new: Run, part: int) -> None:
    """Join new rows to their neighbors, and predict them."""
    fitted, store = Run(new.plan["run"]), new.store
    points, k = loaded(store.load(f"new-points-{part}")), int(fitted.plan["k"])
    first, heads = firsts(fitted), read_state(Heads, fitted.store, "heads")
    found = np.full((len(points), k), -1, np.int64)
    far = np.full((len(points), k), np.inf, np.float32)
    for shard, looked in enumerate(new.found("look")):
        start = sum(looked["counts"][:part])
        span = (start, start + looked["counts"][part])
        rows, more = store.load(f"look-rows-{shard}", *span), store.load(f"look-found-{shard}", *span).astype(np.int64)
        more[more >= 0] += first[shard]
        both = np.concatenate([far[rows], store.load(f"look-far-{shard}", *span)], axis=1)
        found[rows], far[rows] = first_ones(np.concatenate([found[rows], more], axis=1), both, k)
    out = np.empty((len(points), len(fitted.plan["classes"])), np.float32)
    for start in range(0, len(points), _ROWS):
        some = slice(start, start + _ROWS)
        out[some] = _predicted(fitted, heads, points[some], found[some], far[some])
    write_table(new, f"predictions/part-{part:05}.parquet", store.load(f"new-ids-{part}"), out)


def _predicted(
    fitted: Run, heads: Heads, points: Tensor, found: npt.NDArray[np.int64], far: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    first, settings = firsts(fitted), fitted.plan["settings"]
    there = np.isfinite(far)
    nodes, place = np.unique(found[there], return_inverse=True)
    weight = gaussian_weights(found, np.where(there, far, 0), fitted.found("graph")[0]["sigma"])[there]
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    edges = sp.csr_array((weight, place.astype(np.int32), indptr.astype(np.int32)), shape=(len(points), len(nodes)))

    def rows_of(name: str) -> Tensor:
        cuts = np.searchsorted(nodes, first)
        parts = [
            fitted.store.load(f"{name}-{shard}")[nodes[a:b] - first[shard]]
            for shard, (a, b) in enumerate(pairwise(cuts.tolist()))
            if b > a
        ]
        return torch.from_numpy(np.concatenate(parts).astype(np.float32))

    operators: Any = _Nodes(settings["alpha"], settings["epsilon"], rows_of("scale"), points.device)
    joined = attach(operators, edges)
    one = joined.propagate(rows_of("points"), points)
    two = joined.propagate_each(rows_of("hop"), one)
    features = torch.cat([points.unsqueeze(0), one.transpose(0, 1), two.transpose(0, 1)])
    spread = rows_of("spread") if diffuses(fitted) else torch.empty(len(nodes), 0)
    return heads(_NewBlock(features, edges=joined), spread)
