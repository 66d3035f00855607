"""Columns of few distinct values, one feature each; lists such as "a; b; c" as sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

from sobgnn.tables.columns.base import COMMON_BLANKS, Cells, Choice, Column, cells_of, is_text, text_values
from sobgnn.tables.columns.names import shortened

# Maximum numbers of features of a set, and of distinct values of one, as multiples of that of categories.
_MOST_FEATURES, _MOST_ITEMS = 4, 10
_SIGNS = (";", "|", ",", "/")
# Marks lists as JSON, Python and PostgreSQL write them: ["a", "b"], ['a', 'b'], {a,b}.
_BRACKETS = "[]"
_LISTED = r"^\[.*\]$|^\{[^:]*\}$"


@dataclass(frozen=True)
class CategoryColumn(Column):
    """One 0/1 feature per frequent value, and one for all rare values together.

    Words that differ only in capitals (ja, Ja, JA) are one value, in its most frequent spelling; single letters are
    kept apart. A blank cell is all zeros, or has its own feature if blanks are common. A value that was not seen when
    the encoder was fitted counts as rare; without rare values it is all zeros.
    """

    kind: ClassVar[str] = "categories"
    values: tuple[str, ...]  # frequent ones, sorted
    rare: bool  # whether there is a feature for the others
    flag: bool = False  # whether there is a feature for blank cells

    @classmethod
    def fit(cls, name: str, text: pl.Series, rare_below: int) -> Choice:
        """The column of some texts, null for blank cells: none if all cells are the same.

        Values in fewer rows than ``rare_below`` are rare, if there are at least two.
        """
        spelling = _spellings(text)
        spelled = (text.replace(spelling) if spelling else text).alias("value")
        counts = spelled.drop_nulls().value_counts(sort=False)
        number, value = counts["count"], counts["value"]
        few = bool((number < rare_below).sum() >= 2)
        kept = value.filter(number >= rare_below) if few else value
        if kept.len() == 0 and few:
            kept, few = value, False
        flag = text.null_count() >= COMMON_BLANKS * text.len() and text.null_count() > 0
        if not kept.len() or (kept.len() + few < 2 and not text.null_count()):
            return Choice(None, "constant")
        column = cls(name, tuple(kept.sort().to_list()), few, flag and kept.len() + few > 1)
        notes = ["values that differ only in capitals are merged"] if spelling else []
        return Choice(column, "categories", notes, column._codes(text))

    def parse(self, series: pl.Series) -> Cells:
        """The feature of each cell: -2 if it is blank, -1 if its value was never seen and there is none for rare ones.

        Cells that match exactly one value except for capitals or a trailing ".0" have that value: in pandas, a column
        of integers with a blank cell holds floats, and 1 becomes 1.0.
        """
        return self._codes(text_values(series))

    def _codes(self, text: pl.Series) -> Cells:
        folded: dict[str, list[str]] = {}
        for value in self.values:
            folded.setdefault(value.casefold(), []).append(value)
        odd = text.filter(~text.is_in(list(self.values))).drop_nulls().unique().to_list()
        meant = {cell: folded.get(cell.casefold(), []) for cell in odd if len(cell) > 1}
        for cell in odd:
            if cell.removesuffix(".0").removeprefix("-").isdecimal():
                meant[cell] = folded.get(cell.removesuffix(".0") if cell.endswith(".0") else f"{cell}.0", [])
        place = {value: number for number, value in enumerate(self.values)}
        place |= {cell: place[found[0]] for cell, found in meant.items() if len(found) == 1}
        unseen = len(self.values) if self.rare else -1
        code = text.replace_strict(list(place), list(place.values()), default=unseen, return_dtype=pl.Int64)
        filled = text.is_not_null().to_numpy()
        codes = np.where(filled, code.fill_null(unseen).to_numpy(), -2)
        return Cells(codes, filled, codes >= 0)

    def encode(self, values: npt.NDArray[np.int64]) -> Any:
        """Features float32 CSR [rows, width]."""
        blank = len(self.values) + self.rare if self.flag else -2
        place = np.where(values == -2, blank, values)
        rows = np.flatnonzero(place >= 0)
        ones = np.ones(rows.size, np.float32)
        return sp.csr_array((ones, (rows, place[rows])), shape=(len(values), len(self.feature_names())))

    def feature_names(self) -> list[str]:
        """The column's name with each value."""
        return [*_value_names(self.name, self.values, self.rare), *([f"{self.name} (blank)"] if self.flag else [])]


