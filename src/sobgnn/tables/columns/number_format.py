"""Numbers as people write them: decimal commas, thousands separators, units and currencies, words for missing ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from sobgnn.tables.columns.base import Cells, Mask, is_text, text_values

_CURRENCY = r"€|\$|£|¥|₹|EUR|USD|CHF|GBP|JPY|Fr\.|kr|R\$|US\$|ca\.|~|<|>|≤|≥|<=|>="
_BODY = r"[\d.,](?:[\d.,'’_\s]*[\d.,])?(?:[eE][+-]?\d+)?"
_SHAPE = rf"^((?i:{_CURRENCY})?)\s*(\(?[+\-−]?\s*{_BODY}\)?-?)\s*([^\d\s.,()'+\-−][^\d]*)?$"
_GROUP = {".": r"[,'’_\s]", ",": r"[.'’_\s]"}
# A sign or bracket before the currency, as in -$5 and ($5), which is moved after it.
_SIGNED = rf"^([+\-−(])\s*((?i:{_CURRENCY}))\s*"
# Factors of numbers, if some numbers of a column have such a suffix and others do not.
_MULTIPLES = {"k": 1e3, "K": 1e3, "Tsd": 1e3, "M": 1e6, "Mio": 1e6, "B": 1e9, "bn": 1e9, "Mrd": 1e9}
_TRUTH = {"true": 1.0, "false": 0.0}
_COMPARED = "<>≤≥~<=>="
# At least this share of the cells must be numbers; a few words among them count as blank.
_NUMBERS_SHARE, _MOST_WORDS = 0.9, 5
# Maximum length of a word for a missing number, least number of distinct numbers beside it; usual words for nothing.
_LONGEST_MARK, _FEWEST_NUMBERS = 12, 40
_NOTHING = (
    "-", "--", "---", "–", "—", ".", "..", "...", "*", "x", "/", "k.a.", "k. a.", "n.a.", "n. a.", "n.d.", "nd", "na",
    "none", "nil", "missing", "unknown", "unbekannt", "entfällt", "fehlt",
)  # fmt: skip


@dataclass(frozen=True)
class NumberFormat:
    """How a column writes its numbers."""

    decimal: str = "."
    unit: str = ""  # what follows numbers, such as "kg" or "%"; a cell with another unit is not a number
    plain: bool = True  # whether every cell is a number in the format of programs
    currency: str = ""  # what precedes numbers, such as "€"; a cell with another currency is not a number
    multiples: bool = False  # whether suffixes such as k and M multiply numbers
    marks: tuple[str, ...] = ()  # words for missing numbers
    truth: bool = False  # whether true and false are 1 and 0: booleans of a frame become words in a CSV file

    @property
    def sign(self) -> str:
        """The unit or currency; empty for none."""
        return self.unit or self.currency


PLAIN = NumberFormat()


class Written:
    """Numbers as people write them, taken apart once, so that several formats can be tried.

    Args:
        text: Cells, null for blank ones.
    """

    def __init__(self, text: pl.Series) -> None:
        parts = text.str.replace(_SIGNED, "${2}${1}").str.extract_groups(_SHAPE).struct.unnest()
        before, body, after = parts.get_columns()
        self.text = text
        self.before = before.fill_null("").str.strip_chars()
        self.after = after.fill_null("").str.strip_chars()
        self.infinite = text.str.contains(r"^(?i:[+-]?inf(?:inity)?)$").fill_null(False)
        self.shaped = body.is_not_null()
        body = body.str.replace_all(r"\s+", " ").str.strip_chars()
        self.negative = body.str.contains(r"^\(.*\)$|^[-−]|-$").fill_null(False)
        self.body = body.str.strip_chars("()+-− ")

    def numbers(self, style: NumberFormat) -> pl.Series:
        """Float64, null for cells that are blank or not a number in this format; infinities are kept."""
        group, decimal = _GROUP[style.decimal], re.escape(style.decimal)
        valid = self.body.str.contains(
            rf"^(?:[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+)?(?:{decimal}\d*)?(?:[eE][+-]?\d+)?$"
        ) & self.body.str.contains(r"\d")
        digits = self.body.str.replace_all(group, "").str.replace(",", ".", literal=True)
        number = digits.cast(pl.Float64, strict=False)
        number = number.zip_with(~self.negative, -number)
        if style.multiples:
            number = number * self.after.replace_strict(_MULTIPLES, default=1.0, return_dtype=pl.Float64)
            valid &= self.after.is_in(["", *_MULTIPLES])
        else:
            valid &= self.after.str.to_lowercase().is_in(["", style.unit.lower()])
        valid &= self.before.is_in(["", style.currency, *_COMPARED, "<=", ">=", "ca."])
        number = number.set(~valid.fill_null(False), None)
        read: pl.Series = number.zip_with(~self.infinite, self.text.cast(pl.Float64, strict=False))
        return read

    def bare(self, style: NumberFormat) -> Mask:
        """Which cells lack the format's unit or currency, [rows]."""
        signed = self.after.str.to_lowercase() == style.unit.lower() if style.unit else self.before == style.currency
        return np.asarray(~signed.fill_null(False).to_numpy())


