"""Labels as users give them, and which of them are unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def label_values(y: Any) -> npt.NDArray[Any]:
    """Labels as an array that keeps None, NaN and -1 apart from text, and masked entries as None."""
    values = np.asarray(y)
    if values.dtype.kind == "T":  # NumPy's variable-length strings
        values = values.astype(object)
    if values.dtype.kind in "US" and not hasattr(y, "dtype"):
        # NumPy converts everything in a list with strings to strings.
        values = np.array([*y, None], dtype=object)[:-1] if values.ndim == 1 else values
    if np.ma.is_masked(y):
        values = values.astype(object)
        values[np.ma.getmaskarray(y)] = None
    return values


# What NumPy and pandas turn a missing label among strings into.
BLANK_TEXTS = ("", "nan")


def unknown_labels(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which labels are unknown, [N]: -1, None, NaN, pandas' NA, and the texts "" and "nan".

    Arrays of strings turn -1 into the text "-1", which is unknown too, unless another text is a number.
    """
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values) | (values == -1))
    if values.dtype.kind in "iu":
        return np.asarray(values == -1)
    if values.dtype.kind not in "USO":
        return np.zeros(values.shape, bool)
    items = (np.char.decode(values, "latin-1") if values.dtype.kind == "S" else values).ravel().tolist()
    others = {item for item in items if isinstance(item, str)} - {"-1", *BLANK_TEXTS}
    blank = {*BLANK_TEXTS} if not others or any(map(_is_number, others)) else {"-1", *BLANK_TEXTS}
    return np.array([_is_unknown(item, blank) for item in items], bool).reshape(values.shape)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_unknown(item: Any, blank: set[str]) -> bool:
    if isinstance(item, str):
        return item in blank
    if isinstance(item, (int, float, np.integer, np.floating)) and not isinstance(item, bool):
        return bool(item == -1 or item != item)  # the latter of NaN
    return item is None or type(item).__name__ == "NAType"
