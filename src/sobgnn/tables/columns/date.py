"""Columns of dates and times in common formats, as a number and as cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from sobgnn.tables.columns.base import (
    COMMON_BLANKS,
    Cells,
    Choice,
    Column,
    distinct_cells,
    is_text,
    standardized,
    text_values,
)  # fmt: skip
from sobgnn.tables.columns.names import shortened

_DAY = 86400.0
_SHARE = 0.9
_TIME = (
    r"(?:^|[T\s,]+)(\d{1,2}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?\s*([AaPp])?\.?(?:[Mm]\.?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?(?:\s*Uhr)?$"
)
_NUMBER = r"^[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?$"
_WEEKDAY = r"^\p{L}{2,10}\.?,?\s+"
# Formats that are rewritten as year, month, day or day, month, year: web server logs, and Chinese and Japanese dates.
_REWRITTEN = {
    r"^\[?(\d{1,2})/(\p{L}{3})/(\d{4}):([\d:]+)(\s[+-]\d{4})?\]?$": "${1}-${2}-${3} ${4}${5}",
    r"^(\d{4})\s?年\s?(\d{1,2})\s?月\s?(\d{1,2})\s?日": "${1}-${2}-${3} ",
}
# Dates without time, as =year-month-day.
_FORMS = {
    r"^(\d{4})[-/](\d{1,2})$": "=${1}-${2}-1",
    r"^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})$": "=${1}-${2}-${3}",
    r"^(\d{4})(\d{2})(\d{2})$": "=${1}-${2}-${3}",
    r"^(\d{1,2})\.?[\s-]*(\p{L}{3,10})\.?,?[\s-]*(\d{4}|\d{2})$": "=${3}-${2}-${1}",
    r"^(\p{L}{3,10})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})$": "=${3}-${1}-${2}",
}
_PAIR = r"^(\d{1,2})([./-])(\d{1,2})[./-](\d{4}|\d{2})$"
_DAY_FIRST, _MONTH_FIRST = {_PAIR: "=${4}-${3}-${1}"}, {_PAIR: "=${4}-${1}-${3}"}
# Months by name, of which three letters tell all but two apart, and years of two digits: 1970 to 2069.
_MONTHS = (
    "jan", "feb|fév|fev", "mar|mär|mrz", "apr|avr|abr", "may|mai", "juin|jun", "juil|jul", "aug|aoû|aou|ago", "sep",
    "oct|okt", "nov", "dec|dez|déc|dic",
)  # fmt: skip
_SPELLED = {rf"-(?i:{names})\p{{L}}*-": f"-{number}-" for number, names in enumerate(_MONTHS, start=1)}
_YEARS = {r"^=([0-6]\d)-": "=20${1}-", r"^=([7-9]\d)-": "=19${1}-"}
_CYCLES = {"month": 12.0, "weekday": 7.0, "hour": 24.0}


@dataclass(frozen=True)
class DateFormat:
    """How a column writes its moments."""

    day_first: bool | None = None  # whether 1/2/2024 is the first of February; None if no cell has this form
    dated: bool = True  # whether cells are dates, with or without a time; otherwise times of day
    timed: bool = False  # whether there are times of day
    ambiguous: bool = False  # whether day and month could be swapped
    mixed: bool = False  # whether some cells must have the day first, others the month


def parse_dates(
    series: pl.Series, day_first: bool | None = None, dated: bool | None = None, *, look: bool = True
) -> tuple[Cells, DateFormat]:
    """Seconds since 1970, or of the day, float64, NaN where there is none; and how the cells are written.

    ``day_first=None`` decides from the cells: a part above 12 is a day; if no cell has one, or without ``look``, a
    slash means that the month comes first, a dot or hyphen the day. ``dated=None`` decides too: if any cell is a date,
    all are read as dates, otherwise as times of day; cells of the other kind have no moment.
    """
    if is_text(series) or series.dtype.is_integer():
        text = text_values(series)
        cells, place = distinct_cells(text)
        seconds, swapped, style = _parse_cells(cells, day_first, dated, look)
        read = ~np.isnan(seconds[place])
        filled = text.is_not_null().to_numpy() if is_text(series) else read
        return Cells(seconds[place], filled, read, swapped[place]), style
    style = DateFormat(dated=series.dtype != pl.Time)
    values = np.full(series.len(), np.nan)
    if series.dtype.is_temporal() and series.dtype != pl.Duration and dated in (None, style.dated):
        unit = 1e6 if style.dated else 1e9
        whole = series.cast(pl.Datetime("us")) if style.dated else series
        values = whole.cast(pl.Int64).cast(pl.Float64).fill_null(float("nan")).to_numpy() / unit
        style = replace(style, timed=not style.dated or bool((np.nan_to_num(values) % _DAY != 0).any()))
    read = ~np.isnan(values)
    return Cells(values, read, read), style


def _parse_cells(
    cells: pl.Series, day_first: bool | None, dated: bool | None, look: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8], DateFormat]:
    """The seconds of distinct text cells, their :attr:`Cells.odd`, and how they are written."""
    cells = _replaced(cells, _REWRITTEN).str.strip_chars()
    clock = _clock(cells)
    day = cells.str.replace(_TIME, "").str.strip_chars()
    bare = day.str.replace(_WEEKDAY, "")
    days = _days(day, _FORMS)  # "March 3, 2024" begins with a word that is not a weekday
    if (day != bare).any():
        days = np.where(np.isnan(days), _days(bare, _FORMS), days)
    first, sign, second, _ = _groups(bare, _PAIR)
    a, b, slash = _number(first), _number(second), (sign == "/").fill_null(False).to_numpy()
    ambiguous = False
    mixed = bool(((a > 12) & (b <= 12)).any() and ((b > 12) & (a <= 12)).any())
    if day_first is None and look and not np.isnan(a).all():
        day_first = not slash.any()
        if bool((a > 12).any()) != bool((b > 12).any()):
            day_first = bool((a > 12).any())
        else:
            ambiguous = bool((~np.isnan(a) & (a != b)).any())
    leads = ~slash if day_first is None else np.full(len(a), day_first)
    swapped = (np.where(leads, b, a) > 12).astype(np.int8) - (np.where(leads, a, b) > 12).astype(np.int8)
    if not np.isnan(a).all():
        one, other = _days(bare, _DAY_FIRST), _days(bare, _MONTH_FIRST)
        for pair in (np.where(leads, one, other), np.where(leads, other, one)):
            days = np.where(np.isnan(days), pair, days)
    only_time = (day == "").fill_null(False).to_numpy() & ~np.isnan(clock)
    if dated is None:
        dated = not bool(only_time.any()) or bool((~np.isnan(days)).any())
    seconds = days * _DAY + np.nan_to_num(clock) if dated else np.where(only_time, clock, np.nan)
    return seconds, swapped, DateFormat(day_first, dated, bool((~np.isnan(clock)).any()), ambiguous, mixed)


def looks_like_dates(text: pl.Series) -> bool:
    """Whether nearly all cells of a text column are dates or times."""
    sample = text.drop_nulls().unique(maintain_order=True).head(2000)
    if not sample.len() or not sample.head(50).str.contains(r"\d").all():
        return False
    # Numbers are not dates unless they have 8 digits. Most columns end here; the rest is slow.
    digits = sample.str.contains(r"^\d{8}$")
    if sample.len() - (sample.str.contains(_NUMBER) & ~digits).sum() < _SHARE * sample.len():
        return False
    seconds, _, _ = _parse_cells(sample, None, None, True)
    good = ~np.isnan(seconds)
    if digits.all():  # integers, unless all of them are days from 1900 to 2100
        years = seconds[good] / (365.2425 * _DAY) + 1970
        return bool(good.all() and sample.len() > 2 and years.min() > 1900 and years.max() < 2101)
    return bool(good.mean() >= _SHARE)


@dataclass(frozen=True)
class DateColumn(Column):
    """A moment as standardized days since 1970, and as cycles (sine and cosine) of the parts that vary."""

    kind: ClassVar[str] = "date"
    day_first: bool | None  # whether 1/2/2024 is the first of February; None if no date had this form: its sign decides
    dated: bool  # whether cells are dates, with or without a time; otherwise times of day
    center: float  # mean of the days
    scale: float  # their standard deviation
    low: float  # the first of the fitted days
    high: float  # the last
    cycles: tuple[str, ...]  # those of month, weekday and hour that vary
    number: bool  # whether the days vary
    flag: bool  # whether a feature marks blank cells

    @classmethod
    def fit(cls, series: pl.Series) -> Choice:
        """The fitted column: none if all moments are the same."""
        cells, style = parse_dates(series)
        known = cells.values[cells.read]
        order = "day" if style.day_first else "month"
        notes = []
        if style.mixed:
            notes.append(
                "dates contradict one another: in some only the day can come first, in others only the month; if "
                f"both can, read with the {order} first"
            )
        elif style.ambiguous:
            notes.append(f"day and month could be swapped; read with the {order} first")
        flag = bool(known.size and cells.values.size - known.size >= COMMON_BLANKS * cells.values.size)
        if not known.size or (known.min() == known.max() and not flag):
            return Choice(None, "constant", notes)
        timed = {"month": style.dated, "weekday": style.dated, "hour": style.timed}
        cycles = tuple(
            name for name in _CYCLES if timed[name] and np.unique(_phase(known, name).astype(np.int64)).size > 2
        )
        ends = (float(known.min()) / _DAY, float(known.max()) / _DAY)
        varies = ends[0] < ends[1]
        column = cls(
            series.name, style.day_first, style.dated, *standardized(known / _DAY), *ends, cycles, varies, flag
        )
        return Choice(column, "date", notes, cells)

    def parse(self, series: pl.Series) -> Cells:
        """Seconds, NaN for cells without a date, or without a time of day for columns of these."""
        return parse_dates(series, self.day_first, self.dated, look=False)[0]

    def check(self, series: pl.Series, cells: Cells) -> None:
        """Raise if most of the cells that can only be read in one order have day and month in the opposite one."""
        super().check(series, cells)
        if is_text(series) and cells.odd is not None and cells.odd.sum() > 0:
            raise ValueError(
                f"Column {series.name!r} has day and month in the opposite order to the model's, as in "
                f"{shortened(text_values(series)[int(cells.odd.argmax())])}. Write the year first: 2024-12-31."
            )

    def encode(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Features float32 [rows, width]; those of a blank cell are 0."""
        hole = np.isnan(values)
        parts = [(values / _DAY - self.center) / self.scale] if self.number else []
        for name in self.cycles:
            angle = 2 * np.pi * _phase(np.where(hole, 0.0, values), name) / _CYCLES[name]
            parts += [np.sin(angle), np.cos(angle)]
        parts = [np.clip(np.where(hole, 0.0, part), -1e4, 1e4) for part in parts]
        return np.stack([*parts, *([hole] if self.flag else [])], axis=1).astype(np.float32)

    def feature_names(self) -> list[str]:
        """Names of the number, the cycles and the flag."""
        cycles = [f"{self.name} ({part} of {cycle})" for cycle in self.cycles for part in ("sine", "cosine")]
        return [*([self.name] if self.number else []), *cycles, *([f"{self.name} (blank)"] if self.flag else [])]


