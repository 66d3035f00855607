"""Points with what is known of them, from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.tables.encoding import Column, Encoding, parse_labels


@dataclass(frozen=True)
class Table:
    """Points and what is known of them.

    Args:
        X: Features [N, F], float32 or scipy sparse, finite.
        codes: int64 [N], the class of each row, -1 where it is unknown.
        classes: What the codes stand for: text, or whole numbers.
        encoding: How X came from the file.
        ids: One text per row, or ``None``.
        graph: A graph that came with the data, or ``None``.
        notes: Sentences about what the rules did.
    """

    X: Any
    codes: npt.NDArray[np.int64]
    classes: Sequence[str] | Sequence[int]
    encoding: Encoding
    ids: npt.NDArray[Any] | None = None
    graph: Any = None
    notes: list[str] = field(default_factory=list)

    def labels(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Labels for the estimator: whole numbers with -1, or text with None, where the code is -1."""
        if isinstance(self.classes[0], str):
            return np.array([*self.classes, None], dtype=object)[codes]
        return np.array([*self.classes, -1], dtype=np.int64)[codes]


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file: the first row's number, features float32 [rows, F], and ids where there are."""

    first_row: int
    X: npt.NDArray[np.float32]
    ids: npt.NDArray[Any] | None


def from_arrays(
    X: Any,
    y: npt.NDArray[Any],
    *,
    label: str = "y",
    ids: npt.NDArray[Any] | None = None,
    class_names: Sequence[str] | None = None,
    graph: Any = None,
) -> Table:
    """Points [N, F] and labels [N] as a table: missing features filled with medians, classes by their names."""
    import polars as pl

    codes, classes, notes = parse_labels(pl.Series(label, y.tolist(), strict=False), label)
    if class_names is not None and not isinstance(classes[0], str) and int(classes[-1]) < len(class_names):
        named = [str(class_names[int(code)]) for code in classes]
        classes = named if len(set(named)) == len(named) else classes
    fill = np.zeros(X.shape[1])
    if not sp.issparse(X):
        X, fill, missing = _filled(X)
        if missing:
            notes.insert(0, f"Missing values filled with the feature's median: {missing:,}.")
    encoding = Encoding(tuple(Column(str(i), "number", float(f)) for i, f in enumerate(fill)), named=False)
    names = None if ids is None else np.array([str(value) for value in ids.tolist()], dtype=object)
    return Table(X, codes, classes, encoding, names, graph, notes)


def _filled(X: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], int]:
    with np.errstate(over="ignore"):
        out = X.astype(np.float32)
    hole = ~np.isfinite(out)
    fill = np.zeros(X.shape[1])
    for column in range(X.shape[1]):
        known = out[~hole[:, column], column]
        fill[column] = float(np.median(known)) if known.size else 0.0
    rows, columns = np.nonzero(hole)
    out[rows, columns] = fill[columns]
    return out, fill, int(rows.size)


def graph_of(edge_index: npt.NDArray[Any] | None, nodes: int) -> Any:
    """The union of the edges in both directions as a graph, or ``None`` where there are none."""
    if edge_index is None:
        return None
    from sobgnn.graphs.graph import Graph

    return Graph.from_edges(edge_index, num_nodes=nodes, symmetrize="union")
