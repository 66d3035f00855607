"""Conversion of pandas, polars, dictionaries and arrays to polars frames that every rule can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from sobgnn.tables.columns.names import distinct_names


def as_frame(data: Any) -> pl.DataFrame:
    """A polars frame with distinct text names; structs become one column per field (``a.b``).

    Args:
        data: A polars or pandas DataFrame, a dictionary of columns, or a two-dimensional array.
    """
    data = data.collect() if isinstance(data, pl.LazyFrame) else data
    pandas = type(data).__module__.split(".")[0] == "pandas"
    if isinstance(data, pl.Series) or (pandas and hasattr(data, "to_frame")):
        data = data.to_frame()
    names: list[Any]
    if isinstance(data, pl.DataFrame):
        names, columns = list(data.columns), data.get_columns()
    elif pandas and hasattr(data, "columns"):
        names = list(data.columns)
        columns = [_from_pandas(data.iloc[:, place]) for place in range(len(names))]
    elif isinstance(data, Mapping):
        names, columns = list(data), [_from_values(values) for values in data.values()]
    elif isinstance(data, np.ndarray) and data.ndim == 2:
        names, columns = list(range(data.shape[1])), [_from_values(column) for column in data.T]
    else:
        raise TypeError(
            "A table must be a pandas or polars DataFrame, a dictionary of columns or an array [rows, columns], "
            f"but got {type(data).__name__}."
        )
    if len({column.len() for column in columns}) > 1:
        lengths = ", ".join(f"{name}: {column.len()}" for name, column in zip(names, columns, strict=True))
        raise ValueError(f"Columns must have one length, but got {lengths[:200]}.")
    return _flat([column.rename(name) for column, name in zip(columns, distinct_names(names), strict=True)])


def _flat(columns: list[pl.Series]) -> pl.DataFrame:
    out: list[pl.Series] = []
    waiting = list(reversed(columns))
    while waiting:
        column = waiting.pop()
        if isinstance(column.dtype, pl.Struct):
            fields = column.struct.unnest()
            waiting += [fields[name].rename(f"{column.name}.{name}") for name in reversed(fields.columns)]
        elif column.dtype == pl.Object:
            out.append(_from_values(column.to_list()).rename(column.name))
        else:
            out.append(column)
    names = distinct_names([column.name for column in out])
    return pl.DataFrame([column.rename(name) for column, name in zip(out, names, strict=True)])


def _from_pandas(column: Any) -> pl.Series:
    """Convert without pyarrow, which polars' own conversion needs for most kinds of columns."""
    kind = column.dtype
    if getattr(kind, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    elif not isinstance(kind, np.dtype) or kind.kind not in "biufmM":
        values = column.astype(object).to_numpy(dtype=object)
        return _from_values([None if gap else value for gap, value in zip(column.isna(), values, strict=True)])
    return _from_values(column.to_numpy())


def _from_values(values: Any) -> pl.Series:
    """A column of plain Python values; mixed ones become text."""
    if isinstance(values, pl.Series):
        return values
    if type(values).__module__.split(".")[0] == "pandas":
        return _from_pandas(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufmM" and values.ndim in (1, 2):
        if values.dtype.kind in "mM":
            values = values.astype(f"{values.dtype.kind}8[us]")
        return pl.Series(values.astype(np.float32) if values.dtype == np.float16 else values)
    items = [_plain(value) for value in values]
    kinds = {type(item) for item in items if item is not None}
    huge = int in kinds and any(isinstance(item, int) and abs(item) > 2**62 for item in items)
    if kinds <= {bool, int, float} and not huge:
        if bool in kinds and len(kinds) > 1:
            items = [None if item is None else float(item) for item in items]
        return pl.Series(items, dtype=pl.Float64 if float in kinds else None, strict=False)
    if len(kinds) == 1 and kinds != {str}:
        try:
            # Polars would assume that the first dict has all keys.
            made = _struct(items) if kinds == {dict} else pl.Series(items)
            if made.dtype != pl.Object:
                return made
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            pass
    texts = [item if item is None or isinstance(item, str) else _text(item) for item in items]
    try:
        return pl.Series(texts, dtype=pl.String)
    except UnicodeError:  # a lone surrogate
        return pl.Series([None if item is None else _text(item) for item in items], dtype=pl.String)


def _struct(items: list[dict[str, Any] | None]) -> pl.Series:
    """Dicts as one series with a field for every key that occurs in any of them."""
    return pl.DataFrame([item or {} for item in items], infer_schema_length=None).to_struct()


def _plain(value: Any) -> Any:
    """A NumPy scalar or array as Python values; a float NaN stays NaN."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | set | frozenset):
        return sorted(map(str, value)) if isinstance(value, set | frozenset) else list(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value).encode("utf-8", "replace").decode("utf-8")
