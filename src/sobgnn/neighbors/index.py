"""An HNSW index kept for later searches: saved and pickled as arrays of links, the points being saved already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.neighbors.spaces import Dense

Links = dict[str, npt.NDArray[Any]]


class Index:
    """faiss's index of the rows of a :class:`~sobgnn.neighbors.spaces.Dense`.

    Args:
        made: faiss's index.
        links: Alternatively, a value of :attr:`links`, from which the index is rebuilt at the first search.
    """

    def __init__(self, made: Any = None, links: Links | None = None) -> None:
        self._made, self._links = made, links

    def __getstate__(self) -> dict[str, Any]:
        return {"_made": None, "_links": self.links}

    @property
    def links(self) -> Links:
        """``levels`` int32 [N], ``neighbors`` int32 [E], ``entry`` and ``effort`` int64 [1], the last of searching."""
        if self._made is None:
            assert self._links is not None  # there is always one of them
            return self._links
        import faiss

        graph: Any = self._made.hnsw
        return {
            "levels": faiss.vector_to_array(graph.levels),
            "neighbors": faiss.vector_to_array(graph.neighbors),
            "entry": np.array([graph.entry_point], np.int64),
            "effort": np.array([graph.efSearch], np.int64),
        }

    def of(self, base: Dense) -> Any:
        """faiss's index, whose points are those rows."""
        if self._made is None:
            self._made = _made(self.links, base)
            self._links = None
        return self._made


def check_links(links: Mapping[str, npt.NDArray[Any]], count: int, per_level: int) -> None:
    """Refuse links of ``count`` points that a search would follow out of its memory.

    Raises:
        ValueError: The arrays contradict each other.
    """
    levels, neighbors, entry, effort = (links[name] for name in ("levels", "neighbors", "entry", "effort"))
    good = (
        all(part.dtype == np.int32 and part.ndim == 1 for part in (levels, neighbors))
        and all(part.dtype == np.int64 and part.shape == (1,) for part in (entry, effort))
        and len(levels) == count > 0
        and int(levels.min()) >= 1
        and len(neighbors) == per_level * (count + int(levels.sum(dtype=np.int64)))
        and int(neighbors.min()) >= -1
        and int(neighbors.max()) < count
        and 0 <= int(entry[0]) < count
        and int(levels[entry[0]]) == int(levels.max())
        and 1 <= int(effort[0]) <= 1 << 20
    )
    if good:
        # A link of an upper level leads to a point that is on that level too. The lowest has twice as many links.
        ends = np.cumsum(per_level * (levels.astype(np.int64) + 1))
        high = np.flatnonzero(levels > 1)
        for level in range(1, int(levels.max())):
            high = high[levels[high] > level]
            starts = ends[high] - per_level * (levels[high] - level)
            linked = neighbors[starts[:, None] + np.arange(per_level)]
            good &= bool((levels[linked[linked >= 0]] > level).all())
    if not good:
        raise ValueError("the arrays of its neighbor index contradict each other")


def _made(links: Links, base: Dense) -> Any:
    import faiss

    from sobgnn.neighbors.hnsw import LINKS

    check_links(links, base.n, LINKS)
    index = faiss.IndexHNSWFlat(base.terms, LINKS)
    index.storage.add(base.low.numpy())
    index.ntotal = base.n
    graph: Any = index.hnsw
    offsets = np.concatenate([[0], np.cumsum(LINKS * (links["levels"].astype(np.uint64) + 1))]).astype(np.uint64)
    parts = ((graph.levels, links["levels"]), (graph.offsets, offsets), (graph.neighbors, links["neighbors"]))
    for vector, part in parts:
        faiss.copy_array_to_vector(np.ascontiguousarray(part), vector)
    graph.entry_point, graph.efSearch = int(links["entry"][0]), int(links["effort"][0])
    graph.max_level = int(links["levels"].max()) - 1
    return index
