"""Points for the neighbor search: checked, compared in float32, and their exact distances."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.propagation import backend, native

_PIECE_BYTES = 2**25  # of float64 rows held at once
# Of float64 differences held at once: on CPUs they stay in the cache, below the size that torch shares over threads.
_DIFFERENCE_BYTES = {"cpu": 2**18 - 8, "cuda": 2**28}
_LARGEST = 1e37  # above it float32 distances overflow
_SMALLEST = 1e-30  # of the largest entry: below it they lose digits


def check_points(X: Any, *, cosine: bool) -> tuple[Any, float]:
    """X as a 2-D numpy array, torch tensor or CSR matrix of finite real numbers, and its largest magnitude.

    Copies only what it must.

    Args:
        X: What was given for points.
        cosine: Whether only directions count, so that values may have any size.

    Raises:
        TypeError: not numeric, or not something with rows and columns.
        ValueError: empty, not 2-D, masked, or with NaN or infinite rows.
    """
    if isinstance(X, Tensor):
        if X.layout != torch.strided:
            raise TypeError(f"`X` must be a dense tensor or a scipy sparse matrix, but got {X.layout}.")
        X = X.detach()
    elif sp.issparse(X):
        X = X.tocsr()
    else:
        if hasattr(X, "columns") and hasattr(X, "to_numpy"):
            X = _frame_values(X)
        if np.ma.is_masked(X) and X.dtype.kind in "fiub":
            X = X.astype(np.float64).filled(np.nan)
        X = np.asarray(X)  # keeps a memory map's buffer unread
    real = not X.is_complex() if isinstance(X, Tensor) else X.dtype.kind in "fiub"
    if not real:
        raise TypeError(f"`X` must be numeric, but got dtype {X.dtype}. Encode it as numbers first.")
    if len(X.shape) != 2:
        raise ValueError(
            f"`X` must have two dimensions (rows, features), but got shape {tuple(X.shape)}."
            + (" Reshape it with X.reshape(-1, 1)." if len(X.shape) == 1 else "")
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"`X` is empty: its shape is {tuple(X.shape)}. Give at least one row and feature.")
    largest = peak(X)
    if not cosine and largest > _LARGEST:
        raise ValueError(
            f"X has values up to {largest:.2g}: their distances overflow float32. Rescale X, for "
            "example to unit variance."
        )
    if not cosine and 0 < largest < _SMALLEST:
        raise ValueError(
            f"X has no value above {largest:.2g}: distances vanish in float32. Rescale X, for example to unit variance."
        )
    return X, largest


def _frame_values(frame: Any) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = np.asarray(frame.to_numpy())
    if values.dtype.kind in "fiubc":
        return values
    if all(getattr(dtype, "kind", "O") in "fiub" for dtype in frame.dtypes):  # nullable ones of pandas
        return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    values = values.astype(object)
    missing = np.array([[v is None or type(v).__name__ == "NAType" for v in row] for row in values])
    number = np.array([[isinstance(v, Real | Decimal | np.bool_) for v in row] for row in values])
    others = [repr(str(frame.columns[at])) for at in np.flatnonzero(~(missing | number).all(axis=0))]
    if others:
        raise TypeError(
            f"`X` must be numeric, but has columns that are not: {', '.join(others[:3])}. Encode or drop them."
        )
    return np.where(missing, np.nan, values).astype(np.float64)


def peak(X: Any) -> float:
    """The largest magnitude of points; raises where some are not finite."""
    found: list[npt.NDArray[np.int64]] = []
    nan, largest = False, 0.0
    if sp.issparse(X):
        wrong = ~np.isfinite(X.data)
        nan, largest = bool(np.isnan(X.data).any()), float(np.abs(X.data[~wrong].astype(np.float64)).max(initial=0.0))
        found = [np.unique(np.searchsorted(X.indptr, np.flatnonzero(wrong), side="right") - 1)]
    else:
        for start, block in blocks(X):
            low, high = (float(v) for v in block.aminmax())  # NaN if there is one, infinite if there is one
            if math.isfinite(low) and math.isfinite(high):
                largest = max(largest, -low, high)
                continue
            nan = nan or math.isnan(low)
            found.append(start + (~torch.isfinite(block).all(1)).nonzero().flatten().cpu().numpy())
    if any(map(len, found)):
        rows = np.concatenate(found)
        what, way = ("NaN", "Impute") if nan else ("infinite values", "Replace")
        raise ValueError(
            f"X has {len(rows)} row{'s' * (len(rows) > 1)} with {what} (first: row {rows[0]}). {way} or drop them: "
            "neighbors are undefined there."
        )
    return largest


def blocks(X: npt.NDArray[Any] | Tensor) -> Iterator[tuple[int, Tensor]]:
    """(first row, float64 copy of a piece of X on X's own device)."""
    step = max(1, _PIECE_BYTES // (8 * X.shape[1]))
    for start in range(0, X.shape[0], step):
        yield start, to_float64(X[start : start + step])


def to_float64(block: npt.NDArray[Any] | Tensor) -> Tensor:
    """A float64 copy, as a tensor on the block's own device."""
    if isinstance(block, Tensor):
        return block.to(torch.float64, copy=True)
    # A copy: torch must not see a read-only buffer, and the caller's must not be written.
    return torch.from_numpy(np.array(block, dtype=np.float64))


class Dense:
    """Rows of an array: scaled by a power of two to at most 1, of unit length under cosine, less the points' mean.

    Distances do not change when one point is subtracted from all rows, so an offset common to all points
    costs no digits. Only a float32 copy is kept; float64 is made from the source, block by block.

    Args:
        X: [n, F], finite.
        largest: The largest magnitude of points and queries, for their scale.
        beside: The points of which these are queries, which then have their scale and mean.

    Attributes:
        low: [n, terms] float32.
        low_sq: [n] float64, the squared lengths of ``low``; ``squares`` in float32.
        reach: The length of the longest row.
    """

    def __init__(
        self,
        X: npt.NDArray[Any] | Tensor,
        largest: float = 1.0,
        *,
        cosine: bool = False,
        device: torch.device | None = None,
        beside: Dense | None = None,
    ) -> None:
        self.device = device if device is not None else X.device if isinstance(X, Tensor) else torch.device("cpu")
        # A numpy array stays as it is for a search on the CPU: it may be a memory map.
        if isinstance(X, Tensor):
            self.source: npt.NDArray[Any] | Tensor = X.to(self.device)
        else:
            self.source = X if self.device.type == "cpu" else torch.from_numpy(np.array(X)).to(self.device)
        self.cosine, self.n, self.terms = cosine, X.shape[0], X.shape[1] + cosine
        if beside is None:
            self.scale = 1.0 if cosine else power_of_two(largest)
            total = torch.zeros(self.terms, dtype=torch.float64, device=self.device)
            for _, block in self._blocks():
                total += block.sum(0)
            self.mean = total / self.n
        else:
            self.scale, self.mean = beside.scale, beside.mean
        self.low = torch.empty((self.n, self.terms), dtype=torch.float32, device=self.device)
        self.low_sq = torch.empty(self.n, dtype=torch.float64, device=self.device)
        for start, block in self._blocks():
            rows = slice(start, start + len(block))
            self.low[rows] = block.sub_(self.mean)
            self.low_sq[rows] = self.low[rows].double().square_().sum(1)
        self.squares = self.low_sq.float()
        self.reach = float(self.low_sq.amax().sqrt())

    def beside(self, queries: npt.NDArray[Any] | Tensor) -> Dense:
        """Queries in the scale and about the mean of these points."""
        return Dense(queries, cosine=self.cosine, device=self.device, beside=self)

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        for start, block in blocks(self.source):
            yield start, unit_rows(block) if self.cosine else block.mul_(self.scale)

    def _read(self, at: Tensor) -> Tensor:
        """Rows ``at`` [b] in float64, scaled and not centered."""
        rows = self.source[at] if isinstance(self.source, Tensor) else self.source[at.numpy()]
        block = to_float64(rows)
        return unit_rows(block) if self.cosine else block.mul_(self.scale)

    def products(self, query: Dense, at: Tensor) -> tuple[Tensor, Tensor]:
        """|x|² + |y|² - 2 x·y in float64, query rows x ``at`` against all rows y [b, n], and |x|² [b]."""
        out = torch.empty((len(at), self.n), dtype=torch.float64, device=self.device)
        x = query._read(at).sub_(self.mean)
        for start, block in self._blocks():
            y = block.sub_(self.mean)
            out[:, start : start + len(y)] = torch.addmm(y.square().sum(1), x, y.T, alpha=-2)
        own = x.square().sum(1)
        return out.add_(own.unsqueeze(1)), own

    def first_copies(self, many: int) -> Tensor:
        """Which rows are among the first ``many`` of all rows equal to them: [n] bool."""
        # -0.0 + 0.0 is 0.0
        rows = (row.tobytes() for _, block in blocks(self.source) for row in block.add_(0.0).cpu().numpy())
        return first_of_equal(rows, many).to(self.device)

    def squared(self, query: Dense, at: Tensor, to: Tensor) -> Tensor:
        """|x - y|² in float64 from differences, query rows ``at`` [b] against rows ``to`` [b, c]: [b, c]."""
        own = query.source[at] if isinstance(query.source, Tensor) else np.asarray(query.source[at.numpy()])
        return squared_distances(self.source, own, to, unit=self.cosine).mul_(self.scale**2)


def squared_distances(points: Any, queries: Any, to: Tensor, *, unit: bool = False) -> Tensor:
    """|x - y|² in float64 from differences of query rows x [M, D] and rows ``to`` [M, c] of points: [M, c].

    Compiled for arrays and tensors on the CPU that are contiguous and of one type, float32 or float64. With ``unit``,
    rows are made to have length 1.
    """
    if not unit and (isinstance(points, np.ndarray) or points.device.type == "cpu") and backend() == "native":
        arrays = [part.numpy() if isinstance(part, Tensor) else part for part in (points, queries)]
        kind = arrays[0].dtype
        if kind in (np.float32, np.float64) and all(x.flags.c_contiguous and x.dtype == kind for x in arrays):
            out = torch.empty(to.shape, dtype=torch.float64)
            dtype = torch.float64 if kind == np.float64 else torch.float32
            sizes = (len(to), points.shape[1], to.shape[1])
            native.call("sobgnn_measure", dtype, *arrays, to.to(torch.int32), out, *sizes)
            return out
    step = max(1, _DIFFERENCE_BYTES.get(to.device.type, 2**22) // (8 * points.shape[1] * to.shape[1]))
    parts = []
    for start in range(0, max(1, len(to)), step):
        x, names = to_float64(queries[start : start + step]), to[start : start + step].long()
        y = to_float64(points[names.flatten() if isinstance(points, Tensor) else names.flatten().numpy()])
        x, y = (unit_rows(x), unit_rows(y)) if unit else (x, y)
        parts.append(y.view(*names.shape, x.shape[1]).sub_(x.unsqueeze(1)).square_().sum(2))
    return torch.cat(parts)


def distances(squared: npt.NDArray[np.float64], base: Any) -> npt.NDArray[np.float32]:
    """Distances in the caller's units from squared ones between rows of a :class:`Dense` or :class:`Sparse`."""
    # Unit vectors: |x - y|² = 2 (1 - cos), which keeps the digits that 1 - cos itself would lose.
    return (squared / 2 if base.cosine else np.sqrt(squared) / base.scale).astype(np.float32)


def power_of_two(largest: float) -> float:
    """The power of two that brings ``largest`` into [1/2, 1): scaling by it rounds nothing."""
    return float(2.0 ** -float(np.frexp(largest)[1])) if largest > 0 else 1.0


def unit_rows(block: Tensor) -> Tensor:
    """Rows of length 1, and one more column, 1 for rows of zeros: at right angles to all the others."""
    top = block.abs().amax(1, keepdim=True)
    empty = top == 0
    block = block / top.masked_fill(empty, 1.0)  # by the largest entry first: squares of tiny rows vanish
    block /= block.square().sum(1, keepdim=True).sqrt_().masked_fill_(empty, 1.0)
    return torch.cat([block, empty.to(block.dtype)], 1)


def first_of_equal(rows: Iterable[bytes], many: int) -> Tensor:
    """Which rows are among the first ``many`` of those with the same bytes."""
    seen: Counter[bytes] = Counter()
    keep = []
    for row in rows:
        key = hashlib.blake2b(row, digest_size=16).digest()
        seen[key] += 1
        keep.append(seen[key] <= many)
    return torch.tensor(keep)
