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
    if values.dtype.kind in "US":
        blank = np.asarray(np.isin(values, np.array(BLANK_TEXTS, dtype=values.dtype.kind)))
        texts = {value if isinstance(value, str) else value.decode("latin-1") for value in np.unique(values).tolist()}
        return blank | (values == np.array("-1", dtype=values.dtype.kind)) if _minus_one_is_none(texts) else blank
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    blank = np.array([_is_unknown(value) for value in values.ravel()], dtype=bool).reshape(values.shape)
    if _minus_one_is_none({value for value in values.ravel() if isinstance(value, str)}):
        blank |= np.array([isinstance(v, str) and v == "-1" for v in values.ravel()], bool).reshape(values.shape)
    return blank


def _minus_one_is_none(texts: set[str]) -> bool:
    """Whether "-1" is among texts that are not numbers."""
    others = texts - {"-1", *BLANK_TEXTS}
    return "-1" in texts and bool(others) and not any(_is_number(text) for text in others)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_unknown(value: Any) -> bool:
    if value is None or type(value).__name__ == "NAType" or (isinstance(value, str) and value in BLANK_TEXTS):
        return True
    if isinstance(value, (float, np.floating)) and np.isnan(value):
        return True
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool) and value == -1
