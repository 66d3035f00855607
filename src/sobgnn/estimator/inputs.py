"""Validation of X: numbers that scikit-learn accepts, small enough for finite sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

# Sums over all points and differences of values up to this size are finite.
_LARGEST = 1e300


def checked(estimator: BaseEstimator, X: Any, **options: Any) -> Any:
    """Validate X with scikit-learn, dense or CSR; errors are one line, without the array or other estimators' names."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError("X has masked entries. Impute or drop them: neighbors are undefined there.")
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn sums X, which may give inf - inf
            return validate_data(estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], **options)
    except TypeError as error:
        if not any(kind in str(error) for kind in ("DateTime64", "TimeDelta64", "Timestamp", "Timedelta")):
            raise
        raise TypeError(
            "X must hold numbers, but holds dates or times. Convert tables with sobgnn.TableEncoder."
        ) from error
    except ValueError as error:
        lines = str(error).splitlines()
        if lines[0].startswith(("Input X contains NaN", "Input X contains infinity")) and not sp.issparse(X):
            raise ValueError(_not_finite(X)) from error
        if str(error).startswith("could not convert string to float"):
            held = lines[0].partition(": ")[2]
            raise ValueError(
                f"X must hold numbers, but holds {held[:60]}. Convert tables with sobgnn.TableEncoder."
            ) from error
        if len(lines) < 2:
            raise
        about_names = lines[0].startswith(("The feature names should match", "Expected unique column names"))
        kept = [line for line in lines[1:] if line.startswith("Reshape") or (about_names and line.strip())]
        raise ValueError(_sentences([lines[0], *kept])) from error


def _not_finite(X: Any) -> str:
    """Which rows hold NaN or infinity, and what to do about them."""
    values = check_array(X, dtype=np.float64, ensure_all_finite=False)
    hole = np.isnan(values)
    what = "NaN" if hole.any() else "infinity or values too large"
    rows = np.flatnonzero((hole if hole.any() else ~np.isfinite(values)).any(axis=1))
    return (
        f"X contains {what} in {len(rows):,} row{'s' if len(rows) > 1 else ''} (first: row {rows[0]}). Impute or drop "
        "them: neighbors are undefined there. sobgnn.TableEncoder fills missing cells of a table."
    )


def _sentences(lines: Sequence[str]) -> str:
    """Join lines into one; list items, which begin with a dash, follow the line that introduces them."""
    said = lines[0].rstrip(":") if len(lines) == 1 else lines[0].rstrip()
    for line in lines[1:]:
        item = line.strip().removeprefix("- ")
        said += f" {item}" if said.endswith((":", ".", ",")) else f", {item}" if line.startswith("- ") else f". {item}"
    return said


def check_range(X: Any) -> None:
    """Raise if values are so large that their sums overflow."""
    values = X.data if sp.issparse(X) else X
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if largest > _LARGEST:
        raise ValueError(f"X must lie within ±{_LARGEST:g}, but reaches {largest:.3g}. Rescale it.")
