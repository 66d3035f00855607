"""Columns of a table to features and classes, by rules that are written down and can be applied again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

# Cells that hold nothing. A label cell with one of these is an unlabelled row.
BLANKS = ("", "NA", "N/A", "NaN", "nan", "null", "?")
# A text column with more distinct values than this is a name or free text, and says little one-hot encoded.
MOST_CATEGORIES = 20
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Column:
    """One column that is used: a number, or text with few distinct values that becomes 0/1 features.

    Args:
        name: As in the file.
        kind: ``"number"`` or ``"categories"``.
        fill: What a missing number becomes: the median of the column where the model was fitted.
        categories: The values that become one feature each; any other value is all zeros.
    """

    name: str
    kind: Literal["number", "categories"]
    fill: float = 0.0
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) if self.kind == "categories" else 1


@dataclass(frozen=True)
class Encoding:
    """How rows of a table became features: enough to encode another file in the same way.

    Args:
        columns: Columns used, in the order of the features.
        named: Whether names are from the file. Arrays have none: there a table's columns are taken in order.
        label: Name of the label column, which a file for prediction may have or lack.
        id: Name of the column that identifies rows, or ``None``.
    """

    columns: tuple[Column, ...]
    named: bool = True
    label: str | None = None
    id: str | None = None

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(column.width for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Encoding:
        """The encoding that :meth:`to_json` wrote; a ValueError says what is wrong with anything else."""
        try:
            columns = tuple(_column_from_json(entry) for entry in content["columns"])
            named, label, identity = content["named"], content["label"], content["id"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"The table's encoding is damaged: {error}. Fit the run again.") from None
        known = isinstance(named, bool) and all(v is None or isinstance(v, str) for v in (label, identity))
        if not known or not columns:
            raise ValueError("The table's encoding is damaged: a field has the wrong type. Fit the run again.")
        return cls(columns, named, label, identity)

    def features(self, frame: pl.DataFrame, first_row: int = 0) -> npt.NDArray[np.float32]:
        """Features float32 [rows, width] of a table with this encoding's columns; others are ignored.

        ``first_row`` is the table's place in its file, for error messages that count rows from 0.
        """
        frame = clean_names(frame) if self.named else self._in_order(frame)
        missing = [column.name for column in self.columns if column.name not in frame.columns]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ValueError(
                f"Missing column {', '.join(map(repr, missing[:3]))}{more}: the model was fitted with it. "
                f"The file has {_listed(frame.columns)}."
            )
        out = np.zeros((frame.height, self.width), dtype=np.float32)
        at = 0
        for column in self.columns:
            series = frame[column.name]
            if column.kind == "number":
                out[:, at] = number_values(series, first_row).fill_null(column.fill).to_numpy()
            else:
                text = text_values(series)
                for offset, category in enumerate(column.categories):
                    out[:, at + offset] = (text == category).fill_null(False).to_numpy()
            at += column.width
        return out

    def _in_order(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The table's columns under this encoding's names, for a model fitted on an array."""
        frame = clean_names(frame)
        frame = frame.drop([name for name in (self.id, *label_names(frame.columns)) if name in frame.columns])
        if frame.width != len(self.columns):
            raise ValueError(
                f"The model was fitted on {len(self.columns)} unnamed features, but the file has {frame.width} "
                "columns besides label and id. Give it the same features in the same order."
            )
        return frame.rename(dict(zip(frame.columns, (c.name for c in self.columns), strict=True)))


def choose_encoding(
    frame: pl.DataFrame, label: str | None, identity: str | None, drop: Sequence[str] = ()
) -> tuple[Encoding, list[str]]:
    """The encoding of a table with cleaned names, and one sentence for each thing that a reader may not expect."""
    columns: list[Column] = []
    outcome: dict[str, list[str]] = {"constant": [], "many": [], "other": []}
    filled: list[str] = []
    one_hot: list[str] = []
    for name in frame.columns:
        if name in (label, identity) or name in drop:
            continue
        series = frame[name]
        number = _as_number(series)
        if number is not None:
            known = number.drop_nulls()
            if known.n_unique() < 2:
                outcome["constant"].append(name)
                continue
            if number.null_count():
                filled.append(f"{name} ({number.null_count():,})")
            columns.append(Column(name, "number", float(np.median(known.to_numpy()))))
            continue
        if not _is_text(series):
            outcome["other"].append(name)
            continue
        values = text_values(series).drop_nulls().unique().sort().to_list()
        if len(values) < 2:
            outcome["constant"].append(name)
        elif len(values) > MOST_CATEGORIES:
            outcome["many"].append(name)
        else:
            columns.append(Column(name, "categories", categories=tuple(values)))
            one_hot.append(f"{name} ({len(values)})")
    notes = []
    if one_hot:
        notes.append(f"One-hot encoded: {_listed(one_hot)}.")
    if outcome["many"]:
        notes.append(f"Dropped, text with more than {MOST_CATEGORIES} distinct values: {_listed(outcome['many'])}.")
    if outcome["constant"]:
        notes.append(f"Dropped, constant or empty: {_listed(outcome['constant'])}.")
    if outcome["other"]:
        notes.append(f"Dropped, neither numbers nor text: {_listed(outcome['other'])}.")
    if filled:
        notes.append(f"Missing values filled with the column's median: {_listed(filled)}.")
    if not columns:
        raise ValueError(
            f"No column is left to learn from: {_listed(frame.columns)} hold labels, ids, constants or free text. "
            "Give at least one column of numbers."
        )
    return Encoding(tuple(columns), True, label, identity), notes


