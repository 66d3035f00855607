"""Columns whose cells are vectors: Parquet lists, arrays, or text such as [0.1, 0.2]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from sobgnn.tables.columns import Arrays, is_text, text_values

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class VectorColumn:
    """Vectors of one length, centered; a blank cell, or one of another length, becomes the mean.

    Args:
        name: As in the table.
        center: Mean of the vectors, [width].
    """

    kind: ClassVar[str] = "vectors"
    name: str
    center: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, series: pl.Series) -> tuple[VectorColumn | None, list[str]]:
        """The fitted column, or ``None`` if cells are not vectors of one length or are all the same."""
        lists = as_lists(series)
        length = None if lists is None else lists.list.len().drop_nulls()
        if lists is None or length is None or not length.len():
            return None, []
        width = int(length.mode().sort()[0])
        if not width or (length == width).mean() < 0.9:  # type: ignore[operator]
            return None, ["vectors of different lengths"]
        values, hole = _matrix(lists, width)
        known = values[~hole]
        if not len(known) or not np.ptp(known, axis=0).any():
            return None, []
        said = [f"{int(hole.sum()):,} blank or of another length, set to the mean"] if hole.any() else []
        return cls(series.name, known.mean(axis=0)), said

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, width]."""
        lists = as_lists(series)
        width = len(self.center)
        if lists is None:
            return np.zeros((series.len(), width), np.float32)
        values, hole = _matrix(lists, width)
        return np.where(hole[:, None], 0.0, values - self.center).clip(-1e30, 1e30).astype(np.float32)

    def feature_names(self) -> list[str]:
        """The column's name with the coordinate's number."""
        return [f"{self.name} [{i}]" for i in range(len(self.center))]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": self.name}

    def arrays(self) -> Arrays:
        """The mean."""
        return {"center": self.center}

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> VectorColumn:
        """Rebuild a column from :meth:`to_json` and :meth:`arrays`."""
        center = arrays["center"].astype(np.float64)
        if center.ndim != 1 or not center.size:
            raise ValueError("shapes of the arrays")
        return cls(str(content["name"]), center)


def as_lists(series: pl.Series) -> pl.Series | None:
    """Lists of numbers, null for cells without one; ``None`` if the column holds something else."""
    import polars as pl

    target = pl.List(pl.Float64)
    if is_text(series):
        text = text_values(series)
        known = text.drop_nulls()
        if not known.len() or not known.str.contains(r"^\[[-+\d.eE,;\s]*\]$").all():
            return None
        parts = text.str.strip_chars("[] \n").str.replace_all(r"[,;\s]+", " ").str.split(" ")
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
    import polars as pl

    good = (
        (lists.list.len() == width) & (lists.list.eval(pl.element().is_finite().fill_null(False)).list.all())
    ).fill_null(False)
    out = np.zeros((lists.len(), width))
    out[good.to_numpy()] = lists.filter(good).explode().to_numpy().reshape(-1, width)
    hole = ~good.to_numpy() | (np.abs(out) > 1e30).any(axis=1)
    out[hole] = 0
    return out, hole
