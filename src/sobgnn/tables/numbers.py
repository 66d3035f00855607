"""Columns of numbers as people write them: decimal commas, thousands separators, units, blanks and sentinels."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from sobgnn.tables.columns import (
    COMMON_BLANKS,
    Arrays,
    PlainColumn,
    check_finite,
    is_text,
    shortened,
    standardized,
    text_values,
)

if TYPE_CHECKING:
    import polars as pl

LARGEST = float(np.finfo(np.float32).max)
# Values that mean "not measured" in many files, if they are far from all others.
SENTINELS = (-9999999.0, -999999.0, -99999.0, -9999.0, -999.0, -99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0)
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
# The standard deviation, as a multiple of the interquartile range, from which a few cells hide all others; and the
# largest feature of such a column.
_HIDING, _NEAR = 1e4, 20.0
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
    """How a column writes its numbers.

    Args:
        decimal: ``"."`` or ``","``.
        unit: What follows numbers, such as ``"kg"`` or ``"%"``; empty for none. A cell with another unit is not a
            number.
        plain: Whether every cell is a number in the format of programs.
        currency: What precedes numbers, such as ``"€"``; empty for none. A cell with another currency is not a number.
        multiples: Whether suffixes such as k and M multiply numbers.
        marks: Words for missing numbers.
        truth: Whether true and false are 1 and 0: booleans of a frame become words in a CSV file.
    """

    decimal: str = "."
    unit: str = ""
    plain: bool = True
    currency: str = ""
    multiples: bool = False
    marks: tuple[str, ...] = ()
    truth: bool = False


def parse_numbers(text: pl.Series, style: NumberFormat) -> pl.Series:
    """Float64, null for cells that are blank or not a number in this format; infinities are kept."""
    import polars as pl

    number: pl.Series
    if style.plain:
        number = text.cast(pl.Float64, strict=False)
        if style.truth:
            words = text.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Float64)
            number = number.zip_with(number.is_not_null(), words)
        return number
    before, body, after = _parts(text)
    body = body.str.replace_all(r"\s+", " ").str.strip_chars()
    negative = body.str.contains(r"^\(.*\)$|^[-−]|-$").fill_null(False)
    body = body.str.strip_chars("()+-− ")
    group, decimal = _GROUP[style.decimal], re.escape(style.decimal)
    valid = body.str.contains(
        rf"^(?:[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+)?(?:{decimal}\d*)?(?:[eE][+-]?\d+)?$"
    ) & body.str.contains(r"\d")
    body = body.str.replace_all(group, "").str.replace(",", ".", literal=True)
    number = body.cast(pl.Float64, strict=False)
    number = number.zip_with(~negative, -number)
    if style.multiples:
        number = number * after.replace_strict(_MULTIPLES, default=1.0, return_dtype=pl.Float64)
        valid &= after.is_in(["", *_MULTIPLES])
    else:
        valid &= after.str.to_lowercase().is_in(["", style.unit.lower()])
    valid &= before.is_in(["", style.currency, *_COMPARED, "<=", ">=", "ca."])
    infinite = text.str.contains(r"^(?i:[+-]?inf(?:inity)?)$").fill_null(False)
    number = number.zip_with(valid.fill_null(False), pl.Series([None], dtype=pl.Float64))
    number = number.zip_with(~infinite, text.cast(pl.Float64, strict=False))
    return number


def _parts(text: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """What precedes the numbers, the numbers as written, and what follows them."""
    parts = text.str.replace(_SIGNED, "${2}${1}").str.extract_groups(_SHAPE).struct.unnest()
    before, body, after = (parts[name] for name in parts.columns)
    return before.fill_null("").str.strip_chars(), body, after.fill_null("").str.strip_chars()


def find_format(text: pl.Series, decimal: str | None = None) -> tuple[NumberFormat, bool] | None:
    """The format of a text column that holds numbers, and whether its decimal sign was certain; or ``None``.

    ``decimal`` decides if the column does not: 1,234 may be more than a thousand or less than two.
    """
    import polars as pl

    known = text.drop_nulls().unique(maintain_order=True)
    if not known.len():
        return None
    plain = known.cast(pl.Float64, strict=False)
    if _has_dotted_thousands(known, decimal):
        return NumberFormat(",", plain=False), False
    ambiguous = known.str.contains(r"^[+-]?[1-9]\d{0,2}\.\d{3}$").all() and decimal == ","
    if not plain.null_count() and not ambiguous:
        return NumberFormat(), bool(known.str.contains(r"\.\d{1,2}$|\.\d{4,}$").any())
    weight = text.drop_nulls().len()
    before, body, after = _parts(known)
    fits = body.is_not_null() | known.str.contains(r"^(?i:[+-]?inf(?:inity)?)$")
    words = known.filter(~fits)
    marks = _missing_marks(known, words, text)
    if marks is not None:  # words for missing numbers
        found = find_format(text.filter(~text.is_in(marks).fill_null(False)), decimal)
        return None if found is None else (replace(found[0], marks=tuple(marks)), found[1])
    if words.len() > _MOST_WORDS or text.is_in(words.to_list()).sum() > (1 - _NUMBERS_SHARE) * weight:
        return None
    written = {u for u in after.unique(maintain_order=True).to_list() if u}
    unit = {u.lower() for u in written}
    currency = {u for u in before.unique().to_list() if u and u not in _COMPARED and u != "ca."}
    bare = bool(((after == "") & body.is_not_null()).any())
    multiples = bool(written) and written <= set(_MULTIPLES) and (bare or len(written) > 1)
    several = len(unit) > 1 and not multiples
    if several or len(currency) > 1 or any(len(u) > 12 or len(u.split()) > 2 for u in unit):
        return None
    said = "" if multiples else next((u for u in after.unique(maintain_order=True).to_list() if u), "")
    style = NumberFormat(".", said, False, next(iter(currency), ""), multiples)
    share = {sign: parse_numbers(known, replace(style, decimal=sign)).is_not_null().sum() for sign in (".", ",")}
    certain = share["."] != share[","]
    sign = max(share, key=lambda s: share[s]) if certain else decimal or "."
    if share[sign] < _NUMBERS_SHARE * known.len() and share[sign] + _MOST_WORDS < known.len():
        return None
    style = replace(style, decimal=sign)
    if parse_numbers(text, style).is_not_null().sum() < _NUMBERS_SHARE * weight:
        return None
    return style, certain


def _has_dotted_thousands(known: pl.Series, decimal: str | None) -> bool:
    """Whether numbers such as 1.005, 94 and 998 occur: dots before three digits, and integers of at most three.

    Fractions of three digits end in a zero only if every number has three, and then none is whole. So a dotted number
    that ends in a zero, or the table's decimal sign, proves that dots separate thousands.
    """
    dotted = known.filter(known.str.contains(".", literal=True))
    short = known.filter(~known.str.contains(".", literal=True))
    if not dotted.len() or not short.len() or not dotted.str.contains(r"^-?[1-9]\d{0,2}(?:\.\d{3})+$").all():
        return False
    proven = decimal == "," or bool(dotted.str.ends_with("0").any())
    return proven and bool(short.str.contains(r"^-?\d{1,3}$").all())


def _missing_marks(known: pl.Series, words: pl.Series, text: pl.Series) -> list[str] | None:
    """A word without digits, or usual words for nothing, in up to half of a column of numbers; or ``None``.

    A few distinct numbers beside a word are categories; several words may carry information.
    """
    usual = words.str.to_lowercase().is_in(list(_NOTHING)).all()
    if not words.len() or (words.len() > 1 and not usual) or known.len() - words.len() < _FEWEST_NUMBERS:
        return None
    if words.str.contains(r"\d").any() or words.str.len_chars().max() > _LONGEST_MARK:  # type: ignore[operator]
        return None
    marks: list[str] = words.to_list()
    return marks if 2 * text.is_in(marks).sum() <= text.drop_nulls().len() else None


@dataclass(frozen=True)
class NumberColumn(PlainColumn):
    """One number per row, centered and divided by its standard deviation.

    .. math:: z = \\operatorname{clip}((x - m) / s, -c, c)

    with m, s the mean and standard deviation of the fitted values that are not blank; if a few of them are so large
    that all others would look equal, the median and the interquartile range over 1.35. Blank cells, infinities,
    sentinels and words get the median; if they are common, a second feature flags them.

    Args:
        name: As in the table.
        style: How numbers are written.
        fill: The median, for cells without a number.
        center: m.
        scale: s.
        clip: c, the largest absolute value of a feature.
        flag: Whether a second feature marks cells without a number.
        low: The smallest of the fitted values.
        high: The largest.
        sentinels: Values that count as blank.
        usual: The 5 % and 95 % quantiles of the fitted values, if every fitted number had the unit or currency.
    """

    kind: ClassVar[str] = "number"
    name: str
    style: NumberFormat
    fill: float
    center: float
    scale: float
    clip: float
    flag: bool
    low: float
    high: float
    sentinels: tuple[float, ...] = ()
    usual: tuple[float, float] | None = None

    @classmethod
    def fit(cls, series: pl.Series, style: NumberFormat) -> tuple[NumberColumn | None, list[str], int]:
        """The fitted column, or ``None`` if it is constant; what users may not expect; number of blanks."""
        raw = as_numbers(series, style)
        number, infinite = _finite(raw)
        sentinels = find_sentinels(number)
        said = [f"{infinite:,} infinite or too large"] if infinite else []
        if sentinels:
            count = int(np.isin(number, sentinels).sum())
            said.append(f"{', '.join(f'{v:g}' for v in sentinels)} treated as blank {count:,} times")
            number = np.where(np.isin(number, sentinels), np.nan, number)
        words = _words(series, raw)
        if words:
            cells = "1 cell" if len(words) == 1 else f"{len(words):,} cells"
            said.append(f"{cells} without a number ({shortened(words[0], 20)}) treated as blank")
        known = number[~np.isnan(number)]
        blank = number.size - known.size
        flag = bool(known.size and blank >= COMMON_BLANKS * number.size)
        if not known.size or (known.min() == known.max() and not flag):
            return None, said, blank
        center, scale = standardized(known)
        low, middle, high = (float(q) for q in np.quantile(known, (0.25, 0.5, 0.75)))
        clip = 1e4
        if float(known.std()) > _HIDING * (high - low) > 0:
            center, scale, clip = middle, (high - low) / 1.35, _NEAR
            beyond = known[np.abs(known - center) > clip * scale]
            cells = "1 cell" if beyond.size == 1 else f"{beyond.size:,} cells"
            said.append(f"{cells} far beyond all others ({beyond[np.abs(beyond).argmax()]:g}) clipped")
        ends = (float(known.min()), float(known.max()))
        bare = lacks_sign(series, style) & ~np.isnan(number) if style.unit or style.currency else None
        usual = None
        if bare is not None and bare.any():
            said.append(_without_sign(number, bare, style))
        elif bare is not None:
            usual = (float(np.quantile(known, 0.05)), float(np.quantile(known, 0.95)))
        return cls(series.name, style, middle, center, scale, clip, flag, *ends, sentinels, usual), said, blank

    def reads(self, series: pl.Series) -> npt.NDArray[np.bool_]:
        """Which cells hold a number, [rows]."""
        return np.asarray(as_numbers(series, self.style).fill_nan(None).is_not_null().to_numpy())

    def beyond(self, series: pl.Series) -> npt.NDArray[np.bool_]:
        """Which cells are farther outside the fitted range than its width, [rows]."""
        number = as_numbers(series, self.style).fill_null(float("nan")).to_numpy().astype(np.float64)
        span = self.high - self.low
        out = (number < self.low - span) | (number > self.high + span)
        return np.asarray(out & ~np.isin(number, self.sentinels))

    def unsigned(self, series: pl.Series) -> npt.NDArray[np.bool_]:
        """Which cells lack the unit or currency of all fitted ones, [rows]; none if they have the usual magnitude.

        A share written as 0.32 instead of 32 % is also a number, but a hundred times too small.
        """
        if self.usual is None:
            return np.zeros(series.len(), dtype=bool)
        number = as_numbers(series, self.style).fill_null(float("nan")).to_numpy()
        bare = lacks_sign(series, self.style) & ~np.isin(number, self.sentinels)
        return bare & bool(bare.any() and not self.usual[0] <= np.median(number[bare]) <= self.usual[1])

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, 1 or 2]."""
        number, _ = _finite(as_numbers(series, self.style))
        hole = np.isnan(number) | np.isin(number, self.sentinels)
        z = (np.where(hole, self.fill, number) - self.center) / self.scale
        parts = [np.clip(z, -self.clip, self.clip)]
        if self.flag:
            parts.append(hole.astype(np.float64))
        return np.stack(parts, axis=1).astype(np.float32)

    def feature_names(self) -> list[str]:
        """The column's name, and the flag's."""
        return [self.name, *([f"{self.name} (blank)"] if self.flag else [])]

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> NumberColumn:
        """Rebuild a column from :meth:`to_json`."""
        style = NumberFormat(**{**content["style"], "marks": tuple(map(str, content["style"].get("marks", ())))})
        if style.decimal not in (".", ","):
            raise ValueError("decimal")
        fields = {key: float(content[key]) for key in ("fill", "center", "scale", "clip", "low", "high")}
        sentinels = tuple(float(v) for v in content["sentinels"])
        low, high = content.get("usual") or (None, None)  # earlier runs do not have it
        usual = None if low is None or high is None else (float(low), float(high))
        check_finite(*fields.values(), *sentinels, *(usual or ()), scale=fields["scale"])
        return cls(str(content["name"]), style, **fields, flag=bool(content["flag"]), sentinels=sentinels, usual=usual)


