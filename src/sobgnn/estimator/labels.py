"""Labels as people give them, with holes, to classes and codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets

UNLABELLED = -1


def encode_labels(y: Any, num_points: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The classes, sorted, and each point's class as an index into them, -1 where it is unlabelled.

    Args:
        y: [N]. Unlabelled is -1 (a number, not a text), None, NaN, or pandas' NA.
        num_points: N.
    """
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        import warnings

        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Use y.ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
        values = values.ravel()
    if values.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {values.shape} instead.")
    if values.size != num_points:
        raise ValueError(f"y must have one entry per row of X, but got {values.size} for {num_points} rows.")
    known = ~_missing(values)
    if not known.any():
        raise ValueError(
            f"y has no labelled sample: all {values.size} entries are -1, None or NaN. Give at least one sample of "
            "each class its label."
        )
    given = _uniform(values[known])
    check_classification_targets(given)
    classes, inverse = np.unique(given, return_inverse=True)
    codes = np.full(values.size, UNLABELLED, np.int64)
    codes[known] = inverse
    return classes, codes


def class_weights(how: Any, classes: npt.NDArray[Any], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The weight of each label [L], by its class: all 1, "balanced" by how rare classes are, or as a dict says."""
    counts = np.bincount(codes, minlength=len(classes))
    if how is None:
        return np.ones(len(codes))
    if isinstance(how, str):
        if how != "balanced":
            raise ValueError(f'`class_weight` must be None, "balanced" or a dict, but got {how!r}.')
        return np.asarray((len(codes) / (len(classes) * counts))[codes], dtype=np.float64)
    unknown = [key for key in how if key not in set(classes.tolist())]
    if unknown:
        raise ValueError(f"`class_weight` must name classes of y, but {unknown} are not among them.")
    return np.array([float(how.get(name, 1.0)) for name in classes.tolist()])[codes]


def _missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values) | (values == UNLABELLED))
    if values.dtype.kind in "iu":
        return np.asarray(values == UNLABELLED)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    return np.array([_is_missing(value) for value in values], dtype=bool)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ == "NAType":
        return True
    if isinstance(value, (float, np.floating)) and np.isnan(value):
        return True
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool) and value == -1


def _uniform(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Object entries as one type: all texts, all numbers or all booleans."""
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise ValueError("Input y contains infinity. Labels are names or numbers; unlabelled is -1, None or NaN.")
    if given.dtype.kind == "f" and np.array_equal(given, np.rint(given)) and np.abs(given).max() < 2**53:
        return given.astype(np.int64)  # whole numbers became floats only to make room for NaN
    if given.dtype.kind != "O":
        return given
    if all(isinstance(value, str) for value in given):
        return given.astype(str).astype(object)
    if all(isinstance(value, (bool, np.bool_)) for value in given):
        return given.astype(bool)
    if all(isinstance(value, (int, float, np.integer, np.floating)) for value in given):
        return _uniform(given.astype(np.float64))
    kinds = sorted({type(value).__name__ for value in given})
    raise TypeError(f"Labels must be all texts or all numbers, but got a mix of {', '.join(kinds)}.")