def _groups(cells: pl.Series, pattern: str) -> list[pl.Series]:
    parts = cells.str.extract_groups(pattern).struct.unnest()
    return [parts[name] for name in parts.columns]


def _replaced(cells: pl.Series, forms: Mapping[str, str]) -> pl.Series:
    for pattern, form in forms.items():
        cells = cells.str.replace(pattern, form)
    return cells


def _number(part: pl.Series) -> npt.NDArray[np.float64]:
    return np.asarray(part.cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy())


def _days(cells: pl.Series, forms: Mapping[str, str]) -> npt.NDArray[np.float64]:
    """Days since 1970-01-01 of dates in one of some forms; NaN for others, and for dates that do not exist."""
    dates = _replaced(_replaced(cells, forms), _YEARS)
    if dates.str.contains(r"^=.*\p{L}").any():
        dates = _replaced(dates, _SPELLED)
    return _number(dates.str.to_date("=%Y-%m-%d", strict=False).cast(pl.Int32))


def _phase(seconds: npt.NDArray[np.float64], cycle: str) -> npt.NDArray[np.float64]:
    if cycle == "hour":
        return (seconds % _DAY) / 3600
    days = np.floor(seconds / _DAY)
    if cycle == "weekday":
        return (days + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0
    months = np.clip(days, -1e7, 1e7).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return (months % 12).astype(np.float64)


def _clock(cells: pl.Series) -> npt.NDArray[np.float64]:
    """Seconds of the day, in UTC if a zone is given; NaN if there is no valid time."""
    hours, minutes, seconds, half, zone = _groups(cells, _TIME)
    hour, minute, second = _number(hours), _number(minutes), np.nan_to_num(_number(seconds.str.replace(",", ".")))
    letter = half.str.to_lowercase().fill_null("").to_numpy().astype(object)
    hour = np.where((letter == "p") & (hour < 12), hour + 12, np.where((letter == "a") & (hour == 12), 0, hour))
    sign, hours, minutes = _groups(zone, r"^([+-])(\d{2}):?(\d{2})?$")
    offset = np.nan_to_num(_number(hours) * 3600) + np.nan_to_num(_number(minutes) * 60)
    offset = np.where((sign == "-").fill_null(False).to_numpy(), -offset, offset)
    valid = (hour < 24) & (minute < 60) & (second < 61)
    return np.where(valid, hour * 3600 + minute * 60 + second - offset, np.nan)
