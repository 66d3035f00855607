"""NPZ and NPY files of points: whole, or some rows at a time; nothing in them is ever unpickled."""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.runtime.arrays import entry_names, entry_size, read_entry, read_header

_BATCH_BYTES = 16 * 2**20
_SPARSE = ("X_data", "X_indices", "X_indptr", "X_shape")


@dataclass(frozen=True)
class PointArrays:
    """What an NPZ file of N points holds.

    Args:
        X: Features [N, F]: numbers, dense or scipy CSR (from X_data, X_indices, X_indptr, X_shape). More dimensions
            are flattened to one.
        y: Labels [N]; ``None`` if there are none and none are needed.
        ids: Names of the rows [N], if requested.
        class_names: Names of integer labels, if the file has them.
        edge_index: PyG's edge_index [2, E], if the points come with a graph.
    """

    X: Any
    y: npt.NDArray[Any] | None
    ids: npt.NDArray[Any] | None = None
    class_names: list[str] | None = None
    edge_index: npt.NDArray[Any] | None = None


def read_arrays(path: Path, label: str, identity: str | None, need_labels: bool = True) -> PointArrays:
    """The file's arrays; ``label`` and ``identity`` name those of labels and ids."""
    with _one_kind_of_error(path):
        if path.name.lower().endswith(".npy"):
            X = _checked(_single(path))
            if need_labels:
                raise ValueError(f"{path.name} holds a single array, so no labels. Save X and y in one NPZ file.")
            return PointArrays(X, None)
        with zipfile.ZipFile(path) as archive:
            held = entry_names(archive)
            sparse = all(name in held for name in _SPARSE)
            labeled = need_labels or label in held
            needed = [*([label] if labeled else []), *([identity] if identity else []), *([] if sparse else ["X"])]
            for name in needed:
                if name not in held:
                    raise ValueError(f"{path.name} has no array {name!r}; it has {', '.join(held)[:200] or 'none'}.")
            X = _sparse(archive) if sparse else _checked(read_entry(archive, "X"))
            y = one_per_row(read_entry(archive, label), label, X.shape[0]) if labeled else None
            ids = None if identity is None else one_per_row(read_entry(archive, identity), identity, X.shape[0])
            names = (
                [str(name) for name in read_entry(archive, "class_names").ravel()] if "class_names" in held else None
            )
            edges = read_entry(archive, "edge_index") if "edge_index" in held else None
            return PointArrays(X, y, ids, names, edges)


def row_ids(path: Path, name: str) -> npt.NDArray[Any] | None:
    """The array of ids with that name as text, or ``None`` if the file has none."""
    if path.name.lower().endswith(".npy"):
        return None
    with _one_kind_of_error(path), zipfile.ZipFile(path) as archive:
        held = name in entry_names(archive)
        return np.atleast_1d(read_entry(archive, name)).astype(str) if held else None


def row_blocks(path: Path) -> Iterator[Any]:
    """Consecutive rows of X, read lazily from the (possibly compressed) file."""
    with _one_kind_of_error(path):
        if path.name.lower().endswith(".npy"):
            with open(path, "rb") as file:
                yield from _blocks_of(file, path.stat().st_size, lambda: _single(path))
            return
        with zipfile.ZipFile(path) as archive:
            held = entry_names(archive)
            if "X" not in held:
                if not all(name in held for name in _SPARSE):
                    raise ValueError(f"{path.name} has no array 'X'; it has {', '.join(held)[:200] or 'none'}.")
                X = _sparse(archive)
                step = max(1, _BATCH_BYTES // (4 * max(1, X.shape[1])))
                for first in range(0, X.shape[0], step):
                    yield X[first : first + step]
                return
            with archive.open("X.npy") as entry:
                size = entry_size(archive.getinfo("X.npy"))
                yield from _blocks_of(entry, size, lambda: read_entry(archive, "X"))


def _blocks_of(file: IO[bytes], size: int, whole: Any) -> Iterator[npt.NDArray[Any]]:
    shape, fortran, dtype = read_header(file, size)
    if dtype.hasobject or dtype.kind not in "fiub" or len(shape) < 2 or fortran or not math.prod(shape):
        # A column-major array's rows are spread over the file: it can only be read whole.
        yield _checked(whole())
        return
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    step = max(1, _BATCH_BYTES // row_bytes)
    for first in range(0, shape[0], step):
        rows = min(step, shape[0] - first)
        data = file.read(rows * row_bytes)
        if len(data) < rows * row_bytes:
            raise EOFError(f"X ends at row {first + len(data) // row_bytes} of {shape[0]}.")
        yield np.frombuffer(data, dtype).reshape(rows, -1)


@contextlib.contextmanager
def _one_kind_of_error(path: Path) -> Iterator[None]:
    """Turn what zip files and array headers raise into a ValueError: damaged ones raise nearly anything."""
    try:
        yield
    except (ValueError, FileNotFoundError, PermissionError, GeneratorExit):
        raise
    except Exception as error:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:160]
        raise ValueError(f"{path.name} cannot be read: {reason}") from error


def _single(path: Path) -> npt.NDArray[Any]:
    with open(path, "rb") as file:
        _, _, dtype = read_header(file, path.stat().st_size)
        if dtype.hasobject:
            raise ValueError(f"{path.name} holds Python objects, which are never loaded. Save numbers.")
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _checked(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if X.ndim < 2 or X.dtype.kind not in "fiub" or not X.size:
        raise ValueError(f"X must hold numbers in shape [rows, features], but got {X.dtype} {list(X.shape)}.")
    return X.reshape(X.shape[0], -1)


def _sparse(archive: zipfile.ZipFile) -> Any:
    data, indices, indptr, shape = (read_entry(archive, name) for name in _SPARSE)
    if shape.size != 2 or data.dtype.kind not in "fiub":
        raise ValueError(f"The sparse X must hold numbers in two dimensions, but got {data.dtype} {shape.tolist()}.")
    X = sp.csr_array((data.astype(np.float32), indices, indptr), shape=tuple(int(s) for s in shape))
    X.check_format()
    if not np.isfinite(X.data).all():
        raise ValueError("The sparse X holds values that are not finite.")
    return X


def one_per_row(values: npt.NDArray[Any], name: str, rows: int) -> npt.NDArray[Any]:
    """The array, which must have an entry for each row of X."""
    if values.ndim != 1 or values.shape[0] != rows:
        raise ValueError(f"{name!r} must have one entry per row of X, but got {list(values.shape)} for {rows} rows.")
    return values
