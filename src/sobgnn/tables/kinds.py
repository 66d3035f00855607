"""The kind of a column, found by looking at its cells: the first test of a list that takes it; and notes on all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from sobgnn.tables.columns.base import Choice, is_text, text_values
from sobgnn.tables.columns.category import CategoryColumn, SetColumn, find_sets
from sobgnn.tables.columns.date import DateColumn, looks_like_dates
from sobgnn.tables.columns.names import listed, listed_counts
from sobgnn.tables.columns.number import NumberColumn
from sobgnn.tables.columns.number_format import NumberFormat, find_format
from sobgnn.tables.columns.picture import PictureColumn
from sobgnn.tables.columns.text import MeaningColumn, TextColumn, choose_analyzer
from sobgnn.tables.columns.vector import VectorColumn, as_lists
from sobgnn.tables.meaning import ImageModel
from sobgnn.tables.models import AskedModel, characters
from sobgnn.tables.pictures import names_pictures

if TYPE_CHECKING:
    from sobgnn.tables.encoder import TableEncoder


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


@dataclass(frozen=True)
class Rules:
    """What the user specified, and what the whole table shows."""

    settings: TableEncoder  # for its parameters
    text_model: AskedModel
    image_model: ImageModel | None
    decimal: str | None  # the decimal sign for columns that do not determine their own
    keep_ids: bool = False  # whether columns that look like ids are used


@dataclass
class Candidate:
    """A column whose kind is looked for."""

    series: pl.Series
    rules: Rules

    @cached_property
    def cells(self) -> pl.Series:
        """The cells, those of text without spaces around them and null for blank ones."""
        return text_values(self.series) if is_text(self.series) else self.series

    @cached_property
    def text(self) -> pl.Series:
        """The cells as text, null for blank ones."""
        return self.cells if is_text(self.series) else text_values(self.series.cast(pl.String, strict=False))

    @cached_property
    def distinct(self) -> int:
        """Number of distinct cells that are not blank."""
        return self.text.drop_nulls().n_unique()

    @cached_property
    def has_codes(self) -> bool:
        """Whether cells are digits with leading zeros: codes, and not numbers."""
        return are_codes(self.text)

    @property
    def rare_below(self) -> int:
        """Values in fewer rows than this are rare."""
        rows = self.series.len()
        return 1 if rows < 50 else max(2, rows // 1000)


def choose_column(series: pl.Series, rules: Rules) -> Choice:
    """The fitted column and the name of its kind, from the first test that takes it."""
    column = Candidate(series, rules)
    return next(choice for test in TESTS if (choice := test(column)) is not None)


def _asked_text(column: Candidate) -> Choice | None:
    return _text(column) if column.series.name in column.rules.settings.text else None


def _pictures(column: Candidate) -> Choice | None:
    folder = column.rules.settings.image_folder
    if folder is None or not names_pictures(column.series, Path(folder)):
        return None
    return PictureColumn.fit(column.series, Path(folder), column.rules.image_model)


def _empty(column: Candidate) -> Choice | None:
    return Choice(None, "empty") if column.cells.null_count() == column.cells.len() else None


def _nested(column: Candidate) -> Choice | None:
    series = column.series
    if not series.dtype.is_nested():
        return Choice(None, "bytes") if series.dtype == pl.Binary else None
    lists = as_lists(series)
    if lists is not None:
        return VectorColumn.fit(series, lists)
    if isinstance(series.dtype, pl.List) and series.dtype.inner in (pl.String, pl.Categorical, pl.Enum):
        return SetColumn.fit(series, "", column.rare_below, column.rules.settings.max_categories)
    return Choice(None, "lists of other things")


def _moments(column: Candidate) -> Choice | None:
    kind = column.series.dtype
    return DateColumn.fit(column.series) if kind.is_temporal() and kind != pl.Duration else None


def _id(column: Candidate) -> Choice | None:
    return Choice(None, "id") if not column.rules.keep_ids and identifies_rows(column.cells) else None


def _dates(column: Candidate) -> Choice | None:
    possible = is_text(column.series) or column.series.dtype.is_integer()
    return DateColumn.fit(column.series) if possible and looks_like_dates(column.text) else None


def _numbers(column: Candidate) -> Choice | None:
    if not is_text(column.series):
        return NumberColumn.fit(column.series, NumberFormat(truth=column.series.dtype == pl.Boolean))
    found = None if column.has_codes else find_format(column.text, column.rules.decimal)
    return None if found is None else NumberColumn.fit(column.series, found[0])


def _written_vectors(column: Candidate) -> Choice | None:
    lists = as_lists(column.series)
    return None if lists is None else VectorColumn.fit(column.series, lists)


def _sets(column: Candidate) -> Choice | None:
    most = column.rules.settings.max_categories
    if column.distinct <= max(2, most // 2):
        return None
    sign = find_sets(column.text, most)
    return None if sign is None else SetColumn.fit(column.series, sign, column.rare_below, most)


def _categories(column: Candidate) -> Choice | None:
    if column.distinct > column.rules.settings.max_categories or _hardly_repeats(column.text, column.distinct):
        return None
    choice = CategoryColumn.fit(column.series.name, column.text, column.rare_below)
    return _with_code_note(column, choice)


def _other_text(column: Candidate) -> Choice | None:
    return _with_code_note(column, _text(column))


def _with_code_note(column: Candidate, choice: Choice) -> Choice:
    if choice.column is not None and column.has_codes:
        choice.notes.insert(0, "whole numbers with leading zeros are codes, read as text and not as numbers")
    return choice


def _text(column: Candidate) -> Choice:
    rules, text = column.rules, column.text
    if column.distinct < 2:
        return Choice(None, "constant" if column.distinct else "empty")
    analyzer = choose_analyzer(text)
    made = TextColumn.fit(text, analyzer, rules.settings.n_components, int(rules.settings.random_state))
    if analyzer == "words" or text.name in rules.settings.text:
        model = rules.text_model.of(characters(text.to_list()))
        if model is not None:
            return Choice(MeaningColumn.fit(text, model, made), "text model")
    return Choice(made, "text" if analyzer == "words" else "short text") if made else Choice(None, "constant")


# A test takes a column by returning its outcome, and leaves it to the next by returning None. The last takes all.
TESTS: tuple[Callable[[Candidate], Choice | None], ...] = (
    _asked_text, _pictures, _empty, _nested, _moments, _id, _dates, _numbers, _written_vectors,
    _sets, _categories, _other_text,
)  # fmt: skip


def _hardly_repeats(text: pl.Series, distinct: int) -> bool:
    """Whether values are few but mostly distinct: text of a small table, not categories."""
    if 2 * distinct <= text.len() - text.null_count():
        return False
    return distinct > 8 or (distinct > 2 and choose_analyzer(text) == "words")


# What a note says of columns of a kind that are used, and of those that are left out.
_USED = {
    "text": "Text, by its words",
    "short text": "Short text, by its characters",
    "date": "Dates",
    "categories": "One-hot encoded",
    "set": "Lists of values, one feature each",
    "vectors": "Vectors",
    "pictures": "Pictures",
}
_LEFT_OUT = {
    "ids": ("id",),
    "constant or empty": ("constant", "empty"),
    **{kind: (kind,) for kind in ("bytes", "vectors of different lengths", "lists of other things", "too large")},
}


def column_notes(choices: dict[str, Choice]) -> list[str]:
    """One sentence for each thing that users may not expect, from the choices made for the columns, by name."""
    widths = {name: len(c.column.feature_names()) if c.column else 0 for name, c in choices.items()}
    notes = []
    for kind, words in _USED.items():
        same = [(name, widths[name]) for name, choice in choices.items() if choice.outcome == kind]
        notes += [f"{words}: {listed_counts(same, 'feature')}."] if same else []
    for name, choice in choices.items():
        if isinstance(choice.column, MeaningColumn):
            features = listed_counts([(name, widths[name])], "feature")
            notes.append(f"Text, by words and meaning ({choice.column.model.name}): {features}.")
    for words, kinds in _LEFT_OUT.items():
        left = [name for kind in kinds for name, choice in choices.items() if choice.outcome == kind]
        notes += [f"Left out, {words}: {listed(left)}."] if left else []
    filled = [(name, choice.blank) for name, choice in choices.items() if choice.blank and choice.column]
    if filled:
        notes.append(f"Missing values filled with the column's median: {listed_counts(filled, 'cell')}.")
    return notes + [
        f"Column {listed([n])}: {'; '.join(choice.notes)}." for n, choice in choices.items() if choice.notes
    ]


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
