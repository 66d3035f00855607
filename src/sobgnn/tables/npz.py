"""NPZ files of points: whole, or some rows at a time; nothing in them is ever unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

_BATCH_BYTES = 16 * 2**20
_SPARSE = ("X_data", "X_indices", "X_indptr", "X_shape")


@dataclass(frozen=True)
class Arrays:
    """What an NPZ file of N points holds.

    Args:
        X: Features [N, F]: numbers, dense or scipy CSR (from X_data, X_indices, X_indptr, X_shape).
        y: Labels [N].
        ids: Names of the rows [N], where asked for.
        class_names: Texts that whole-number labels stand for, where the file has them.
        edge_index: PyG's edge_index [2, E], where the points come with a graph.
    """

    X: Any
    y: npt.NDArray[Any]
    ids: npt.NDArray[Any] | None = None
    class_names: list[str] | None = None
    edge_index: npt.NDArray[Any] | None = None


def read_arrays(path: Path, label: str, identity: str | None) -> Arrays:
    """The file's arrays; ``label`` and ``identity`` name those of labels and ids."""
    with np.load(path, allow_pickle=False) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError(f"{path.name} holds a single array. An NPZ file with X and y is needed.")
        held = list(archive.files)
        sparse = all(name in held for name in _SPARSE)
        for name in [label, *([identity] if identity else []), *([] if sparse else ["X"])]:
            if name not in held:
                raise ValueError(f"{path.name} has no array {name!r}; it has {', '.join(held) or 'none'}.")
        X = _sparse(archive) if sparse else _checked(archive["X"])
        y = _one_per_row(archive[label], label, X.shape[0])
        ids = None if identity is None else _one_per_row(archive[identity], identity, X.shape[0])
        names = [str(name) for name in archive["class_names"]] if "class_names" in held else None
        edges = archive["edge_index"] if "edge_index" in held else None
    return Arrays(X, y, ids, names, edges)


def row_blocks(path: Path) -> Iterator[Any]:
    """Consecutive rows of X, read from the (possibly compressed) file as they are asked for."""
    with zipfile.ZipFile(path) as archive:
        if "X.npy" not in archive.namelist():
            with np.load(path, allow_pickle=False) as held:
                if not all(name in held.files for name in _SPARSE):
                    raise ValueError(f"{path.name} has no array 'X'; it has {', '.join(held.files) or 'none'}.")
                X = _sparse(held)
            step = max(1, _BATCH_BYTES // (4 * max(1, X.shape[1])))
            for first in range(0, X.shape[0], step):
                yield X[first : first + step]
            return
        with archive.open("X.npy") as file:
            shape, fortran, dtype = _npy_header(file)
            if dtype.hasobject or dtype.kind not in "fiub" or len(shape) != 2 or fortran:
                # A column-major array's rows are spread over the file: it can only be read whole.
                with np.load(path, allow_pickle=False) as held:
                    yield _checked(held["X"])
                return
            row_bytes = dtype.itemsize * shape[1]
            step = max(1, _BATCH_BYTES // max(1, row_bytes))
            for first in range(0, shape[0], step):
                rows = min(step, shape[0] - first)
                data = file.read(rows * row_bytes)
                if len(data) < rows * row_bytes:
                    raise EOFError(f"X ends at row {first + len(data) // max(1, row_bytes)} of {shape[0]}.")
                yield np.frombuffer(data, dtype).reshape(rows, shape[1])


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype


def _checked(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if X.ndim != 2 or X.dtype.kind not in "fiub" or not X.size:
        raise ValueError(f"X must hold numbers in shape [rows, features], but got {X.dtype} {list(X.shape)}.")
    return X


def _sparse(archive: Any) -> Any:
    data, indices, indptr, shape = (archive[name] for name in _SPARSE)
    if shape.size != 2 or data.dtype.kind not in "fiub":
        raise ValueError(f"The sparse X must hold numbers in two dimensions, but got {data.dtype} {shape.tolist()}.")
    X = sp.csr_array((data.astype(np.float32), indices, indptr), shape=tuple(int(s) for s in shape))
    X.check_format()
    if not np.isfinite(X.data).all():
        raise ValueError("The sparse X holds values that are not finite.")
    return X


def _one_per_row(values: npt.NDArray[Any], name: str, rows: int) -> npt.NDArray[Any]:
    if values.ndim != 1 or values.shape[0] != rows:
        raise ValueError(f"{name!r} must have one entry per row of X, but got {list(values.shape)} for {rows} rows.")
    return values
