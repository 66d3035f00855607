"""Validation of X: numbers that scikit-learn accepts, small enough for finite sums, and blank cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

# Sums over all points and differences of values up to this size are finite.
_LARGEST = 1e300


@dataclass(frozen=True)
class Filling:
    """How blank cells (NaN) of numeric columns are filled: with the column's median, and a column that marks them.

    Args:
        medians: float64 [F], of the cells that are there; 0 for a column that is blank throughout.
        marked: int64 [K], the columns that had blank cells in training; each gets a further column of 0 and 1.
    """

    medians: npt.NDArray[np.float64]
    marked: npt.NDArray[np.int64]

    @classmethod
    def of(cls, X: npt.NDArray[Any]) -> Filling | None:
        """Learned from X [N, F]; ``None`` without a blank cell."""
        blank = np.isnan(X)
        if not blank.any():
            return None
        medians = np.zeros(X.shape[1])
        for column in range(X.shape[1]):
            there = X[~blank[:, column], column]
            medians[column] = np.median(there) if len(there) else 0.0
        return cls(medians, np.flatnonzero(blank.any(axis=0)))

    def __call__(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """X [M, F] without blank cells, and the marks: [M, F + K]."""
        blank = np.isnan(X)
        return np.hstack([np.where(blank, self.medians, X), blank[:, self.marked]])

    def check(self) -> None:
        """Raise ValueError if the fields, which may be those of a file, are impossible."""
        width = len(self.medians)
        good = self.medians.ndim == self.marked.ndim == 1 and len(np.unique(self.marked)) == len(self.marked)
        if not good or not ((self.marked >= 0) & (self.marked < width)).all():
            raise ValueError("its medians and marked columns contradict each other")


def is_frame(X: Any) -> bool:
    """Whether X is a DataFrame of pandas or polars."""
    return type(X).__module__.split(".")[0] in ("pandas", "polars") and hasattr(X, "columns")


def checked_names(estimator: BaseEstimator, X: Any, *, reset: bool) -> None:
    """Check the columns of a frame, or remember them; errors are one line."""
    try:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    except ValueError as error:
        raise ValueError(_in_one_line(str(error))) from error


def checked(estimator: BaseEstimator, X: Any, **options: Any) -> Any:
    """Validate X with scikit-learn, dense or CSR; errors are one line, without the array or other estimators' names.

    Blank cells (NaN) of dense X are left.
    """
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan) if X.dtype.kind in "biuf" else X.filled()
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn sums X, which may give inf - inf
            finite: Any = True if sp.issparse(X) else "allow-nan"
            X = validate_data(
                estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=finite, **options
            )
    except TypeError as error:
        if not any(kind in str(error) for kind in ("DateTime64", "TimeDelta64", "Timestamp", "Timedelta")):
            raise
        raise TypeError("X must hold numbers, but holds dates or times. Pass it as a DataFrame.") from error
    except ValueError as error:
        first = str(error).splitlines()[0]
        if first.startswith("Input X contains infinity") and not sp.issparse(X):
            raise ValueError(_not_finite(X)) from error
        if first.startswith("could not convert string to float"):
            held = first.partition(": ")[2]
            raise ValueError(f"X must hold numbers, but holds {held[:60]}. Pass it as a DataFrame.") from error
        raise ValueError(_in_one_line(str(error))) from error
    return X


def check_range(X: Any) -> None:
    """Raise if values are so large that their sums overflow."""
    values = X.data if sp.issparse(X) else X
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if largest > _LARGEST:
        raise ValueError(f"X must lie within ±{_LARGEST:g}, but reaches {largest:.3g}. Rescale it.")


def _not_finite(X: Any) -> str:
    """Which rows hold infinity, and what to do about them."""
    values = check_array(X, dtype=np.float64, ensure_all_finite=False)
    rows = np.flatnonzero(np.isinf(values).any(axis=1))
    which = f"{len(rows):,} row{'s' if len(rows) > 1 else ''} (first: row {rows[0]})" if len(rows) else "some rows"
    return f"X contains infinity or values too large in {which}. Make them NaN, which means blank, or drop the rows."


def _in_one_line(text: str) -> str:
    """An error of scikit-learn without the array that it shows."""
    lines = text.splitlines()
    about_names = lines[0].startswith(("The feature names should match", "Expected unique column names"))
    kept = [line for line in lines[1:] if line.startswith("Reshape") or (about_names and line.strip())]
    return _sentences([lines[0], *kept])


def _sentences(lines: Sequence[str]) -> str:
    """Join lines into one; list items, which begin with a dash, follow the line that introduces them."""
    said = lines[0].rstrip(":") if len(lines) == 1 else lines[0].rstrip()
    for line in lines[1:]:
        item = line.strip().removeprefix("- ")
        said += f" {item}" if said.endswith((":", ".", ",")) else f", {item}" if line.startswith("- ") else f". {item}"
    return said
