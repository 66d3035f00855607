"""Columns whose cells are vectors: Parquet lists, arrays, or text such as [0.1, 0.2]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from sobgnn.tables.columns.base import Cells, Choice, Column, cells_of, is_text, text_values


@dataclass(frozen=True)
class VectorColumn(Column):
    """Vectors of one length, centered; a blank cell, or one of another length, becomes the mean."""

    kind: ClassVar[str] = "vectors"
    center: npt.NDArray[np.float64]  # mean of the vectors, [width]

    def __post_init__(self) -> None:
        """Raise ValueError if there is no vector."""
        super().__post_init__()
        if self.center.ndim != 1 or not self.center.size:
            raise ValueError("shapes of the arrays")

    @classmethod
    def fit(cls, series: pl.Series, lists: pl.Series) -> Choice:
        """The column of a series as lists: none if cells are not vectors of one length or are all the same."""
        length = lists.list.len().drop_nulls()
        if not length.len():
            return Choice(None, "constant")
        width = int(length.mode().sort()[0])
        if not width or (length == width).mean() < 0.9:  # type: ignore[operator]
            return Choice(None, "vectors of different lengths")
        values, hole = _matrix(lists, width)
        known = values[~hole]
        if not len(known) or not np.ptp(known, axis=0).any():
            return Choice(None, "constant")
        notes = [f"{int(hole.sum()):,} blank or of another length, set to the mean"] if hole.any() else []
        return Choice(cls(series.name, known.mean(axis=0)), "vectors", notes, cells_of(lists))

    def parse(self, series: pl.Series) -> Cells:
        """Lists of numbers."""
        lists = as_lists(series, all_cells=False)
        lists = pl.Series([None] * series.len(), dtype=pl.List(pl.Float64)) if lists is None else lists
        return cells_of(lists)

    def encode(self, values: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, width]."""
        matrix, hole = _matrix(values, len(self.center))
        return np.where(hole[:, None], 0.0, matrix - self.center).clip(-1e30, 1e30).astype(np.float32)

    def feature_names(self) -> list[str]:
        """The column's name with the coordinate's number."""
        return [f"{self.name} [{i}]" for i in range(len(self.center))]


def as_lists(series: pl.Series, *, all_cells: bool = True) -> pl.Series | None:
    """Lists of numbers, null for cells without one; ``None`` if the column holds something else.

    Text that is no list is something else, or counts as blank unless it must be ``all_cells``.
    """
    target = pl.List(pl.Float64)
    if is_text(series):
        text = text_values(series)
        fits = text.str.contains(r"^\[[-+\d.eE,;\s]*\]$")
        if all_cells and not (fits.any() and fits.all()):
            return None
        listed = text.set(~fits.fill_null(False), None).str.strip_chars("[] \n")
        parts = listed.str.replace_all(r"[,;\s]+", " ").str.split(" ")
        return parts.list.eval(pl.element().cast(pl.Float64, strict=False))
    if isinstance(series.dtype, pl.Array):
        while isinstance(series.dtype, pl.Array) and len(series.dtype.shape) > 1:
            series = series.reshape((series.len(), int(np.prod(series.dtype.shape))))
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List) and (series.dtype.inner.is_numeric() or series.dtype.inner == pl.Boolean):
        lists: pl.Series = series.cast(target)
        return lists
    return None


def _matrix(lists: pl.Series, width: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Vectors [rows, width], with zeros for cells that hold none, and a mask of these cells."""
    good = (
        (lists.list.len() == width) & (lists.list.eval(pl.element().is_finite().fill_null(False)).list.all())
    ).fill_null(False)
    out = np.zeros((lists.len(), width))
    out[good.to_numpy()] = lists.filter(good).explode().to_numpy().reshape(-1, width)
    hole = ~good.to_numpy() | (np.abs(out) > 1e30).any(axis=1)
    out[hole] = 0
    return out, hole
