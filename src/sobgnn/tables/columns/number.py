"""Columns of numbers: standardized, with blanks and sentinels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from sobgnn.tables.columns.base import COMMON_BLANKS, Cells, Choice, Column, Mask, is_text, standardized, text_values
from sobgnn.tables.columns.names import shortened
from sobgnn.tables.columns.number_format import NumberFormat, parse_numbers

LARGEST = float(np.finfo(np.float32).max)
# Values that mean "not measured" in many files, if they are far from all others.
SENTINELS = (-9999999.0, -999999.0, -99999.0, -9999.0, -999.0, -99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0)
# The standard deviation, as a multiple of the interquartile range, from which a few cells hide all others; and the
# largest feature of such a column.
_HIDING, _NEAR = 1e4, 20.0


@dataclass(frozen=True)
class NumberColumn(Column):
    """One number per row, centered and divided by its standard deviation.

    .. math:: z = \\operatorname{clip}((x - m) / s, -c, c)

    with m, s the mean and standard deviation of the fitted values that are not blank; if a few of them are so large
    that all others would look equal, the median and the interquartile range over 1.35. Blank cells, infinities,
    sentinels and words get the median; if they are common, a second feature flags them.
    """

    kind: ClassVar[str] = "number"
    style: NumberFormat
    fill: float  # the median, for cells without a number
    center: float  # m
    scale: float  # s
    clip: float  # c
    flag: bool  # whether a second feature marks cells without a number
    low: float  # the smallest of the fitted values
    high: float  # the largest
    sentinels: tuple[float, ...] = ()  # values that count as blank
    # The 5 % and 95 % quantiles of the fitted values, if every fitted number had the unit or currency.
    usual: tuple[float, float] | None = None

    @classmethod
    def fit(cls, series: pl.Series, style: NumberFormat) -> Choice:
        """The fitted column: none if all numbers are equal, or too large for float32."""
        cells = parse_numbers(series, style)
        infinite = int((np.abs(cells.values) > LARGEST).sum())
        notes = [f"{infinite:,} infinite or too large"] if infinite else []
        sentinels = find_sentinels(_without(cells.values, ()))
        number = _without(cells.values, sentinels)
        if sentinels:
            lost = int(np.isin(cells.values, sentinels).sum())
            notes.append(f"{', '.join(f'{v:g}' for v in sentinels)} treated as blank {lost:,} times")
        notes += _words(series, cells)
        known = number[~np.isnan(number)]
        blank = number.size - known.size
        flag = bool(known.size and blank >= COMMON_BLANKS * number.size)
        if not known.size or (known.min() == known.max() and not flag):
            return Choice(None, "constant" if known.size else "too large", notes, blank=blank)
        center, scale = standardized(known)
        low, middle, high = (float(q) for q in np.quantile(known, (0.25, 0.5, 0.75)))
        clip = 1e4
        if float(known.std()) > _HIDING * (high - low) > 0:
            center, scale, clip = middle, (high - low) / 1.35, _NEAR
            beyond = known[np.abs(known - center) > clip * scale]
            count = "1 cell" if beyond.size == 1 else f"{beyond.size:,} cells"
            notes.append(f"{count} far beyond all others ({beyond[np.abs(beyond).argmax()]:g}) clipped")
        usual = None
        bare = cells.odd & ~np.isnan(number)
        if style.sign and bare.any():
            notes.append(_without_sign(number, bare, style))
        elif style.sign:
            usual = (float(np.quantile(known, 0.05)), float(np.quantile(known, 0.95)))
        ends = (float(known.min()), float(known.max()))
        column = cls(series.name, style, middle, center, scale, clip, flag, *ends, sentinels, usual)
        return Choice(column, "number", [*_style_notes(series, style), *notes], replace(cells, values=number), blank)

    def parse(self, series: pl.Series) -> Cells:
        """Numbers, NaN where there is none; sentinels, infinities and what is too large count as blank."""
        cells = parse_numbers(series, self.style)
        return replace(cells, values=_without(cells.values, self.sentinels))

    def check(self, series: pl.Series, cells: Cells) -> None:
        """Raise if at least half of the filled cells are not numbers."""
        check_numbers(series, cells, self.style)

    def known(self, cells: Cells) -> Mask:
        """Which cells hold a number that does not count as blank, [rows]."""
        return np.asarray(~np.isnan(cells.values))

    def beyond(self, cells: Cells) -> Mask:
        """Which cells are farther outside the fitted range than its width, [rows]."""
        span = self.high - self.low
        return np.asarray((cells.values < self.low - span) | (cells.values > self.high + span))

    def unsigned(self, cells: Cells) -> Mask:
        """Which cells lack the unit or currency of all fitted ones, [rows]; none if they have the usual magnitude.

        A share written as 0.32 instead of 32 % is also a number, but a hundred times too small.
        """
        if self.usual is None:
            return np.zeros(len(cells.read), dtype=bool)
        bare = np.asarray(cells.odd & ~np.isnan(cells.values))
        return bare & bool(bare.any() and not self.usual[0] <= np.median(cells.values[bare]) <= self.usual[1])

    def encode(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Features float32 [rows, 1 or 2]."""
        hole = np.isnan(values)
        with np.errstate(over="ignore"):  # what overflows is clipped
            z = (np.where(hole, self.fill, values) - self.center) / self.scale
        parts = [np.clip(z, -self.clip, self.clip), *([hole] if self.flag else [])]
        return np.stack(parts, axis=1).astype(np.float32)

    def feature_names(self) -> list[str]:
        """The column's name, and the flag's."""
        return [self.name, *([f"{self.name} (blank)"] if self.flag else [])]


