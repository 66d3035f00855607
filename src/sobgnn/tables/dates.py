"""Columns of dates and times in common formats, as a number and as cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from sobgnn.tables.columns import COMMON_BLANKS, Arrays, PlainColumn, check_finite, is_text, standardized, text_values

if TYPE_CHECKING:
    import polars as pl

_DAY = 86400.0
_SHARE = 0.9
_TIME = (
    r"(?:^|[T\s,]+)(\d{1,2}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?\s*([AaPp])?\.?(?:[Mm]\.?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?(?:\s*Uhr)?$"
)
_NUMBER = r"^[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?$"
_WEEKDAY = r"^\p{L}{2,10}\.?,?\s+"
_FORMS: dict[str, tuple[int, int, int | None]] = {  # which group is year, month, day
    r"^(\d{4})[-/](\d{1,2})$": (0, 1, None),
    r"^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})$": (0, 1, 2),
    r"^(\d{4})(\d{2})(\d{2})$": (0, 1, 2),
    r"^(\d{1,2})\.?[\s-]*(\p{L}{3,10})\.?,?[\s-]*(\d{4}|\d{2})$": (2, 1, 0),
    r"^(\p{L}{3,10})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})$": (2, 0, 1),
}
# Formats that are rewritten as year, month, day or day, month, year: web server logs, and Chinese and Japanese dates.
_REWRITTEN = {
    r"^\[?(\d{1,2})/(\p{L}{3})/(\d{4}):([\d:]+)(\s[+-]\d{4})?\]?$": "${1}-${2}-${3} ${4}${5}",
    r"^(\d{4})\s?年\s?(\d{1,2})\s?月\s?(\d{1,2})\s?日": "${1}-${2}-${3} ",
}
_PAIR = r"^(\d{1,2})([./-])(\d{1,2})[./-](\d{4}|\d{2})$"
_MONTHS = {
    1: "jan", 2: "feb fév fev", 3: "mar mär mrz", 4: "apr avr abr", 5: "may mai", 6: "jun", 7: "jul",
    8: "aug aoû aou ago", 9: "sep", 10: "oct okt", 11: "nov", 12: "dec dez déc dic",
}  # fmt: skip
_LONGER_MONTHS = {"juin": 6.0, "juil": 7.0}  # not distinguished by three letters
_CYCLES = {"month": 12.0, "weekday": 7.0, "hour": 24.0}


@dataclass(frozen=True)
class Moments:
    """Moments of a column: seconds since 1970 [rows], NaN if there is none, and whether they have a time."""

    seconds: npt.NDArray[np.float64]
    has_time: bool
    has_date: bool = True
    ambiguous: bool = False
    mixed: bool = False  # some cells must have the day first, others the month


def parse_dates(
    text: pl.Series, day_first: bool | None = None, has_date: bool | None = None, *, look: bool = True
) -> tuple[Moments, bool | None]:
    """Moments of a text column, and whether 1/2/2024 is read with the day first; ``None`` if no cell has this form.

    ``None`` decides from the cells: a part above 12 is a day; if no cell has one, or without ``look``, a slash means
    that the month comes first, a dot or hyphen the day. If any cell is a date, all are read as dates, otherwise as
    times of day; cells of the other kind become NaN.
    """
    import polars as pl

    unique = text.unique(maintain_order=True)
    hour = _rewritten(unique).str.extract_groups(_TIME).struct.unnest()
    clock = _clock([hour[c] for c in hour.columns])
    day, bare = _days_alone(unique)
    # "March 3, 2024" begins with a word that is not a weekday: it is also tried unchanged.
    days = np.full(unique.len(), np.nan)
    for candidate in (day, bare):
        for pattern, order in _FORMS.items():
            parts = candidate.str.extract_groups(pattern).struct.unnest()
            columns = [_integer(parts[c]) for c in parts.columns]
            parts_of = [np.ones(unique.len()) if i is None else columns[i] for i in order]
            days = np.where(np.isnan(days), _days(*parts_of), days)
    a, slash, b, y = _pairs(bare)
    ambiguous = False
    mixed = bool(((a > 12) & (b <= 12)).any() and ((b > 12) & (a <= 12)).any())
    if day_first is None and look and not np.isnan(a).all():
        day_first = not slash.any()
        if bool((a > 12).any()) != bool((b > 12).any()):
            day_first = bool((a > 12).any())
        else:
            ambiguous = bool((~np.isnan(a) & (a != b)).any())
    one, other = _days(y, b, a), _days(y, a, b)
    leads = ~slash if day_first is None else np.full(len(a), day_first)
    one, other = np.where(leads, one, other), np.where(leads, other, one)
    paired = np.where(np.isnan(one), other, one)
    days = np.where(np.isnan(days), paired, days)
    only_time = (day == "").fill_null(False).to_numpy() & ~np.isnan(clock)
    has_time = bool((~np.isnan(clock)).any())
    if has_date is None:
        has_date = not bool(only_time.any()) or bool((~np.isnan(days)).any())
    seconds = days * _DAY + np.nan_to_num(clock) if has_date else np.where(only_time, clock, np.nan)
    table = pl.DataFrame({"text": unique, "seconds": seconds})
    whole = pl.DataFrame({"text": text}).join(table, on="text", how="left", nulls_equal=True, maintain_order="left")
    values = whole["seconds"].fill_null(float("nan")).to_numpy().astype(np.float64)
    return Moments(values, has_time, has_date, ambiguous, mixed), day_first


def looks_like_dates(text: pl.Series) -> bool:
    """Whether nearly all cells of a text column are dates or times."""
    known = text.drop_nulls()
    sample = known.unique(maintain_order=True).head(2000)
    if not sample.len() or not sample.head(50).str.contains(r"\d").all():
        return False
    # Numbers are not dates unless they have 8 digits. Most columns end here; the rest is slow.
    numbers = sample.str.contains(_NUMBER) & ~sample.str.contains(r"^\d{8}$")
    if sample.len() - numbers.sum() < _SHARE * sample.len():
        return False
    moments, _ = parse_dates(sample)
    good = ~np.isnan(moments.seconds)
    if sample.str.contains(r"^\d{8}$").all():  # integers, unless all of them are days from 1900 to 2100
        years = moments.seconds[good] / (365.2425 * _DAY) + 1970
        return bool(good.all() and sample.len() > 1 and years.min() > 1900 and years.max() < 2101)
    return bool(good.mean() >= _SHARE)


@dataclass(frozen=True)
class DateColumn(PlainColumn):
    """A moment as standardized days since 1970, and as cycles (sine and cosine) of the parts that vary.

    Args:
        name: As in the table.
        day_first: Whether 1/2/2024 is the first of February; ``None`` if no date had this form: then its separator
            decides.
        center: Mean of the days.
        scale: Their standard deviation.
        cycles: Those of ``month``, ``weekday`` and ``hour`` that vary.
        number: Whether the days vary.
        flag: Whether a feature marks blank cells.
        dated: Whether cells are dates, with or without a time; otherwise times of day.
        low: The first of the fitted days; ``None`` if it was not kept.
        high: The last.
    """

    kind: ClassVar[str] = "date"
    name: str
    day_first: bool | None
    center: float
    scale: float
    cycles: tuple[str, ...]
    number: bool
    flag: bool
    dated: bool = True
    low: float | None = None
    high: float | None = None

    @classmethod
    def fit(cls, series: pl.Series) -> tuple[DateColumn | None, list[str]]:
        """The fitted column, or ``None`` if it is constant; and what users may not expect."""
        moments, day_first = _moments(series, None)
        known = moments.seconds[~np.isnan(moments.seconds)]
        said = []
        if moments.mixed:
            order = "day" if day_first else "month"
            said.append(
                "dates contradict one another: in some only the day can come first, in others only the month; if "
                f"both can, read with the {order} first"
            )
        elif moments.ambiguous:
            said.append(f"day and month could be swapped; read with the {'day' if day_first else 'month'} first")
        blank = moments.seconds.size - known.size
        flag = bool(known.size and blank >= COMMON_BLANKS * moments.seconds.size)
        if not known.size or (known.min() == known.max() and not flag):
            return None, said
        cycles = tuple(
            name
            for name in _CYCLES
            if (moments.has_date or name == "hour")
            and (moments.has_time or name != "hour")
            and np.unique(_phase(known, name).astype(np.int64)).size > 2
        )
        center, scale = standardized(known / _DAY)
        varies = bool(known.min() < known.max())
        ends = (float(known.min()) / _DAY, float(known.max()) / _DAY)
        return cls(series.name, day_first, center, scale, cycles, varies, flag, moments.has_date, *ends), said

    def reads(self, series: pl.Series) -> npt.NDArray[np.bool_]:
        """Which cells hold a date, [rows]."""
        return np.asarray(~np.isnan(self._seconds(series)))

    def swapped(self, series: pl.Series) -> str | None:
        """A cell with day and month swapped, if this holds for most unambiguous cells; else ``None``."""
        text = text_values(series)
        a, slash, b, _ = _pairs(_days_alone(text)[1])
        leads = ~slash if self.day_first is None else np.full(len(a), self.day_first)
        as_fitted, other = np.where(leads, a, b) > 12, np.where(leads, b, a) > 12
        return str(text[int(other.argmax())]) if other.sum() > as_fitted.sum() else None

    def _seconds(self, series: pl.Series) -> npt.NDArray[np.float64]:
        moments, _ = _moments(series, self.day_first, self.dated, look=False)
        return moments.seconds if moments.has_date == self.dated else np.full(series.len(), np.nan)

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, width]; those of a blank cell are 0."""
        seconds = self._seconds(series)
        hole = np.isnan(seconds)
        parts = [(seconds / _DAY - self.center) / self.scale] if self.number else []
        for name in self.cycles:
            angle = 2 * np.pi * _phase(np.where(hole, 0.0, seconds), name) / _CYCLES[name]
            parts += [np.sin(angle), np.cos(angle)]
        parts = [np.clip(np.where(hole, 0.0, part), -1e4, 1e4) for part in parts]
        if self.flag:
            parts.append(hole.astype(np.float64))
        return np.stack(parts, axis=1).astype(np.float32)

    def feature_names(self) -> list[str]:
        """Names of the number, the cycles and the flag."""
        cycles = [f"{self.name} ({part} of {cycle})" for cycle in self.cycles for part in ("sine", "cosine")]
        return [*([self.name] if self.number else []), *cycles, *([f"{self.name} (blank)"] if self.flag else [])]

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> DateColumn:
        """Rebuild a column from :meth:`to_json`."""
        flags: dict[str, Any] = {key: bool(content[key]) for key in ("number", "flag", "dated")}
        flags["day_first"] = None if content["day_first"] is None else bool(content["day_first"])
        cycles = tuple(name for name in _CYCLES if name in content["cycles"])
        low, high = (None if content.get(key) is None else float(content[key]) for key in ("low", "high"))
        center, scale = float(content["center"]), float(content["scale"])
        check_finite(center, *(end for end in (low, high) if end is not None), scale=scale)
        return cls(str(content["name"]), center=center, scale=scale, cycles=cycles,
                   **flags, low=low, high=high)  # fmt: skip


