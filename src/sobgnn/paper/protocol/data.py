"""A data set for the protocol: features and the graph, computed once and cached in a small file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from sobgnn._system.arrays import load_arrays
from sobgnn._system.files import atomic_file
from sobgnn.graphs.graph import Graph, graph_from_csr

K = 30
# Name of the entry that says whether the graph is given, and which version of the format a file has.
FORMAT = "given-2"


@dataclass(frozen=True)
class Prepared:
    """Features, labels and the graph of one data set.

    Args:
        name: Name of the data set.
        X: float32 [N, F].
        y: int64 [N], classes from 0.
        graph: The Gaussian k-NN graph, k = 30, mean bandwidth, of X in full precision; or the data set's own graph.
        given: Whether the graph is the data set's own.
        precision: That of the features, ``"float32"`` or, if they come from a prepared file, ``"float16"``.
    """

    name: str
    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    graph: Graph
    given: bool = False
    precision: str = "float32"

    @property
    def deviation(self) -> str:
        """How this differs from what the protocol asks for, in words; empty if it does not."""
        parts = ["own graph"] * self.given + [f"features in {self.precision}"] * (self.precision != "float32")
        return ", ".join(parts)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


def prepare(name: str) -> Prepared:
    """Load a data set, standardize it if its columns have different units, and build its graph, or take its own.

    The columns' means and deviations are those of all points, since the graph is built on all of them; labels are not
    used. The edges of a data set's own graph get the weights :math:`D^{-1/2} A D^{-1/2}`: Hadamard powers of 0/1
    weights are all the same.
    """
    from sobgnn import datasets, knn_graph, reweight

    loaded: Any = datasets.load(name)
    X = np.asarray(loaded.X.toarray() if sp.issparse(loaded.X) else loaded.X, dtype=np.float64)
    if np.isnan(X).any():
        X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    if loaded.standardize:
        deviation = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    values = X.astype(np.float32)
    _, y = np.unique(np.asarray(loaded.y), return_inverse=True)
    if loaded.edge_index is None:
        return Prepared(name, values, y.astype(np.int64), knn_graph(values, k=K))
    own = Graph.from_edges(torch.from_numpy(loaded.edge_index), num_nodes=len(y), symmetrize="union")
    return Prepared(name, values, y.astype(np.int64), reweight(own, "normalized"), given=True)


def save(data: Prepared, folder: Path) -> Path:
    """Write ``NAME.npz``: features in float16, labels, and the graph's upper half in float32; nothing pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    upper = sp.triu(data.graph.to_scipy(), format="csr")
    index = np.uint16 if len(data.y) < 2**16 else np.int32
    path = folder / f"{data.name}.npz"
    arrays = {
        FORMAT: np.array(data.given),
        "X": data.X.astype(np.float16),
        "y": data.y.astype(np.int16),
        "degree": np.diff(upper.indptr).astype(np.int32),
        "indices": upper.indices.astype(index),
        "weight": upper.data.astype(np.float32),
    }
    with atomic_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path


def load(name: str, folder: Path | None = None) -> Prepared:
    """The prepared file in ``folder`` if it exists, else the data set prepared now."""
    path = None if folder is None else folder / f"{name}.npz"
    if path is None or not path.exists():
        return prepare(name)
    try:
        held = load_arrays(path, (FORMAT, "X", "y", "degree", "indices", "weight"))
    except ValueError as error:
        raise ValueError(f"{error}. Create it with `sobgnn reproduce prepare`.") from None
    X, y = held["X"].astype(np.float32), held["y"].astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(held["degree"])])
    arrays = (held["weight"], held["indices"].astype(np.int32), indptr.astype(np.int32))
    upper = sp.csr_array(arrays, shape=(len(y), len(y)))
    full = (upper + upper.T).tocsr()
    full.sort_indices()
    return Prepared(name, X, y, graph_from_csr(full), bool(held[FORMAT]), "float16")


def with_k(data: Prepared, k: int) -> Prepared:
    """The same points with a graph of ``k`` neighbors."""
    if k == K:
        return data
    if data.given:
        raise ValueError(f"{data.name} has a graph of its own: there is no k to change. Leave out the ablation of k.")
    from sobgnn.graphs.knn import knn_graph

    return Prepared(data.name, data.X, data.y, knn_graph(data.X, k=k, method="exact"))