def as_numbers(series: pl.Series, style: NumberFormat | None = None) -> pl.Series:
    """Float64 of a series of any kind; null for cells that are blank or not a number."""
    import polars as pl

    number: pl.Series
    if series.dtype == pl.Duration:
        number = series.dt.total_microseconds().cast(pl.Float64) / 1e6
        return number
    if is_text(series):
        return parse_numbers(text_values(series), style or NumberFormat())
    if series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object, pl.Time) or series.dtype.is_temporal():
        return pl.Series(series.name, [None] * series.len(), dtype=pl.Float64)
    number = series.cast(pl.Float64, strict=False)
    return number


def lacks_sign(series: pl.Series, style: NumberFormat) -> npt.NDArray[np.bool_]:
    """Which cells hold a number without the format's unit or currency, [rows]."""
    held = as_numbers(series, style).fill_nan(None).is_not_null()
    if is_text(series):
        before, _, after = _parts(text_values(series))
        signed = (after.str.to_lowercase() == style.unit.lower()) if style.unit else (before == style.currency)
        held &= ~signed.fill_null(False)
    return np.asarray(held.to_numpy())


def _without_sign(number: npt.NDArray[np.float64], bare: npt.NDArray[np.bool_], style: NumberFormat) -> str:
    """The note about fitted numbers without the unit that others have."""
    sign = style.unit or style.currency
    said = f"{int(bare.sum()):,} numbers without {sign!r} are read as if they had it"
    fractions = sign == "%" and np.nanmax(np.abs(number[bare])) <= 1 < np.nanmedian(np.abs(number[~bare]))
    return f"{said}, though they look like fractions of 1: use one form for all" if fractions else said


def find_sentinels(number: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Values such as -999 that repeat, end the column's range, and are farther from the others than their spread."""
    known = number[~np.isnan(number)]
    found: list[float] = []
    for value in SENTINELS:
        count = int((known == value).sum())
        others = known[~np.isin(known, [value, *found])]
        if count < 2 or others.size < 3 or others.size < count / 4:
            continue
        low, high = float(others.min()), float(others.max())
        gap = low - value if value < 0 else value - high
        if gap > max(high - low, 1e-12) and (low >= 0 or gap > 3 * (high - low)):
            found.append(value)
    return tuple(found)


def _finite(number: pl.Series) -> tuple[npt.NDArray[np.float64], int]:
    values = number.fill_null(float("nan")).to_numpy().astype(np.float64)
    large = np.abs(values) > LARGEST
    return np.where(large, np.nan, values), int(large.sum())


def _words(series: pl.Series, number: pl.Series) -> list[str]:
    if not is_text(series):
        return []
    text = text_values(series)
    words: list[str] = text.filter(number.is_null() & text.is_not_null()).to_list()
    return words
