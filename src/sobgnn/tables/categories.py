"""Columns of few distinct values, one feature each; lists such as "a; b; c" as sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.tables.columns import COMMON_BLANKS, Arrays, PlainColumn, is_text, shortened, text_values

if TYPE_CHECKING:
    import polars as pl

# A column with more distinct values than this is encoded by its characters.
MOST_CATEGORIES = 40
_SIGNS = (";", "|", ",", "/")
# Marks lists as JSON, Python and PostgreSQL write them: ["a", "b"], ['a', 'b'], {a,b}.
_BRACKETS = "[]"
_LISTED = r"^\[.*\]$|^\{[^:]*\}$"


@dataclass(frozen=True)
class CategoryColumn(PlainColumn):
    """One 0/1 feature per frequent value, and one for all rare values together.

    Words that differ only in capitals (ja, Ja, JA) are one value, in its most frequent spelling; single letters are
    kept apart. A blank cell is all zeros, or has its own feature if blanks are common. A value that was not seen when
    the encoder was fitted counts as rare; without rare values it is all zeros.

    Args:
        name: As in the table.
        values: Frequent values, sorted.
        rare: Whether there is a feature for the others.
        flag: Whether there is a feature for blank cells.
    """

    kind: ClassVar[str] = "categories"
    name: str
    values: tuple[str, ...]
    rare: bool
    flag: bool = False

    @classmethod
    def fit(cls, series: pl.Series, rare_below: int) -> CategoryColumn | None:
        """The fitted column; values in fewer rows than ``rare_below`` are rare, if there are at least two."""
        text = text_values(series)
        text = _respelled(text, spellings(text))
        counts = text.drop_nulls().value_counts(sort=False)
        number, value = counts["count"], counts[counts.columns[0]]
        few = (number < rare_below).sum() >= 2
        kept = value.filter(number >= rare_below) if few else value
        if kept.len() == 0 and few:
            kept, few = value, False
        flag = text.null_count() >= COMMON_BLANKS * text.len() and text.null_count() > 0
        column = cls(series.name, tuple(kept.sort().to_list()), bool(few), flag and kept.len() + few > 1)
        varies = len(column.values) + column.rare > 1 or text.null_count() > 0
        return column if kept.len() and varies else None

    def encode(self, series: pl.Series) -> Any:
        """Features float32 CSR [rows, width]."""
        import polars as pl

        text = self._known(series)
        places = list(range(len(self.values)))
        code = text.replace_strict(list(self.values), places, default=-1, return_dtype=pl.Int64)
        found = np.where(text.is_null().to_numpy(), -2, code.fill_null(-1).to_numpy())
        if self.rare:
            found = np.where(found == -1, len(self.values), found)
        if self.flag:
            found = np.where(found == -2, len(self.values) + self.rare, found)
        rows = np.flatnonzero(found >= 0)
        ones = np.ones(rows.size, np.float32)
        return sp.csr_array((ones, (rows, found[rows])), shape=(series.len(), len(self.feature_names())))

    def reads(self, series: pl.Series) -> npt.NDArray[np.bool_]:
        """Which cells have a feature: all but blank ones and, without rare values, those never seen."""
        text = self._known(series)
        read: npt.NDArray[np.bool_] = (text.is_not_null() & (text.is_in(list(self.values)) | self.rare)).to_numpy()
        return read

    def _known(self, series: pl.Series) -> pl.Series:
        """The cells; those that match exactly one value except for capitals or a trailing ".0" become that value.

        In pandas, a column of integers with a blank cell holds floats: 1 becomes 1.0.
        """
        text = text_values(series)
        folded: dict[str, list[str]] = {}
        for value in self.values:
            folded.setdefault(value.casefold(), []).append(value)
        odd = text.filter(~text.is_in(list(self.values))).drop_nulls().unique().to_list()
        meant = {cell: folded.get(cell.casefold(), []) for cell in odd if len(cell) > 1}
        for cell in odd:
            if cell.removesuffix(".0").removeprefix("-").isdecimal():
                meant[cell] = folded.get(cell.removesuffix(".0") if cell.endswith(".0") else f"{cell}.0", [])
        return _respelled(text, {cell: found[0] for cell, found in meant.items() if len(found) == 1})

    def feature_names(self) -> list[str]:
        """The column's name with each value."""
        return [*_value_names(self.name, self.values, self.rare), *([f"{self.name} (blank)"] if self.flag else [])]

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> CategoryColumn:
        """Rebuild a column from :meth:`to_json`."""
        return cls(str(content["name"]), _texts(content["values"]), bool(content["rare"]), bool(content["flag"]))


