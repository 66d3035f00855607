"""NPZ and NPY files of points: whole, or some rows at a time; nothing in them is ever unpickled."""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn._system.arrays import entry_names, entry_size, read_entry, read_header
from sobgnn.tables.encoding import Batch, Encoding
from sobgnn.tables.table import Table, from_arrays, graph_of

_BATCH_BYTES = 16 * 2**20
_COLUMNS = 2**24  # of a sparse array, if it has no more values
_SPARSE = ("X_data", "X_indices", "X_indptr", "X_shape")


def read_points(path: Path, label: str | None, identity: str | None, need_labels: bool = True) -> Table:
    """The points X [N, F] of a file, dense or sparse (X_data, X_indices, X_indptr, X_shape), as a table.

    More dimensions are flattened to one. ``label``, or y, and ``identity`` name the arrays of labels and ids [N];
    class_names [C] names the classes of integer labels, and edge_index [2, E] is PyG's.
    """
    with _opened(path) as file:
        label = label or "y"
        labeled = need_labels or label in file.names
        if need_labels and file.archive is None:
            raise ValueError(f"{path.name} holds a single array, so no labels. Save X and y in one NPZ file.")
        for name in (*([label] if labeled else []), *([identity] if identity else [])):
            file.check(name)
        X = file.points()
        rows = X.shape[0]
        y = one_per_row(file.read(label), label, rows) if labeled else None
        ids = None if identity is None else one_per_row(file.read(identity), identity, rows)
        names = [str(name) for name in file.read("class_names").ravel()] if "class_names" in file.names else None
        edges = file.read("edge_index") if "edge_index" in file.names else None
    return from_arrays(
        X, y, label=label, ids=ids, id_name=identity, class_names=names, graph=graph_of(edges, rows),
        need_labels=need_labels,
    )  # fmt: skip


def point_batches(path: Path, encoding: Encoding) -> Iterator[Batch]:
    """Consecutive rows of X, read lazily from the (possibly compressed) file."""
    if any(column.kind != "number" for column in encoding.columns):
        raise ValueError(
            "The model was fitted on columns that are not all numbers, which an array does not have. "
            "Give a CSV or Parquet file."
        )
    row, name = 0, str(encoding.id)
    with _opened(path) as file:
        ids = np.atleast_1d(file.read(name)).astype(str) if encoding.id is not None and name in file.names else None
        for block in file.blocks():
            rows = block.shape[0]
            own = None if ids is None else one_per_row(ids[row : row + rows], name, rows)
            yield replace(encoding.array_batch(block, row), ids=own)
            row += rows
    if ids is not None:
        one_per_row(ids, name, row)


def one_per_row(values: npt.NDArray[Any], name: str, rows: int) -> npt.NDArray[Any]:
    """The array, which must have an entry for each row of X."""
    if values.ndim != 1 or values.shape[0] != rows:
        raise ValueError(f"{name!r} must have one entry per row of X, but got {list(values.shape)} for {rows} rows.")
    return values


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_ArrayFile]:
    """The file; what zip files and array headers raise becomes a ValueError: damaged ones raise nearly anything."""
    try:
        with contextlib.ExitStack() as stack:
            single = path.name.lower().endswith(".npy")
            yield _ArrayFile(path, None if single else stack.enter_context(zipfile.ZipFile(path)))
    except (ValueError, FileNotFoundError, PermissionError, GeneratorExit):
        raise
    except Exception as error:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:160]
        raise ValueError(f"{path.name} cannot be read: {reason}") from error


class _ArrayFile:
    """The arrays of an open NPZ file, or the only one, X, of an NPY file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile | None) -> None:
        self.path, self.archive = path, archive
        self.names = ["X"] if archive is None else entry_names(archive)

    def check(self, name: str) -> None:
        """Raise unless the file has that array."""
        if name not in self.names:
            held = ", ".join(self.names)[:200] or "none"
            raise ValueError(f"{self.path.name} has no array {name!r}; it has {held}.")

    def read(self, name: str) -> npt.NDArray[Any]:
        """The array of that name."""
        if self.archive is not None:
            return read_entry(self.archive, name)
        with open(self.path, "rb") as file:
            if read_header(file, self.path.stat().st_size)[2].hasobject:
                raise ValueError(f"{self.path.name} holds Python objects, which are never loaded. Save numbers.")
            file.seek(0)
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))

    def points(self) -> Any:
        """X [rows, features]: numbers, dense or CSR."""
        if not all(name in self.names for name in _SPARSE):
            self.check("X")
            X = self.read("X")
            if X.ndim < 2 or X.dtype.kind not in "fiub" or not X.size:
                raise ValueError(f"X must hold numbers in shape [rows, features], but got {X.dtype} {list(X.shape)}.")
            return X.reshape(X.shape[0], -1)
        data, indices, indptr, shape = (self.read(name) for name in _SPARSE)
        if shape.size != 2 or data.dtype.kind not in "fiub":
            raise ValueError(
                f"The sparse X must hold numbers in two dimensions, but got {data.dtype} {shape.tolist()}."
            )
        if shape[1] > max(_COLUMNS, data.size):  # some arrays have a number for each column
            raise ValueError(f"The sparse X has {data.size:,} values in {shape[1]:,} columns. Leave out empty ones.")
        sparse = sp.csr_array((data.astype(np.float32), indices, indptr), shape=tuple(int(s) for s in shape))
        sparse.check_format()
        if not np.isfinite(sparse.data).all():
            raise ValueError("The sparse X holds values that are not finite.")
        return sparse

    def blocks(self) -> Iterator[Any]:
        """Consecutive rows of X."""
        if "X" not in self.names:
            X = self.points()
            step = max(1, _BATCH_BYTES // (4 * max(1, X.shape[1])))
            yield from (X[first : first + step] for first in range(0, X.shape[0], step))
            return
        packed = None if self.archive is None else self.archive.getinfo("X.npy")
        size = self.path.stat().st_size if packed is None else entry_size(packed)
        with open(self.path, "rb") if self.archive is None else self.archive.open("X.npy") as file:
            shape, fortran, dtype = read_header(file, size)
            if dtype.hasobject or dtype.kind not in "fiub" or len(shape) < 2 or fortran or not math.prod(shape):
                # A column-major array's rows are spread over the file: it can only be read whole.
                yield self.points()
                return
            row_bytes = dtype.itemsize * math.prod(shape[1:])
            step = max(1, _BATCH_BYTES // row_bytes)
            for first in range(0, shape[0], step):
                rows = min(step, shape[0] - first)
                data = file.read(rows * row_bytes)
                if len(data) < rows * row_bytes:
                    raise EOFError(f"X ends at row {first + len(data) // row_bytes} of {shape[0]}.")
                yield np.frombuffer(data, dtype).reshape(rows, -1)
