"""A data set for the protocol: features and the graph, computed once and kept in a small file, and its division."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from sobgnn._system.arrays import load_arrays
from sobgnn._system.files import atomic_file
from sobgnn.graphs.edges import csr_tensors
from sobgnn.graphs.graph import Graph

Index = npt.NDArray[np.int64]

K = 30
# The one division into development and test points that all seeds, models and trials share.
TEST_SHARE, _TEST_SEED = 0.45, 7
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

    def with_k(self, k: int) -> Prepared:
        """The same points with a graph of ``k`` neighbors."""
        if k == K:
            return self
        if self.given:
            raise ValueError(
                f"{self.name} has a graph of its own: there is no k to change. Leave out the ablation of k."
            )
        from sobgnn.graphs.knn import knn_graph

        return replace(self, graph=knn_graph(self.X, k=k, method="exact"))


def prepare(name: str) -> Prepared:
    """Load a data set, standardize it if its columns have different units, and build its graph, or take its own.

    The columns' means and deviations are those of all points, since the graph is built on all of them; labels are not
    used. The edges of a data set's own graph get the weights :math:`D^{-1/2} A D^{-1/2}`: Hadamard powers of 0/1
    weights are all the same.
    """
    from sobgnn import datasets, knn_graph, reweight

    loaded: Any = datasets.load(name)
    X = np.asarray(loaded.X.toarray() if sp.issparse(loaded.X) else loaded.X, dtype=np.float64)
    if loaded.standardize:
        deviation = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    values = X.astype(np.float32)
    _, y = np.unique(loaded.y, return_inverse=True)
    if loaded.edge_index is None:
        return Prepared(name, values, y.astype(np.int64), knn_graph(values, k=K))
    own = Graph.from_edges(torch.from_numpy(loaded.edge_index), num_nodes=len(y), symmetrize="union")
    return Prepared(name, values, y.astype(np.int64), reweight(own, "normalized"), given=True)


def save(data: Prepared, folder: Path) -> Path:
    """Write ``NAME.npz``: features in float16, labels, and the graph's upper half in float32; nothing pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    upper = sp.triu(data.graph.to_scipy(), format="csr")
    path = folder / f"{data.name}.npz"
    arrays = {
        FORMAT: np.array(data.given),
        "X": data.X.astype(np.float16),
        "y": data.y.astype(np.int16),
        "degree": np.diff(upper.indptr).astype(np.int32),
        "indices": upper.indices.astype(np.uint16 if len(data.y) < 2**16 else np.int32),
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
    return Prepared(name, X, y, Graph(*csr_tensors(full)), bool(held[FORMAT]), "float16")


class Split(NamedTuple):
    """Sorted, disjoint node indices."""

    train: Index
    validation: Index


def development_and_test(num_nodes: int, share: float = TEST_SHARE) -> tuple[Index, Index]:
    """All points, divided once: development, and ``share`` of them for testing."""
    order = np.random.default_rng([_TEST_SEED, num_nodes]).permutation(num_nodes)
    test = round(share * num_nodes)
    return np.sort(order[test:]), np.sort(order[:test])


def ten_percent(development: Index, num_nodes: int, seed: int) -> Split:
    """10 % of all points for training, drawn from the development set; the rest of it is for validation."""
    order = np.random.default_rng([seed, 1]).permutation(development)
    train = max(1, round(0.1 * num_nodes))
    return Split(np.sort(order[:train]), np.sort(order[train:]))


def per_class(development: Index, labels: npt.NDArray[Any], seed: int, count: int) -> Split:
    """``count`` points of each class for training and as many others for validation, if there are enough."""
    order = np.random.default_rng([seed, 2, count]).permutation(development)
    train, validation = [], []
    for label in np.unique(labels[development]):
        members = order[labels[order] == label]
        kept = min(count, max(1, len(members) // 2))
        train.append(members[:kept])
        validation.append(members[kept : 2 * kept])
    return Split(np.sort(np.concatenate(train)), np.sort(np.concatenate(validation)))