def parse_numbers(series: pl.Series, style: NumberFormat = PLAIN) -> Cells:
    """Numbers of a series of any type, float64, NaN for a cell that is blank or no number in this format.

    Odd are numbers without the unit or currency of the format.
    """
    if not is_text(series):
        if series.dtype == pl.Duration:
            return _cells(series.dt.total_microseconds().cast(pl.Float64) / 1e6)
        if series.dtype.is_nested() or series.dtype.is_temporal() or series.dtype in (pl.Binary, pl.Object):
            return _cells(pl.Series([None] * series.len(), dtype=pl.Float64))
        return _cells(series.cast(pl.Float64, strict=False))
    bare = None
    if style.plain:
        number = series.cast(pl.String).cast(pl.Float64, strict=False)
        if number.null_count() == series.null_count() and not number.is_nan().any():
            return _cells(number)
        text = text_values(series)
        number = text.cast(pl.Float64, strict=False)
    else:
        text = text_values(series)
        written = Written(text)
        number, bare = written.numbers(style), written.bare(style) if style.sign else None
    if style.truth:
        words = text.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Float64)
        number = number.zip_with(number.is_not_null(), words)
    return _cells(number, (text.is_not_null() & ~text.is_in(list(style.marks)).fill_null(False)).to_numpy(), bare)


def _cells(number: pl.Series, filled: Mask | None = None, bare: Mask | None = None) -> Cells:
    values = number.fill_null(float("nan")).to_numpy().astype(np.float64, copy=False)
    read = ~np.isnan(values)
    return Cells(values, read if filled is None else filled, read, read if bare is None else read & bare)


def find_format(text: pl.Series, decimal: str | None = None) -> tuple[NumberFormat, bool] | None:
    """The format of a text column that holds numbers, and whether its decimal sign was certain; or ``None``.

    ``decimal`` decides if the column does not: 1,234 may be more than a thousand or less than two.
    """
    known, count = text.drop_nulls().unique(maintain_order=True), text.drop_nulls().unique_counts()
    if not known.len():
        return None
    if _has_dotted_thousands(known, decimal):
        return NumberFormat(",", plain=False), False
    ambiguous = decimal == "," and known.str.contains(r"^[+-]?[1-9]\d{0,2}\.\d{3}$").all()
    if not ambiguous and not known.cast(pl.Float64, strict=False).null_count():
        return NumberFormat(), bool(known.str.contains(r"\.\d{1,2}$|\.\d{4,}$").any())
    written = Written(known)
    words = ~(written.shaped | written.infinite)
    cells, others = int(count.sum()), int(count.filter(words).sum())
    marks = known.filter(words).to_list()
    if _are_marks(marks, known.len()) and 2 * others <= cells:  # words for missing numbers
        found = find_format(text.filter(~text.is_in(marks).fill_null(False)), decimal)
        return None if found is None else (replace(found[0], marks=tuple(marks)), found[1])
    if len(marks) > _MOST_WORDS or others > (1 - _NUMBERS_SHARE) * cells:
        return None
    units = [unit for unit in written.after.unique(maintain_order=True).to_list() if unit]
    currencies = {unit for unit in written.before.unique().to_list() if unit and unit not in _COMPARED} - {"ca."}
    bare = bool(((written.after == "") & written.shaped).any())
    multiples = bool(units) and set(units) <= set(_MULTIPLES) and (bare or len(units) > 1)
    several = len({unit.lower() for unit in units}) > 1 and not multiples
    if several or len(currencies) > 1 or any(len(unit) > 12 or len(unit.split()) > 2 for unit in units):
        return None
    unit = "" if multiples or not units else units[0]
    styles = [NumberFormat(sign, unit, False, next(iter(currencies), ""), multiples) for sign in (".", ",")]
    read = [written.numbers(style).is_not_null() for style in styles]
    fits = [int(each.sum()) for each in read]
    certain = fits[0] != fits[1]
    best = int(fits[1] > fits[0]) if certain else int(decimal == ",")
    if fits[best] < _NUMBERS_SHARE * known.len() and fits[best] + _MOST_WORDS < known.len():
        return None
    return (styles[best], certain) if count.filter(read[best]).sum() >= _NUMBERS_SHARE * cells else None


def _has_dotted_thousands(known: pl.Series, decimal: str | None) -> bool:
    """Whether numbers such as 1.005, 94 and 998 occur: dots before three digits, and integers of at most three.

    Fractions of three digits end in a zero only if every number has three, and then none is whole. So a dotted number
    that ends in a zero, or the table's decimal sign, proves that dots separate thousands.
    """
    dots = known.str.contains(".", literal=True)
    dotted, short = known.filter(dots), known.filter(~dots)
    if not dotted.len() or not short.len() or not dotted.str.contains(r"^-?[1-9]\d{0,2}(?:\.\d{3})+$").all():
        return False
    proven = decimal == "," or bool(dotted.str.ends_with("0").any())
    return proven and bool(short.str.contains(r"^-?\d{1,3}$").all())


def _are_marks(words: list[str], distinct: int) -> bool:
    """Whether a word without digits, or usual words for nothing, stand for missing ones among enough numbers.

    A few distinct numbers beside a word are categories; several words may carry information.
    """
    usual = all(word.lower() in _NOTHING for word in words)
    if not words or (len(words) > 1 and not usual) or distinct - len(words) < _FEWEST_NUMBERS:
        return False
    return not any(re.search(r"\d", word) or len(word) > _LONGEST_MARK for word in words)