def _moments(
    series: pl.Series, day_first: bool | None, has_date: bool | None = None, *, look: bool = True
) -> tuple[Moments, bool | None]:
    import polars as pl

    if is_text(series) or series.dtype.is_integer():
        return parse_dates(text_values(series), day_first, has_date, look=look)
    if series.dtype == pl.Time:
        seconds = series.cast(pl.Int64).cast(pl.Float64) / 1e9
        return Moments(seconds.fill_null(float("nan")).to_numpy().astype(np.float64), True, False), None
    if not series.dtype.is_temporal():
        return Moments(np.full(series.len(), np.nan), False), None
    micro = series.cast(pl.Datetime("us")).cast(pl.Int64).cast(pl.Float64) / 1e6
    seconds = micro.fill_null(float("nan")).to_numpy().astype(np.float64)
    return Moments(seconds, bool((np.nan_to_num(seconds) % _DAY != 0).any())), None


def _days_alone(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Cells without their time of day, and without the weekday too."""
    day = _rewritten(text).str.replace(_TIME, "").str.strip_chars()
    return day, day.str.replace(_WEEKDAY, "")


def _rewritten(text: pl.Series) -> pl.Series:
    for pattern, form in _REWRITTEN.items():
        text = text.str.replace(pattern, form)
    return text.str.strip_chars()


def _pairs(day: pl.Series) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_], npt.NDArray[Any], npt.NDArray[Any]]:
    """For cells such as 1/2/2024: the first number, whether a slash follows it, the second number, and the year."""
    parts = day.str.extract_groups(_PAIR).struct.unnest()
    first, sign, second, year = (parts[c] for c in parts.columns)
    slash = (sign == "/").fill_null(False).to_numpy()
    return _integer(first), slash, _integer(second), _integer(year)


def _phase(seconds: npt.NDArray[np.float64], cycle: str) -> npt.NDArray[np.float64]:
    if cycle == "hour":
        return (seconds % _DAY) / 3600
    days = np.floor(seconds / _DAY)
    if cycle == "weekday":
        return (days + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0
    months = np.clip(days, -1e7, 1e7).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return (months % 12).astype(np.float64)


def _clock(groups: list[pl.Series]) -> npt.NDArray[np.float64]:
    """Seconds of the day, in UTC if a zone is given; NaN if there is no valid time."""
    import polars as pl

    hour, minute = (_integer(g) for g in groups[:2])
    second = groups[2].str.replace(",", ".").cast(pl.Float64, strict=False).fill_null(0.0).to_numpy()
    half = groups[3].str.to_lowercase().fill_null("").to_numpy().astype(object)
    hour = np.where((half == "p") & (hour < 12), hour + 12, np.where((half == "a") & (hour == 12), 0, hour))
    zone = groups[4].str.extract_groups(r"^([+-])(\d{2}):?(\d{2})?$").struct.unnest()
    sign, hours, minutes = (zone[c] for c in zone.columns)
    offset = np.nan_to_num(_integer(hours) * 3600) + np.nan_to_num(_integer(minutes) * 60)
    offset = np.where((sign == "-").fill_null(False).to_numpy(), -offset, offset)
    valid = (hour < 24) & (minute < 60) & (second < 61)
    return np.where(valid, hour * 3600 + minute * 60 + second - offset, np.nan)


def _integer(part: pl.Series) -> npt.NDArray[np.float64]:
    """A group of digits or a month's name as a number; NaN for anything else."""
    import polars as pl

    number = part.cast(pl.Float64, strict=False)
    if number.null_count() > part.null_count():
        word = part.str.to_lowercase()
        longer = word.str.slice(0, 4).replace_strict(_LONGER_MONTHS, default=None, return_dtype=pl.Float64)
        number, start = number.fill_null(longer), word.str.slice(0, 3)
        names = {name[:3]: float(m) for m, all_names in _MONTHS.items() for name in all_names.split()}
        number = number.fill_null(start.replace_strict(names, default=None, return_dtype=pl.Float64))
    return np.asarray(number.fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _days(year: Any, month: Any, day: Any) -> npt.NDArray[np.float64]:
    """Days since 1970-01-01 of a date, NaN if it does not exist; two-digit years are 1970 to 2069."""
    year = np.where(year < 70, year + 2000, np.where(year < 100, year + 1900, year))
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (year >= 1) & (year <= 9999)
    y, m = np.where(valid, year, 1970).astype(np.int64), np.where(valid, month, 1).astype(np.int64)
    start = ((y - 1970) * 12 + m - 1).astype("datetime64[M]")
    length = ((start + 1).astype("datetime64[D]") - start.astype("datetime64[D]")).astype(np.int64)
    first = start.astype("datetime64[D]").astype(np.int64)
    return np.where(valid & (day <= length), first + np.nan_to_num(day) - 1, np.nan)
