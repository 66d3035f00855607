"""The union graph in shards: each holds the rows of its own nodes, and knows which rows of others these read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from sobgnn import propagation
from sobgnn.estimator.spreading import heaviest
from sobgnn.graphs.knn import gaussian_weights
from sobgnn.operators.sobolev import clamp_epsilon
from sobgnn.sharded.neighbors import firsts, sections
from sobgnn.sharded.steps import Run

Array = npt.NDArray[Any]

# The two patterns: all edges with self-loops, for propagation, and the strongest without, for diffusion.
ALL, STRONG = "all", "strong"


def make_graph(run: Run, shard: int) -> dict[str, Any]:
    r"""The edges of a shard's nodes: those that either end chose, :math:`w = \exp(-d^2 / \sigma^2)`.

    Also the scales of its operators, and those of its strongest edges that other shards' nodes have by them.
    """
    store, first, settings = run.store, firsts(run), run.plan["settings"]
    low, high = int(first[shard]), int(first[shard + 1])
    merged = run.found("merge")
    sigma = sum(found["total"] for found in merged) / max(1, sum(found["edges"] for found in merged))
    if settings["bandwidth"] != "mean":
        sigma = float(settings["bandwidth"])
    found, distance = store.load(f"neighbors-{shard}"), np.array(store.load(f"distances-{shard}"))
    there = np.isfinite(distance)
    weight = gaussian_weights(found, np.where(there, distance, 0), sigma)[there]
    shape = (high - low, int(first[-1]))
    chosen = sp.csr_array((weight, found[there], np.concatenate([[0], np.cumsum(there.sum(axis=1))])), shape=shape)
    chosen.sort_indices()
    rows = np.repeat(np.arange(low, high), np.diff(chosen.indptr))
    inside = (chosen.indices >= low) & (chosen.indices < high)
    ends = [np.stack([chosen.indices[inside], rows[inside]], axis=1)]
    weights = [chosen.data[inside]]
    for other, start, stop in sections(run, "merge", shard):
        ends.append(store.load(f"reverse-{other}", start, stop))
        far = np.array(store.load(f"reverse-distance-{other}", start, stop))[:, None]
        weights.append(gaussian_weights(np.zeros(far.shape, np.int64), far, sigma)[:, 0])
    graph = chosen.maximum(_matrix(np.concatenate(ends), np.concatenate(weights), low, shape)).tocsr()
    graph.sort_indices()
    _save(run, f"graph-{shard}", graph)
    epsilon = clamp_epsilon(settings["epsilon"])
    parts = torch.from_numpy(graph.indptr.astype(np.int64)), torch.from_numpy(graph.data)
    store.save(f"scale-{shard}", propagation.scales(*parts, settings["alpha"], epsilon).numpy())
    kept = heaviest(graph, (int(run.plan["k"]) + 1) // 2)
    rows = np.repeat(np.arange(low, high), np.diff(graph.indptr))[kept]
    owner = np.searchsorted(first, graph.indices[kept], side="right") - 1
    turn = np.argsort(owner, kind="stable")
    turn = turn[owner[turn] != shard]
    store.save(f"kept-{shard}", np.packbits(kept))
    sent = store.save(f"strong-{shard}", np.stack([graph.indices[kept][turn], rows[turn]], axis=1).astype(np.int32))
    sent += store.save(f"strong-weight-{shard}", graph.data[kept][turn])
    counts = np.bincount(owner[turn], minlength=run.shards)
    return {"counts": counts.tolist(), "sent": sent, "entries": int(graph.nnz), "sigma": sigma}


def find_halo(run: Run, shard: int) -> dict[str, Any]:
    """Number the columns of both patterns: the shard's own nodes and, before and after them, those of others."""
    store, first, settings = run.store, firsts(run), run.plan["settings"]
    low, high = int(first[shard]), int(first[shard + 1])
    graph = _load(run, f"graph-{shard}", int(first[-1]))
    kept = np.unpackbits(store.load(f"kept-{shard}"), count=graph.nnz).astype(bool)
    counts = np.diff(np.concatenate([[0], np.cumsum(kept)])[graph.indptr])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    strong = sp.csr_array((graph.data[kept], graph.indices[kept], indptr), shape=graph.shape)
    rows = np.repeat(np.arange(low, high), counts)
    inside = (strong.indices >= low) & (strong.indices < high)
    ends, weights = [np.stack([strong.indices[inside], rows[inside]], axis=1)], [strong.data[inside]]
    for other, start, stop in sections(run, "graph", shard):
        ends.append(store.load(f"strong-{other}", start, stop))
        weights.append(store.load(f"strong-weight-{other}", start, stop))
    strong = strong.maximum(_matrix(np.concatenate(ends), np.concatenate(weights), low, graph.shape)).tocsr()
    strong.sort_indices()
    parts = torch.from_numpy(strong.indptr.astype(np.int64)), torch.from_numpy(strong.data)
    store.save(f"strong-scale-{shard}", propagation.scales(*parts, 1, 0.0).numpy())
    epsilon = clamp_epsilon(settings["epsilon"])
    if epsilon:
        nodes = np.arange(high - low)
        graph = graph + sp.csr_array((np.full(len(nodes), epsilon, np.float32), (nodes, low + nodes)), graph.shape)
    wanted = {}
    for name, matrix in ((ALL, graph), (STRONG, strong)):
        matrix.sort_indices()
        outside = np.unique(matrix.indices[(matrix.indices < low) | (matrix.indices >= high)])
        before = int(np.searchsorted(outside, low))
        columns = np.concatenate([outside[:before], np.arange(low, high), outside[before:]])
        place = np.searchsorted(columns, matrix.indices).astype(np.int32)
        local = sp.csr_array((matrix.data, place, matrix.indptr), shape=(high - low, len(columns)))
        _save(run, f"{name}-{shard}", local)
        store.save(f"{name}-halo-{shard}", outside)
        wanted[name] = np.diff(np.searchsorted(outside, first)).tolist()
    return {"wanted": wanted, "sent": 8 * sum(sum(counts) for counts in wanted.values())}


def _matrix(ends: Array, weight: Array, low: int, shape: tuple[int, int]) -> sp.csr_array:
    """Edges [E, 2] from a shard's nodes to others, as rows of the graph."""
    matrix = sp.csr_array((weight, (ends[:, 0] - low, ends[:, 1])), shape=shape)
    matrix.sort_indices()
    return matrix


def _save(run: Run, name: str, matrix: Any) -> None:
    run.store.save(f"{name}-indptr", matrix.indptr.astype(np.int64))
    run.store.save(f"{name}-columns", matrix.indices.astype(np.int32))
    run.store.save(f"{name}-weight", matrix.data)


def _load(run: Run, name: str, columns: int) -> sp.csr_array:
    parts = [np.array(run.store.load(f"{name}-{part}")) for part in ("weight", "columns", "indptr")]
    return sp.csr_array(tuple(parts), shape=(len(parts[2]) - 1, columns))