@dataclass(frozen=True)
class SetColumn(Column):
    """Cells that list several values: one 0/1 feature per frequent value, divided by the root of the cell's count."""

    kind: ClassVar[str] = "set"
    # The separator of values; "[]" if they are written as ["a", "b"], ['a', 'b'] or {a,b}, empty if cells are lists.
    sign: str
    values: tuple[str, ...]  # frequent ones, sorted
    rare: bool  # whether there is a feature for the others

    @classmethod
    def fit(cls, series: pl.Series, sign: str, rare_below: int, most_categories: int) -> Choice:
        """The fitted column: of the values in at least ``rare_below`` cells the most frequent become features."""
        most = _MOST_FEATURES * most_categories
        lists = _item_lists(series, sign)
        counts = _item_table(lists)["item"].value_counts()
        if not counts.height:
            return Choice(None, "constant")
        counts = counts.sort(["count", "item"], descending=[True, False])
        kept = counts.filter(pl.col("count") >= rare_below).head(most)
        kept = kept if kept.height else counts.head(most)
        values = tuple(kept["item"].sort().to_list())
        column = cls(series.name, sign, values, kept.height + 1 < counts.height)
        return Choice(column, "set", cells=cells_of(lists))

    def parse(self, series: pl.Series) -> Cells:
        """Lists of values."""
        lists = _item_lists(series, self.sign)
        return cells_of(lists)

    def encode(self, values: pl.Series) -> Any:
        """Features float32 CSR [rows, width]."""
        table = _item_table(values)
        places, width = list(range(len(self.values))), len(self.values) + self.rare
        others = len(self.values) if self.rare else -1
        code = table["item"].replace_strict(list(self.values), places, default=others, return_dtype=pl.Int32).to_numpy()
        kept = code >= 0
        ends = np.cumsum([0, *np.bincount(table["row"].to_numpy()[kept], minlength=values.len())], dtype=np.int32)
        # A value that a cell repeats counts once.
        made = sp.csr_array((np.ones(ends[-1], np.float32), code[kept], ends), shape=(values.len(), width))
        made.sum_duplicates()
        number = np.diff(made.indptr)
        made.data = np.repeat(1 / np.sqrt(np.maximum(number, 1)), number).astype(np.float32)
        return made

    def feature_names(self) -> list[str]:
        """The column's name with each value."""
        return _value_names(self.name, self.values, self.rare)


def _spellings(text: pl.Series) -> dict[str, str]:
    """For words that differ only in capitals, the most frequent spelling of each."""
    counts = text.drop_nulls().alias("value").value_counts(sort=False)
    value, number = counts["value"].to_list(), counts["count"].to_list()
    best: dict[str, str] = {}
    for cell, _ in sorted(zip(value, number, strict=True), key=lambda pair: (-pair[1], pair[0])):
        best.setdefault(cell.casefold(), cell)
    return {cell: best[cell.casefold()] for cell in value if len(cell) > 1 and best[cell.casefold()] != cell}


def find_sets(text: pl.Series, most_categories: int) -> str | None:
    """The separator of a text column whose cells list short values that repeat; or ``None``."""
    known = text.drop_nulls()
    if known.len() < 8:
        return None
    sample = known.head(5000)
    for sign in (_BRACKETS,) if sample.str.contains(_LISTED).all() else _SIGNS:
        listing = sample.str.contains("," if sign == _BRACKETS else sign, literal=True)
        if listing.mean() < 0.25:  # type: ignore[operator]
            continue
        items = _item_table(_item_lists(sample, sign))["item"]
        distinct, cells = items.n_unique(), sample.n_unique()
        short = items.str.len_chars().max() <= 40 and items.str.count_matches(r"\S+").mean() <= 3  # type: ignore[operator]
        if short and items.len() >= 4 * distinct and distinct < cells and distinct <= _MOST_ITEMS * most_categories:
            return sign
    return None


def _item_lists(series: pl.Series, sign: str) -> pl.Series:
    """The values that cells list, as lists of text; null for blank cells."""
    if sign == _BRACKETS and is_text(series):
        within = text_values(series).str.strip_chars("[]{}").str.extract_all(r"\"[^\"]*\"|'[^']*'|[^,]+")
        return within.list.eval(pl.element().str.strip_chars().str.strip_chars("\"'"))
    try:
        if series.dtype.is_nested():
            lists: pl.Series = series.cast(pl.List(pl.String), strict=False)
            return lists
    except pl.exceptions.PolarsError:  # lists of lists
        pass
    return text_values(series).str.split(sign or "\0")  # text in place of a list is one value


def _item_table(lists: pl.Series) -> pl.DataFrame:
    """Rows (row, item) of all values listed, without blanks."""
    table = pl.DataFrame({"row": np.arange(lists.len()), "item": lists}).explode("item")
    table = table.with_columns(pl.col("item").str.strip_chars())
    return table.filter(pl.col("item").is_not_null() & (pl.col("item") != ""))


def _value_names(name: str, values: tuple[str, ...], rare: bool) -> list[str]:
    return [*(f"{name}={shortened(value, 60)[1:-1]}" for value in values), *([f"{name} (rare)"] if rare else [])]