def _without(values: npt.NDArray[np.float64], sentinels: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """The values, with NaN in place of sentinels, infinities and what is too large."""
    return np.where(np.isin(values, sentinels) | (np.abs(values) > LARGEST), np.nan, values)


def check_numbers(series: pl.Series, cells: Cells, style: NumberFormat) -> None:
    """Raise if a column that must hold numbers holds something else in at least half of its filled cells."""
    if not is_text(series):
        if series.dtype.is_nested() or (series.dtype.is_temporal() and series.dtype != pl.Duration):
            raise ValueError(f"Column {series.name!r} must hold numbers, but holds {series.dtype}.")
        return
    wrong = np.flatnonzero(cells.filled & ~cells.read)
    if not wrong.size or 2 * wrong.size < cells.filled.sum():
        return
    other = replace(style, decimal="," if style.decimal == "." else ".", plain=False)
    held = text_values(series.gather(wrong))
    swapped = np.flatnonzero(parse_numbers(held, other).read)
    if 2 * swapped.size > wrong.size:  # the others may be words for missing numbers
        sign = {".": "point", ",": "comma"}
        raise ValueError(
            f"Column {series.name!r} had a decimal {sign[style.decimal]} when the model was fitted, but has a "
            f"decimal {sign[other.decimal]} here, as in {shortened(held[int(swapped[0])])}. Use the former."
        )
    raise ValueError(
        f"Column {series.name!r} must hold numbers{f' in {style.sign!r}' if style.sign else ''}, but row "
        f"{int(wrong[0])} (counted from 0) holds {shortened(held[0])}. Correct it, or leave the cell empty."
    )


def find_sentinels(number: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Values such as -999 that repeat, end the column's range, and are farther from the others than their spread."""
    known = number[~np.isnan(number)]
    found: list[float] = []
    for value in SENTINELS:
        count = int((known == value).sum())
        others = known[~np.isin(known, [value, *found])] if count > 1 else known[:0]
        if others.size < 3 or others.size < count / 4:
            continue
        low, high = float(others.min()), float(others.max())
        gap = low - value if value < 0 else value - high
        if gap > max(high - low, 1e-12) and (low >= 0 or gap > 3 * (high - low)):
            found.append(value)
    return tuple(found)


def _words(series: pl.Series, cells: Cells) -> list[str]:
    """The note about filled cells that are not numbers, words for missing ones among them."""
    text = text_values(series.filter(~cells.read)).drop_nulls() if is_text(series) else series[:0]
    if not text.len():
        return []
    count = "1 cell" if text.len() == 1 else f"{text.len():,} cells"
    return [f"{count} without a number ({shortened(text[0], 20)}) treated as blank"]


def _style_notes(series: pl.Series, style: NumberFormat) -> list[str]:
    text = series.cast(pl.String) if style.decimal == "," else series
    notes = ["k, M and the like multiply numbers"] if style.multiples else []
    if style.sign:
        notes.append(f"unit {style.sign!r} removed")
    if style.decimal == "," and text.str.contains(r"^\s*-?\d+(?:\.\d{3})+\s*$").any():
        notes.append("dots separate thousands")
    if style.decimal == "," and text.str.contains(",", literal=True).any():
        notes.append("decimal commas")
    return notes


def _without_sign(number: npt.NDArray[np.float64], bare: Mask, style: NumberFormat) -> str:
    """The note about fitted numbers without the unit that others have."""
    note = f"{int(bare.sum()):,} numbers without {style.sign!r} are read as if they had it"
    fractions = style.sign == "%" and np.nanmax(np.abs(number[bare])) <= 1 < np.nanmedian(np.abs(number[~bare]))
    return f"{note}, though they look like fractions of 1: use one form for all" if fractions else note
