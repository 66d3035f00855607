"""The kind of a column, found by looking at its cells."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sobgnn.tables.categories import MOST_CATEGORIES, CategoryColumn, SetColumn, find_sets, spellings
from sobgnn.tables.columns import Column, is_text, text_values
from sobgnn.tables.dates import DateColumn, looks_like_dates
from sobgnn.tables.numbers import NumberColumn, NumberFormat, find_format
from sobgnn.tables.pictures import PictureColumn, names_pictures
from sobgnn.tables.text import ModelColumn, TextColumn, choose_analyzer
from sobgnn.tables.vectors import VectorColumn, as_lists

if TYPE_CHECKING:
    import polars as pl

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


@dataclass
class Choice:
    """The outcome for a column.

    Args:
        column: The fitted column, or ``None`` if it is left out.
        outcome: What it is, in a word or two: ``number``, ``id``, ``constant``, …
        said: What users may not expect.
        blank: Cells of a number column that were filled with its median.
    """

    column: Column | None
    outcome: str
    said: list[str] = field(default_factory=list)
    blank: int = 0


@dataclass(frozen=True)
class Rules:
    """What the user specified, and what the whole table shows.

    Args:
        text: Columns that are text, whatever they look like.
        text_model: Folder of a text model, for columns of words.
        image_folder: Folder that names of pictures are relative to, or ``None``.
        image_model: File of a model for pictures.
        decimal: The decimal sign for columns that do not determine their own.
        components: Maximum number of coordinates of a text column; ``None`` for the usual number.
        seed: Seed of the SVD.
        keep_ids: Whether columns that look like ids are used.
    """

    text: tuple[str, ...] = ()
    text_model: str | Path | None = None
    image_folder: str | Path | None = None
    image_model: str | Path | None = None
    decimal: str | None = None
    components: int | None = None
    seed: int = 0
    keep_ids: bool = False


def choose_column(series: pl.Series, rules: Rules) -> Choice:
    """The fitted column and the name of its kind."""
    import polars as pl

    if series.name in rules.text:
        return _text(series, text_values(series.cast(pl.String, strict=False)), rules)
    if rules.image_folder is not None and names_pictures(series, Path(rules.image_folder)):
        seen, said = PictureColumn.fit(series, Path(rules.image_folder), rules.image_model)
        return Choice(seen, "pictures", said)
    if series.dtype == pl.Null or series.null_count() == series.len():
        return Choice(None, "empty")
    if series.dtype.is_nested():
        return _nested(series)
    if series.dtype == pl.Binary:
        return Choice(None, "bytes")
    if series.dtype.is_temporal() and series.dtype != pl.Duration:
        return _date(series)
    if not is_text(series):
        if not rules.keep_ids and identifies_rows(series):
            return Choice(None, "id")
        if series.dtype.is_integer() and looks_like_dates(text_values(series)):
            return _date(series)
        return _number(series, NumberFormat(truth=series.dtype == pl.Boolean))
    text = text_values(series)
    if text.null_count() == text.len():
        return Choice(None, "empty")
    distinct = text.drop_nulls().n_unique()
    if distinct == 1 and not text.null_count():
        return Choice(None, "constant")
    if not rules.keep_ids and identifies_rows(text):
        return Choice(None, "id")
    if distinct > 2 and looks_like_dates(text):
        return _date(series)
    code = are_codes(text)
    style = None if code else find_format(text, rules.decimal)
    if style is not None:
        return _number(series, style[0])
    if as_lists(series) is not None:
        return _nested(series)
    if looks_like_dates(text):
        return _date(series)
    said = ["whole numbers with leading zeros are codes, read as text and not as numbers"] if code else []
    sign = find_sets(text) if distinct > 2 else None
    if sign is not None and distinct > MOST_CATEGORIES // 2:
        held = SetColumn.fit(series, sign, rare_below(series.len()))
        return Choice(held, "set" if held else "constant")
    if distinct <= MOST_CATEGORIES and not _hardly_repeats(text, distinct):
        category = CategoryColumn.fit(series, rare_below(series.len()))
        if category and spellings(text):
            said = [*said, "values that differ only in capitals are merged"]
        return Choice(category, "categories" if category else "constant", said if category else [])
    found = _text(series, text, rules)
    return replace(found, said=said) if found.column else found


def _hardly_repeats(text: pl.Series, distinct: int) -> bool:
    """Whether values are few but mostly distinct: text of a small table, not categories."""
    if 2 * distinct <= text.len() - text.null_count():
        return False
    return distinct > 8 or (distinct > 2 and choose_analyzer(text) == "words")


def rare_below(rows: int) -> int:
    """Values in fewer rows than this are rare."""
    return 1 if rows < 50 else max(2, rows // 1000)


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
    import polars as pl

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
    import polars as pl

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


def _number(series: pl.Series, style: NumberFormat) -> Choice:
    column, said, blank = NumberColumn.fit(series, style)
    if column is not None and style.decimal == "," and not style.plain and text_values(series).str.contains(",").any():
        said = ["decimal commas", *said]
    if column is not None and style.decimal == "," and text_values(series).str.contains(r"^-?\d+(?:\.\d{3})+$").any():
        said = ["dots separate thousands", *said]
    if column is not None and (style.unit or style.currency):
        said = [f"unit {style.unit or style.currency!r} removed", *said]
    if column is not None and style.multiples:
        said = ["k, M and the like multiply numbers", *said]
    outcome = "number" if column else "constant" if blank < series.len() else "too large"
    return Choice(column, outcome, said, blank)


def _date(series: pl.Series) -> Choice:
    column, said = DateColumn.fit(series)
    return Choice(column, "date" if column else "constant", said)


def _nested(series: pl.Series) -> Choice:
    import polars as pl

    if as_lists(series) is not None:
        column, said = VectorColumn.fit(series)
        return Choice(column, "vectors" if column else said[0] if said else "constant", said if column else [])
    if isinstance(series.dtype, pl.List) and series.dtype.inner in (pl.String, pl.Categorical, pl.Enum):
        held = SetColumn.fit(series, "", rare_below(series.len()))
        return Choice(held, "set" if held else "constant")
    return Choice(None, "lists of other things")


def _text(series: pl.Series, text: pl.Series, rules: Rules) -> Choice:
    if text.drop_nulls().n_unique() < 2:
        return Choice(None, "constant" if text.drop_nulls().len() else "empty")
    analyzer = choose_analyzer(text)
    if rules.text_model is not None and (analyzer == "words" or series.name in rules.text):
        return Choice(ModelColumn.fit(text.rename(series.name), rules.text_model), "text model")
    column = TextColumn.fit(text.rename(series.name), analyzer, rules.components, rules.seed)
    return Choice(column, "text" if analyzer == "words" else "short text") if column else Choice(None, "constant")
