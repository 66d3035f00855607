"""Validation of points, and reading them in float64 blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

_PIECE_BYTES = 2**25  # of float64 rows held at once
_LARGEST = 1e37  # above it float32 distances overflow
_SMALLEST = 1e-30  # of the largest entry: below it they lose digits


def check_points(X: Any, name: str = "X", *, cosine: bool = False) -> Any:
    """X as a 2-D numpy array, torch tensor or CSR matrix of finite real numbers; copies only what it must.

    Args:
        X: What was given for points.
        name: What errors call it.
        cosine: Whether only directions count, so that values may have any size.

    Raises:
        TypeError: not numeric, or not something with rows and columns.
        ValueError: empty, not 2-D, masked, or with NaN or infinite rows.
    """
    if isinstance(X, Tensor):
        if X.layout != torch.strided:
            raise TypeError(f"`{name}` must be a dense tensor or a scipy sparse matrix, but got {X.layout}.")
        X = X.detach()
        real = not X.is_complex()
    elif sp.issparse(X):
        real = X.dtype.kind in "fiub"
        X = X.tocsr()
    else:
        if hasattr(X, "columns") and hasattr(X, "to_numpy"):
            X = _frame_values(X, name)
        if np.ma.is_masked(X):
            rows = np.flatnonzero(np.ma.getmaskarray(X).reshape(len(X), -1).any(axis=1))
            raise ValueError(
                f"{name} has {len(rows)} row{'s' * (len(rows) > 1)} with masked entries (first: row {rows[0]}). "
                "Impute or drop them: neighbors are undefined there."
            )
        # asanyarray would keep matrix subclasses; asarray keeps a memory map's buffer unread.
        X = np.asarray(X)
        real = X.dtype.kind in "fiub"
    if not real:
        raise TypeError(f"`{name}` must be numeric, but got dtype {X.dtype}. Encode it as numbers first.")
    if len(X.shape) != 2:
        raise ValueError(
            f"`{name}` must have two dimensions (rows, features), but got shape {tuple(X.shape)}."
            + (" Reshape it with X.reshape(-1, 1)." if len(X.shape) == 1 else "")
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"`{name}` is empty: its shape is {tuple(X.shape)}. Give at least one row and feature.")
    largest = _check_finite(X, name)
    if not cosine:
        _check_size(largest, name)
    return X


def _frame_values(frame: Any, name: str) -> npt.NDArray[Any]:
    values = frame.to_numpy()
    if values.dtype.kind in "fiub":
        return np.asarray(values)
    columns = frame.items() if hasattr(frame, "items") else ((c, frame[c]) for c in frame.columns)
    others = [f"{str(c)!r} ({column.dtype})" for c, column in columns if not _is_numeric(column)]
    if others:
        verb, way = ("are", "them") if len(others) > 1 else ("is", "it")
        raise TypeError(
            f"`{name}` must be numeric, but column {', '.join(others[:3])} {verb} not. Encode {way} as numbers or drop "
            f"{way}."
        )
    # Columns of mixed or nullable dtypes arrive as objects.
    if hasattr(frame, "items"):
        return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values, dtype=np.float64)  # None becomes NaN


def _is_numeric(column: Any) -> bool:
    """Whether a column of pandas or polars holds real numbers; text that reads like one is text."""
    dtype = column.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    kind = getattr(dtype, "kind", "O")
    if kind == "O":
        return all(isinstance(value, Real | Decimal | np.bool_) or _is_missing(value) for value in column)
    return kind in "fiub"


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType"


def _check_finite(X: Any, name: str) -> float:
    """The largest magnitude of finite points; raises where some are not."""
    if sp.issparse(X):
        bad = np.flatnonzero(~np.isfinite(X.data)) if X.dtype.kind == "f" else np.empty(0, np.int64)
        rows = np.unique(np.searchsorted(X.indptr, bad, side="right") - 1)
        nan = bool(np.isnan(X.data[bad]).any())
        largest = float(np.abs(X.data[np.isfinite(X.data)]).max(initial=0.0)) if X.nnz else 0.0
    else:
        found: list[npt.NDArray[np.int64]] = []
        nan, largest = False, 0.0
        for start, block in blocks(X):
            low, high = (float(v) for v in block.aminmax())  # NaN if there is one, infinite if there is one
            if math.isfinite(low) and math.isfinite(high):
                largest = max(largest, -low, high)
                continue
            nan = nan or math.isnan(low)
            found.append(start + (~torch.isfinite(block).all(1)).nonzero().flatten().cpu().numpy())
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
    if len(rows):
        what, way = ("NaN", "Impute or drop them") if nan else ("infinite values", "Replace or drop them")
        raise ValueError(
            f"{name} has {len(rows)} row{'s' * (len(rows) > 1)} with {what} (first: row {rows[0]}). "
            f"{way}: neighbors are undefined there."
        )
    return largest


def _check_size(largest: float, name: str) -> None:
    """Raise where distances would leave the range of float32."""
    if largest > _LARGEST:
        raise ValueError(
            f"{name} has values up to {largest:.2g}: their distances overflow float32. Rescale {name}, for "
            "example to unit variance."
        )
    if 0 < largest < _SMALLEST:
        raise ValueError(
            f"{name} has no value above {largest:.2g}: distances vanish in float32. Rescale {name}, for example to "
            "unit variance."
        )


def check_k(k: int, n: int, *, without_itself: bool) -> None:
    """Refuse a ``k`` that is not an integer, or exceeds the number of points."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"`k` must be an integer, but got {k!r}.")
    if k < 1:
        raise ValueError(f"`k` must be at least 1, but got k={k}.")
    most = n - 1 if without_itself else n
    if k > most:
        rule = "smaller than" if without_itself else "at most"
        way = f"Pass k={most} or fewer." if most else "Give at least two points."
        raise ValueError(f"`k` must be {rule} the number of points, but got k={k} for {n} points. {way}")


def check_pair(points: Any, asked: Any, device: torch.device | str | None) -> None:
    """Refuse queries that cannot be compared with the points: other features, kind or device."""
    if points.shape[1] != asked.shape[1]:
        raise ValueError(
            f"`queries` must have X's {points.shape[1]} features, but got {asked.shape[1]}. Give both the same columns."
        )
    if sp.issparse(points) != sp.issparse(asked):
        raise ValueError("`X` and `queries` must be both sparse or both dense. Convert one of them.")
    places = {t.device for t in (points, asked) if isinstance(t, Tensor)}
    if len(places) > 1 and device is None:
        raise ValueError(
            f"`X` is on {points.device} but `queries` on {asked.device}. Move one, or choose with `device`."
        )


def blocks(X: npt.NDArray[Any] | Tensor) -> Iterator[tuple[int, Tensor]]:
    """(first row, float64 block) pieces of X on X's own device."""
    step = max(1, _PIECE_BYTES // (8 * X.shape[1]))
    for start in range(0, X.shape[0], step):
        yield start, to_float64(X[start : start + step])


def to_float64(block: npt.NDArray[Any] | Tensor) -> Tensor:
    """A float64 copy, as a tensor on the block's own device."""
    if isinstance(block, Tensor):
        return block.to(torch.float64, copy=True)
    # A copy: torch must not see a read-only buffer, and the caller's must not be written.
    return torch.from_numpy(np.array(block, dtype=np.float64))
