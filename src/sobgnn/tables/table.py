"""A table of points: features, labels, ids, cells, and a graph if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

from sobgnn._system.unknown import BLANK_TEXTS
from sobgnn.tables.columns.base import dense
from sobgnn.tables.encoding import ArrayEncoder, Encoding
from sobgnn.tables.labels import parse_labels

# Number of features of a row that are shown if a table came from an array.
_SHOWN = 20


@dataclass(frozen=True)
class Table:
    """Points and what is known of them."""

    X: Any  # features [N, F], float32 or scipy sparse, finite
    codes: npt.NDArray[np.int64]  # the class of each row, [N]; -1: unlabeled
    classes: Sequence[str] | Sequence[int]  # what the codes index
    encoding: Encoding  # how X came from the file
    ids: npt.NDArray[Any] | None = None  # one text per row
    graph: Any = None  # one that came with the data
    notes: list[str] = field(default_factory=list)  # sentences about what the rules did
    frame: pl.DataFrame | None = None  # the cells as they were read, for :meth:`content`; None for arrays
    separator: str = ","  # between the cells of the file

    def labels(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Labels for the estimator: integers with -1, or text with None, for the code -1."""
        if not self.classes or isinstance(self.classes[0], str):
            return np.array([*self.classes, None], dtype=object)[codes]
        return np.array([*self.classes, -1], dtype=np.int64)[codes]

    def row_name(self, row: int) -> str:
        """The row's id, after the name of its column if it is a number: ticket 847530; without one row 17, from 0."""
        name = "" if self.ids is None else str(self.ids[row])
        if not name.strip():
            return f"row {row}"
        return f"{self.encoding.id or 'id'} {name}" if name.isdecimal() else name

    def content(self, row: int) -> dict[str, str]:
        """What a person sees of a row: text by original column, without the label and blank cells.

        A picture's name becomes its path; for an array, the first 20 features are shown.
        """
        if not 0 <= row < self.X.shape[0]:
            raise IndexError(f"`row` must be between 0 and {self.X.shape[0] - 1}, but got {row}.")
        if self.frame is None:
            return {str(i): f"{float(value):.6g}" for i, value in enumerate(dense(self.X[[row]])[0, :_SHOWN])}
        pictures = self.encoding.pictures
        shown: dict[str, str] = {}
        for name, value in self.frame.row(row, named=True).items():
            if name == self.encoding.label or value is None or (isinstance(value, str) and not value.strip()):
                continue
            if pictures is not None and name == pictures.name:
                value = pictures.open_path(str(value).strip())
                if value is None:
                    continue
            shown[name] = _shown(value)
        return shown


def from_arrays(
    X: Any,
    y: npt.NDArray[Any] | None,
    *,
    label: str = "y",
    ids: npt.NDArray[Any] | None = None,
    id_name: str | None = None,
    class_names: Sequence[str] | None = None,
    graph: Any = None,
    need_labels: bool = True,
) -> Table:
    """Points [N, F] and labels [N] as a table: missing features are filled with medians, classes get their names.

    ``y=None`` means that there are no labels yet: all codes are -1, and there are no classes. Unless labels are needed,
    y may be empty or hold one class. ``id_name`` finds the ids in other files.
    """
    codes, classes, notes = np.full(X.shape[0], -1), [], []  # type: tuple[Any, Any, list[str]]
    if y is not None:
        series = pl.Series(label, y.tolist(), strict=False)
        codes, classes, notes = parse_labels(series, label, begun=not need_labels)
    if classes and class_names is not None and not isinstance(classes[0], str) and int(classes[-1]) < len(class_names):
        named = [str(class_names[int(code)]) for code in classes]
        if any(name in BLANK_TEXTS for name in named):
            raise ValueError("A class cannot be called 'nan' or '', which mean no label. Rename it in class_names.")
        classes = named if len(set(named)) == len(named) else classes
    fill = np.zeros(X.shape[1])
    if not sp.issparse(X):
        X, fill, missing = _filled(X)
        if missing:
            notes.insert(0, f"Missing values filled with the feature's median: {missing:,}.")
    names = None if ids is None else ids.astype(str).astype(object)
    return Table(X, codes, classes, Encoding(ArrayEncoder(fill), id=id_name), names, graph, notes)


def _filled(X: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], int]:
    """The array without values that are not finite, the median of each feature in their place, and their number."""
    with np.errstate(over="ignore"):
        out = X.astype(np.float32)
    hole = ~np.isfinite(out)
    known = (out[~hole[:, column], column] for column in range(X.shape[1]))
    fill = np.array([float(np.median(values)) if values.size else 0.0 for values in known])
    np.copyto(out, fill.astype(np.float32), where=hole)
    return out, fill, int(hole.sum())


def graph_of(edge_index: npt.NDArray[Any] | None, nodes: int) -> Any:
    """The union of the edges in both directions as a graph of weights 1, or ``None`` if there are none."""
    if edge_index is None:
        return None
    from sobgnn.graphs.graph import Graph

    graph = Graph.from_edges(edge_index, num_nodes=nodes, symmetrize="union", sum_duplicates=True)
    return Graph(graph.indptr, graph.indices, graph.weight.new_ones(len(graph.weight)))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and len(value) > 8:
        return "[" + ", ".join(_shown(v) for v in value[:8]) + f", … {len(value)} values]"
    return str(value)
