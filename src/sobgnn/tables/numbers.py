"""Columns of numbers as people write them: decimal commas, thousands separators, units, blanks and sentinels."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from sobgnn.tables.columns import COMMON_BLANKS, Arrays, is_text, shortened, standardized, text_values

if TYPE_CHECKING:
    import polars as pl

LARGEST = float(np.finfo(np.float32).max)
# Values that stand for "not measured" in many files, where they lie far from all others.
SENTINELS = (-9999999.0, -999999.0, -99999.0, -9999.0, -999.0, -99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0)
_CURRENCY = r"€|\$|£|¥|₹|EUR|USD|CHF|GBP|JPY|Fr\.|kr|R\$|US\$|ca\.|~|<|>|≤|≥|<=|>="
_BODY = r"[\d.,](?:[\d.,'’_\s]*[\d.,])?(?:[eE][+-]?\d+)?"
_SHAPE = rf"^((?i:{_CURRENCY})?)\s*(\(?[+\-−]?\s*{_BODY}\)?-?)\s*([^\d\s.,()'+\-−][^\d]*)?$"
_GROUP = {".": r"[,'’_\s]", ",": r"[.'’_\s]"}
# At least this share of the cells must be numbers; a few words among them count as blank.
_NUMBERS_SHARE, _MOST_WORDS = 0.9, 5


@dataclass(frozen=True)
class NumberFormat:
    """How a column writes its numbers.

    Args:
        decimal: ``"."`` or ``","``.
        unit: What stands before or after every number, such as ``"kg"``, ``"%"`` or ``"€"``; empty for none.
        plain: Whether every cell is a number as programs write it.
    """

    decimal: str = "."
    unit: str = ""
    plain: bool = True


def parse_numbers(text: pl.Series, style: NumberFormat) -> pl.Series:
    """Float64, null where a cell is blank or no number in this format; infinities are kept."""
    import polars as pl

    number: pl.Series
    if style.plain:
        number = text.cast(pl.Float64, strict=False)
        return number
    parts = text.str.extract_groups(_SHAPE).struct.unnest()
    body = parts[parts.columns[1]].str.replace_all(r"\s+", " ").str.strip_chars()
    negative = body.str.contains(r"^\(.*\)$|^[-−]|-$").fill_null(False)
    body = body.str.strip_chars("()+-− ")
    group, decimal = _GROUP[style.decimal], re.escape(style.decimal)
    valid = body.str.contains(
        rf"^(?:[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+)?(?:{decimal}\d*)?(?:[eE][+-]?\d+)?$"
    ) & body.str.contains(r"\d")
    body = body.str.replace_all(group, "").str.replace(",", ".", literal=True)
    number = body.cast(pl.Float64, strict=False)
    number = number.zip_with(~negative, -number)
    infinite = text.str.contains(r"^(?i:[+-]?inf(?:inity)?)$").fill_null(False)
    number = number.zip_with(valid.fill_null(False), pl.Series([None], dtype=pl.Float64))
    number = number.zip_with(~infinite, text.cast(pl.Float64, strict=False))
    return number


def find_format(text: pl.Series, decimal: str | None = None) -> tuple[NumberFormat, bool] | None:
    """The format of a text column that holds numbers, and whether its decimal sign was certain; or ``None``.

    ``decimal`` decides where a column alone does not: 1,234 is one thousand or one and a bit.
    """
    import polars as pl

    known = text.drop_nulls().unique(maintain_order=True)
    if not known.len():
        return None
    plain = known.cast(pl.Float64, strict=False)
    ambiguous = known.str.contains(r"^[+-]?[1-9]\d{0,2}\.\d{3}$").all() and decimal == ","
    if not plain.null_count() and not ambiguous:
        return NumberFormat(), bool(known.str.contains(r"\.\d{1,2}$|\.\d{4,}$").any())
    weight = text.drop_nulls().len()
    parts = known.str.extract_groups(_SHAPE).struct.unnest()
    fits = known.str.contains(_SHAPE) | known.str.contains(r"^(?i:[+-]?inf(?:inity)?)$")
    words = known.filter(~fits)
    if words.len() > _MOST_WORDS or text.is_in(words.to_list()).sum() > (1 - _NUMBERS_SHARE) * weight:
        return None
    before, after = (parts[parts.columns[i]].fill_null("").str.strip_chars() for i in (0, 2))
    unit = {u.lower() for u in after.unique().to_list() if u}
    currency = {u for u in before.unique().to_list() if u and u not in "<>≤≥~<=>="}
    if len(unit) > 1 or len(currency) > 1 or any(len(u) > 12 or len(u.split()) > 2 for u in unit):
        return None
    said = next((u for u in after.unique(maintain_order=True).to_list() if u), "") or next(iter(currency), "")
    share = {sign: parse_numbers(known, NumberFormat(sign, said, False)).is_not_null().sum() for sign in (".", ",")}
    certain = share["."] != share[","]
    sign = max(share, key=lambda s: share[s]) if certain else decimal or "."
    if share[sign] < _NUMBERS_SHARE * known.len() and share[sign] + _MOST_WORDS < known.len():
        return None
    found = parse_numbers(text, NumberFormat(sign, said, False))
    if found.is_not_null().sum() < _NUMBERS_SHARE * weight:
        return None
    return NumberFormat(sign, said, False), certain


@dataclass(frozen=True)
class NumberColumn:
    """One number per row, centered and divided by its standard deviation.

    .. math:: z = \\operatorname{clip}((x - m) / s, -c, c)

    with m, s the mean and standard deviation of the fitted values that are not blank. Blank cells, infinities,
    sentinels and words get the median; where they are common, a second feature flags them.

    Args:
        name: As in the table.
        style: How numbers are written.
        fill: The median, for cells without a number.
        center: m.
        scale: s.
        clip: c, the largest absolute value of a feature.
        flag: Whether a second feature says which cells had no number.
        sentinels: Values that count as blank.
    """

    kind: ClassVar[str] = "number"
    name: str
    style: NumberFormat
    fill: float
    center: float
    scale: float
    clip: float
    flag: bool
    sentinels: tuple[float, ...] = ()

    @classmethod
    def fit(cls, series: pl.Series, style: NumberFormat) -> tuple[NumberColumn | None, list[str], int]:
        """The fitted column, or ``None`` where it is constant; what a reader may not expect; number of blanks."""
        raw = as_numbers(series, style)
        number, infinite = _finite(raw)
        sentinels = find_sentinels(number)
        said = [f"{infinite:,} infinite or too large"] if infinite else []
        if sentinels:
            count = int(np.isin(number, sentinels).sum())
            said.append(f"{', '.join(f'{v:g}' for v in sentinels)} taken as blank {count:,} times")
            number = np.where(np.isin(number, sentinels), np.nan, number)
        words = _words(series, raw)
        if words:
            said.append(f"{len(words):,} cells that are no numbers ({shortened(words[0], 20)}) taken as blank")
        known = number[~np.isnan(number)]
        blank = number.size - known.size
        flag = bool(known.size and blank >= COMMON_BLANKS * number.size)
        if not known.size or (known.min() == known.max() and not flag):
            return None, said, blank
        center, scale = standardized(known)
        return cls(series.name, style, float(np.median(known)), center, scale, 1e4, flag, sentinels), said, blank

    def reads(self, series: pl.Series) -> npt.NDArray[np.bool_]:
        """Which cells hold a number, [rows]."""
        return np.asarray(as_numbers(series, self.style).is_not_null().to_numpy())

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

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def arrays(self) -> Arrays:
        """None."""
        return {}

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> NumberColumn:
        """The column that :meth:`to_json` wrote."""
        style = NumberFormat(**content["style"])
        if style.decimal not in (".", ","):
            raise ValueError("decimal")
        fields = {key: float(content[key]) for key in ("fill", "center", "scale", "clip")}
        sentinels = tuple(float(v) for v in content["sentinels"])
        return cls(str(content["name"]), style, **fields, flag=bool(content["flag"]), sentinels=sentinels)


def as_numbers(series: pl.Series, style: NumberFormat | None = None) -> pl.Series:
    """Float64 of a series of any kind; null where a cell is blank or no number."""
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


def find_sentinels(number: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Values such as -999 that repeat, end the column's range, and lie farther from the others than these spread."""
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