@dataclass(frozen=True)
class SetColumn(PlainColumn):
    """Cells that list several values: one 0/1 feature per frequent value, divided by the root of the cell's count.

    Args:
        name: As in the table.
        sign: The separator of values; ``"[]"`` if they are written as ["a", "b"], ['a', 'b'] or {a,b}, and empty if
            cells are lists already.
        values: Frequent values, sorted.
        rare: Whether there is a feature for the others.
    """

    kind: ClassVar[str] = "set"
    name: str
    sign: str
    values: tuple[str, ...]
    rare: bool

    @classmethod
    def fit(cls, series: pl.Series, sign: str, rare_below: int, most: int = 4 * MOST_CATEGORIES) -> SetColumn | None:
        """The fitted column; of the values in at least ``rare_below`` cells at most ``most`` become features."""
        import polars as pl

        counts = _items(series, sign).value_counts().rename({"item": "value"}) if series.len() else None
        if counts is None or not counts.height:
            return None
        counts = counts.sort(["count", "value"], descending=[True, False])
        kept = counts.filter(pl.col("count") >= rare_below).head(most)
        kept = kept if kept.height else counts.head(most)
        return cls(series.name, sign, tuple(kept["value"].sort().to_list()), kept.height + 1 < counts.height)

    def encode(self, series: pl.Series) -> Any:
        """Features float32 CSR [rows, width]."""
        import polars as pl

        table = _item_table(series, self.sign)
        places = list(range(len(self.values)))
        code = table["item"].replace_strict(list(self.values), places, default=-1, return_dtype=pl.Int64).to_numpy()
        code = np.where(code == -1, len(self.values) if self.rare else -1, code)
        kept = code >= 0
        width = len(self.values) + self.rare
        pairs = np.unique(np.stack([table["row"].to_numpy()[kept], code[kept]]), axis=1).astype(np.int64)
        count = np.bincount(pairs[0], minlength=series.len()) if pairs.size else np.zeros(series.len())
        data = (1 / np.sqrt(np.maximum(count, 1)))[pairs[0]].astype(np.float32)
        return sp.csr_array((data, (pairs[0], pairs[1])), shape=(series.len(), width))

    def feature_names(self) -> list[str]:
        """The column's name with each value."""
        return _value_names(self.name, self.values, self.rare)

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> SetColumn:
        """Rebuild a column from :meth:`to_json`."""
        sign = str(content["sign"])
        return cls(str(content["name"]), sign, _texts(content["values"]), bool(content["rare"]))


def spellings(text: pl.Series) -> dict[str, str]:
    """For words that differ only in capitals, the most frequent spelling of each."""
    counts = text.drop_nulls().value_counts(sort=False)
    value, number = counts[counts.columns[0]].to_list(), counts["count"].to_list()
    best: dict[str, str] = {}
    for cell, _ in sorted(zip(value, number, strict=True), key=lambda pair: (-pair[1], pair[0])):
        best.setdefault(cell.casefold(), cell)
    return {cell: best[cell.casefold()] for cell in value if len(cell) > 1 and best[cell.casefold()] != cell}


def _respelled(text: pl.Series, spelling: dict[str, str]) -> pl.Series:
    return text.replace(spelling) if spelling else text


def find_sets(text: pl.Series) -> str | None:
    """The separator of a text column whose cells list short values that repeat; or ``None``."""
    known = text.drop_nulls()
    if known.len() < 8:
        return None
    sample = known.head(5000)
    for sign in (_BRACKETS,) if sample.str.contains(_LISTED).all() else _SIGNS:
        listing = sample.str.contains("," if sign == _BRACKETS else sign, literal=True)
        if listing.mean() < 0.25:  # type: ignore[operator]
            continue
        items = _items(sample, sign)
        distinct, cells = items.n_unique(), sample.n_unique()
        short = items.str.len_chars().max() <= 40 and items.str.count_matches(r"\S+").mean() <= 3  # type: ignore[operator]
        if short and items.len() >= 4 * distinct and distinct < cells and distinct <= 10 * MOST_CATEGORIES:
            return sign
    return None


def _item_table(series: pl.Series, sign: str) -> pl.DataFrame:
    """Rows (row, item) of all values listed, without blanks."""
    import polars as pl

    if sign == _BRACKETS and is_text(series):
        within = text_values(series).str.strip_chars("[]{}").str.extract_all(r"\"[^\"]*\"|'[^']*'|[^,]+")
        lists = within.list.eval(pl.element().str.strip_chars().str.strip_chars("\"'"))
    elif is_text(series) or not series.dtype.is_nested():
        lists = text_values(series).str.split(sign or "\0")  # text in place of a list is one value
    else:
        lists = series.cast(pl.List(pl.String), strict=False)
    table = pl.DataFrame({"row": np.arange(series.len()), "item": lists}).explode("item")
    table = table.with_columns(pl.col("item").str.strip_chars())
    return table.filter(pl.col("item").is_not_null() & (pl.col("item") != ""))


def _items(series: pl.Series, sign: str) -> pl.Series:
    return _item_table(series, sign)["item"]


def _value_names(name: str, values: tuple[str, ...], rare: bool) -> list[str]:
    return [*(f"{name}={shortened(value, 60)[1:-1]}" for value in values), *([f"{name} (rare)"] if rare else [])]


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not values or not all(isinstance(v, str) for v in values):
        raise ValueError("values")
    if len(set(values)) < len(values):
        raise ValueError("values repeat")
    return tuple(values)
