"""Approximate search by faiss's HNSW, with its recall measured against exact search on a sample."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.neighbors.exact import Progress, by_distance, measure, search_exact
from sobgnn.neighbors.spaces import Dense

_SAMPLE = 1000
_MOST_EFFORT = 4096
_BATCH = 16384


def search_hnsw(
    base: Dense, query: Dense, k: int, recall: float, seed: int, progress: Progress | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], float]:
    """Indices and squared distances [M, k], and the recall measured."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError("`method='hnsw'` needs faiss: pip install faiss-cpu. Or use method='exact'.") from error
    index = faiss.IndexHNSWFlat(base.terms, 32)
    index.hnsw.efConstruction = max(100, 2 * k)
    index.add(base.low.numpy())

    rng = np.random.default_rng(seed)
    sample = np.sort(rng.choice(query.n, min(_SAMPLE, query.n), replace=False))
    _, truth = search_exact(base, query, k, sample)
    effort = max(32, k + 1)
    while True:
        index.hnsw.efSearch = effort
        _, d2 = _search(index, base, query, k, sample)
        # By distance, not by index: any of several points at the k-th distance is a right answer.
        reached = float((d2 <= truth[:, -1:]).mean())
        if reached >= recall or effort >= min(base.n, _MOST_EFFORT):
            break
        effort *= 2
    if reached < recall:
        warnings.warn(
            f"HNSW reached a recall of {reached:.3f}, not {recall}. Use method='exact', or a lower `recall`.",
            stacklevel=3,
        )
    indices = np.empty((query.n, k), np.int64)
    squared = np.empty((query.n, k), np.float64)
    for start in range(0, query.n, _BATCH):
        rows = np.arange(start, min(start + _BATCH, query.n))
        indices[rows], squared[rows] = _search(index, base, query, k, rows)
        if progress is not None:
            progress(int(rows[-1]) + 1, query.n)
    return indices, squared, reached


def _search(
    index: Any, base: Dense, query: Dense, k: int, rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    alone = query is base
    at = torch.from_numpy(rows)
    found = torch.from_numpy(index.search(query.low[at].numpy(), k + alone)[1])
    if alone:  # drop itself where it was found, else the farthest
        itself = found == at.unsqueeze(1)
        itself[~itself.any(1), -1] = True
        found = found[~itself].view(-1, k)
    lost = (found < 0).any(1).numpy()  # the walk ended early: an island of the index, or many equal points
    found, d2 = by_distance(found.clamp(min=0), measure(base, query, at, found.clamp(min=0)))
    indices, squared = found.numpy(), d2.numpy()
    if lost.any():
        indices[lost], squared[lost] = search_exact(base, query, k, rows[lost])
    return indices, squared