def parse_labels(series: pl.Series, name: str) -> tuple[npt.NDArray[np.int64], list[str] | list[int], list[str]]:
    """Codes [N] with -1 for unlabelled rows, the classes they stand for, and notes.

    Whole numbers stay numbers, anything else is text. Blank cells are unlabelled, and so is -1 among whole
    numbers, unless only one other class would be left: -1 and 1 are then taken as the two classes.
    """
    import polars as pl

    if series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object):
        raise ValueError(f"The label column {name!r} must hold text or numbers, but holds {series.dtype}.")
    text = text_values(series)
    known = text.drop_nulls()
    if not known.len():
        raise ValueError(f"The label column {name!r} is empty. Give at least one row of each class its label.")
    number = known.cast(pl.Float64, strict=False)
    distinct: list[Any] = known.unique().sort().to_list()
    notes: list[str] = []
    whole = not number.null_count() and bool(((number == number.round()) & (number.abs() < 2**53)).all())
    if not number.null_count() and not whole and len(distinct) > MOST_CATEGORIES:
        raise ValueError(
            f"The label column {name!r} holds {len(distinct):,} distinct fractions, which look like measurements. "
            "Name a column of classes with --label."
        )
    if len(distinct) > MOST_CATEGORIES and 2 * len(distinct) > known.len():
        raise ValueError(
            f"The label column {name!r} holds {len(distinct):,} distinct values in {known.len():,} labelled rows, "
            "which look like ids. Name a column of classes with --label."
        )
    keys = text
    if whole:
        keys = text.cast(pl.Float64).cast(pl.Int64)
        distinct = keys.drop_nulls().unique().sort().to_list()
        others = [value for value in distinct if value != -1]
        if len(others) < len(distinct):
            if len(others) > 1:
                notes.append(f"Rows with label -1 count as unlabelled: {(keys == -1).sum():,}.")
                keys, distinct = keys.replace(-1, None), others
            else:
                distinct = [str(value) for value in distinct]
                keys = keys.cast(pl.String)
        elif distinct[0] < 0:  # the estimator keeps negative whole numbers for itself
            distinct = [str(value) for value in distinct]
            keys = keys.cast(pl.String)
    if len(distinct) < 2:
        raise ValueError(
            f"The label column {name!r} holds a single class, {distinct[0]!r}. At least two are needed to tell apart."
        )
    codes = keys.replace_strict(distinct, list(range(len(distinct))), default=-1, return_dtype=pl.Int64)
    return codes.to_numpy().astype(np.int64), distinct, notes


def number_values(series: pl.Series, first_row: int = 0) -> pl.Series:
    """A Float64 series, null where a cell is blank or not finite; a ValueError names a cell that is no number."""
    import polars as pl

    number = _as_number(series)
    if number is not None:
        return number
    if not _is_text(series):
        raise ValueError(f"Column {series.name!r} must hold numbers, but holds {series.dtype}.")
    text = text_values(series)
    wrong = (text.is_not_null() & text.cast(pl.Float64, strict=False).is_null()).arg_true()
    row = int(wrong[0])
    raise ValueError(
        f"Column {series.name!r} must hold numbers, but row {first_row + row} holds {shortened(text[row])}. "
        "Correct it, or leave the cell empty."
    )


def text_values(series: pl.Series) -> pl.Series:
    """A String series without surrounding spaces, null where a cell is blank."""
    import polars as pl

    text = series.cast(pl.String, strict=False).str.strip_chars()
    blank = text.is_in(list(BLANKS)).fill_null(False)
    filled: pl.Series = text.zip_with(~blank, pl.Series([None], dtype=pl.String))
    return filled


def clean_names(frame: pl.DataFrame) -> pl.DataFrame:
    """The same table with spaces around column names removed, where that keeps them distinct."""
    names = [name.strip() for name in frame.columns]
    return frame.rename(dict(zip(frame.columns, names, strict=True))) if len(set(names)) == len(names) else frame


def label_names(columns: Sequence[str]) -> list[str]:
    """Columns that are labels by their name: label, y, class or target, in this order of preference."""
    lower = {name.strip().lower(): name for name in reversed(columns)}
    return [lower[name] for name in ("label", "y", "class", "target") if name in lower]


def shortened(value: object, most: int = 40) -> str:
    """The value's repr, cut to fit into a line."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _as_number(series: pl.Series) -> pl.Series | None:
    """Float64 with nulls for what is missing or not finite, or ``None`` where a cell is not a number."""
    import polars as pl

    if series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null):
        number = series.cast(pl.Float64, strict=False)
    elif _is_text(series):
        text = text_values(series)
        number = text.cast(pl.Float64, strict=False)
        if number.null_count() != text.null_count():
            return None
    else:
        return None
    finite = number.is_not_null() & (number.abs() <= _LARGEST)
    known: pl.Series = number.zip_with(finite.fill_null(False), pl.Series([None], dtype=pl.Float64))
    return known


def _is_text(series: pl.Series) -> bool:
    import polars as pl

    return series.dtype in (pl.String, pl.Categorical, pl.Enum)


def _listed(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(shortened(name)[1:-1] for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _column_from_json(entry: dict[str, Any]) -> Column:
    name, kind, fill, categories = entry["name"], entry["kind"], entry["fill"], entry["categories"]
    plain = isinstance(name, str) and isinstance(categories, list) and all(isinstance(c, str) for c in categories)
    number = isinstance(fill, int | float) and abs(fill) <= _LARGEST
    if not plain or not number or kind not in ("number", "categories"):
        raise TypeError(f"column {shortened(name)}")
    return Column(name, kind, float(fill), tuple(categories))
