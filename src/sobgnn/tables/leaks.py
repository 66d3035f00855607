"""Columns that give the label away: those that came with the labels, or determine them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sobgnn.tables.columns.base import text_values

if TYPE_CHECKING:
    import polars as pl

# A column came with the labels if it is blank in at most this share of labeled rows and filled in at most this share of
# unlabeled rows, with at least this number of each.
_FEWEST_ROWS, _MOST_BLANK, _MOST_FILLED = 10, 0.1, 0.02
# A column that determines the label: maximum number of values, and least number of labeled rows per value on average.
_MOST_VALUES, _FEWEST_EACH = 40, 10


def filled_with_labels(frame: pl.DataFrame, labeled: npt.NDArray[np.bool_]) -> list[str]:
    """Columns that came with the labels: blank for unlabeled rows, they may contain the label for the others."""
    import polars as pl

    if min(int(labeled.sum()), int((~labeled).sum())) < _FEWEST_ROWS:
        return []
    found = []
    for series in frame.get_columns():
        blank = (text_values(series) if series.dtype == pl.String else series).is_null().to_numpy()
        if blank[labeled].mean() <= _MOST_BLANK and (~blank[~labeled]).mean() <= _MOST_FILLED:
            found.append(series.name)
    return found


def telling_notes(frame: pl.DataFrame, codes: npt.NDArray[np.int64]) -> list[str]:
    """A sentence about a column of few values that determine the label, if there is one."""
    import polars as pl

    labeled = np.flatnonzero(codes >= 0)
    count = len(labeled)
    if len(np.unique(codes[labeled])) < 2:
        return []
    for series in frame[labeled].get_columns():
        odd = series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object, pl.Duration)
        if odd or not 2 <= series.n_unique() <= min(_MOST_VALUES, count // _FEWEST_EACH):
            continue
        places = text_values(series).rank("dense").fill_null(0).to_numpy().astype(np.int64)
        seen = np.zeros((places.max() + 1, int(codes.max()) + 1), dtype=bool)
        seen[places, codes[labeled]] = True
        seen = seen[seen.any(axis=1)]
        if (seen.sum(axis=1) == 1).all():
            return [
                f"Column {series.name!r} determines the label of all {count:,} labeled rows. If it is not known "
                f"before the label, leave it out: --drop {shlex.quote(series.name)}."
            ]
    return []
