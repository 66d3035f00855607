"""Columns whose cells identify rows, and whole numbers that are codes."""

from __future__ import annotations

import numpy as np
import polars as pl

from sobgnn.tables.columns.base import is_text

# Fewer rows than this are too few to distinguish an id from a number by content.
_LEAST_ROWS = 20
_ID_NAME = (
    r"(?i)^(?:(?:row|record|ticket|case|customer|user|order|item|sample|patient)[\s_-]?"
    r"(?:id|uuid|guid|nr|no|number|key|index|idx)|id|uuid|guid|unnamed: 0|row[ _]?names?|rowid|.*_id"
    r"|(?-i:.*[a-z]ID))\.?$"
)
# Names of numbers that are mostly ids, but may count something too: enough rows must confirm it.
_NUMBER_NAME = (
    r"(?i)^(?:(?:.*[\s_.-])?(?:id|nr|no|num|number|nummer|key)|.*(?:nummer|number)"
    r"|(?-i:.*[a-z](?:ID|Id|Nr|No|Key)))\.?$"
)
# Share of distinct values from which a column that otherwise looks like ids is one.
_NEARLY_ALL = 0.95
_UUID = r"^\{?[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?$"


def are_codes(text: pl.Series) -> bool:
    """Whether a text column holds codes such as 01067: only digits, usually of equal length, some with leading zeros.

    Numbers are not written this way, and the zeros would be lost. But if all begin with a zero and one is only zeros
    (00000), they are amounts in a field of fixed width. A few words among the codes are ignored.
    """
    known = text.drop_nulls()
    digits = known.filter(known.str.contains(r"^\d{2,}$"))
    if digits.len() < 0.9 * known.len() or known.filter(~known.str.contains(r"^\d{2,}$")).str.contains(r"\d").any():
        return False
    codes = digits.unique()
    width = codes.str.len_chars()
    padded = codes.str.contains(r"^0+[1-9]")
    amounts = codes.str.starts_with("0").all() and codes.str.contains(r"^0+$").any()
    return bool(padded.sum() > 1 and not amounts and 2 * (width == width.mode().max()).sum() > codes.len())


def identifies_rows(series: pl.Series) -> bool:
    """Whether :func:`looks_like_id`, or would but for a few cells that are blank or repeat others.

    Integers that repeat are ids only if their name suggests it: counts are nearly all distinct too.
    """
    if looks_like_id(series):
        return True
    distinct = series.drop_nulls().unique(maintain_order=True)
    if series.len() < _LEAST_ROWS or not _NEARLY_ALL * series.len() <= distinct.len() < series.len():
        return False
    if series.dtype.is_integer() or (is_text(series) and distinct.str.contains(r"^[+-]?\d{1,18}$").all()):
        return bool(pl.Series([series.name]).str.contains(f"{_ID_NAME}|{_NUMBER_NAME}")[0])
    return is_text(series) and looks_like_id(distinct)


def looks_like_id(series: pl.Series) -> bool:
    """Whether the cells only identify rows: all distinct, none blank, and numbered, of one shape, or named like ids.

    Numbers are ids if they are whole and fill their range nearly without gaps, have leading zeros, or if the column's
    name suggests it.
    """
    if series.len() < 3 or series.null_count() or series.dtype.is_float() or series.n_unique() < series.len():
        return False
    named = bool(pl.Series([series.name]).str.contains(_ID_NAME)[0])
    if series.dtype.is_integer() or (is_text(series) and series.str.contains(r"^[+-]?\d{1,18}$").all()):
        if named:
            return True
        number = series.cast(pl.Int64, strict=False)
        if number.null_count() or series.len() < _LEAST_ROWS:
            return False
        if pl.Series([series.name]).str.contains(_NUMBER_NAME)[0] or (is_text(series) and are_codes(series)):
            return True
        ordered = np.sort(number.to_numpy())
        return bool(ordered[-1] - ordered[0] < 1.05 * len(ordered))
    if not is_text(series):
        return False
    if series.str.contains(_UUID).all() or (named and not series.str.contains(r"\s").any()):
        return True
    if series.len() < _LEAST_ROWS or series.str.contains(r"^\d+[.,]\d+$").any():
        return False
    # One shape such as AB-9999 with a counter in it: constant letters and digits that differ.
    counter = series.str.extract(r"(\d{2,18})\D*$")
    fixed = series.str.replace(r"\d{2,18}(\D*)$", "#$1")
    return bool(not counter.null_count() and fixed.n_unique() == 1 and bool(series.str.contains(r"^\p{L}").all()))
