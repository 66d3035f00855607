"""A data set for the protocol: standardized features and the k-NN graph, computed once and cached in a small file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.graphs.graph import Graph, graph_from_csr

K = 30
# Data sets whose columns have different units. The others are unchanged: text features already share one scale.
STANDARDIZED = ("isolet", "har", "cancer", "cancer-binary", "digits")


@dataclass(frozen=True)
class Prepared:
    """Features, labels and the graph of one data set.

    Args:
        name: Name of the data set.
        X: float32 [N, F].
        y: int64 [N], classes from 0.
        graph: The Gaussian k-NN graph, k = 30, mean bandwidth, of X in full precision.
    """

    name: str
    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    graph: Graph

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


def prepare(name: str) -> Prepared:
    """Load a data set, standardize it if its columns have different units, and build its graph.

    The columns' means and deviations are those of all points, since the graph is built on all of them; labels are not
    used.
    """
    from sobgnn import datasets
    from sobgnn.graphs.knn import knn_graph

    loaded: Any = datasets.load(name)
    X = np.asarray(loaded.X.toarray() if sp.issparse(loaded.X) else loaded.X, dtype=np.float64)
    if np.isnan(X).any():
        X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    if name in STANDARDIZED:
        deviation = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    values = X.astype(np.float32)
    _, y = np.unique(np.asarray(loaded.y), return_inverse=True)
    return Prepared(name, values, y.astype(np.int64), knn_graph(values, k=K))


def save(data: Prepared, folder: Path) -> Path:
    """Write ``NAME.npz``: features in float16, labels, and the graph's upper half in float32; nothing pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    upper = sp.triu(data.graph.to_scipy(), format="csr")
    index = np.uint16 if len(data.y) < 2**16 else np.int32
    path = folder / f"{data.name}.npz"
    np.savez_compressed(
        path,
        format=np.array("sobgnn-prepared-1"),
        X=data.X.astype(np.float16),
        y=data.y.astype(np.int16),
        degree=np.diff(upper.indptr).astype(np.int32),
        indices=upper.indices.astype(index),
        weight=upper.data.astype(np.float32),
    )
    return path


def load(name: str, folder: Path | None = None) -> Prepared:
    """The prepared file in ``folder`` if it exists, else the data set prepared now."""
    path = None if folder is None else folder / f"{name}.npz"
    if path is None or not path.exists():
        return prepare(name)
    with np.load(path, allow_pickle=False) as archive:
        if str(archive.get("format")) != "sobgnn-prepared-1":
            raise ValueError(f"{path} is not a prepared data set. Create it with `python -m sobgnn.protocol prepare`.")
        X, y = archive["X"].astype(np.float32), archive["y"].astype(np.int64)
        indptr = np.concatenate([[0], np.cumsum(archive["degree"])])
        arrays = (archive["weight"], archive["indices"].astype(np.int32), indptr.astype(np.int32))
    upper = sp.csr_array(arrays, shape=(len(y), len(y)))
    full = (upper + upper.T).tocsr()
    full.sort_indices()
    return Prepared(name, X, y, graph_from_csr(full))


def with_k(data: Prepared, k: int) -> Prepared:
    """The same points with a graph of ``k`` neighbors."""
    if k == K:
        return data
    from sobgnn.graphs.knn import knn_graph

    return Prepared(data.name, data.X, data.y, knn_graph(data.X, k=k, method="exact"))
