"""The roles of columns: which holds the labels, which identifies rows, and which give the label away."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt
import polars as pl

from sobgnn.tables.columns.base import empty_rows, is_text, text_values
from sobgnn.tables.columns.names import label_names, shortened
from sobgnn.tables.kinds import identifies_rows, looks_like_id
from sobgnn.tables.reading.formats import Layout

# A column came with the labels if it is blank in at most this share of labeled rows and filled in at most this share of
# unlabeled rows, with at least this number of each.
_FEWEST_ROWS, _MOST_BLANK, _MOST_FILLED = 10, 0.1, 0.02
# A column that determines the label: maximum number of values, and least number of labeled rows per value on average.
_MOST_VALUES, _FEWEST_EACH = 40, 10


def find_label(layout: Layout, label: str | None, file: str, needed: bool) -> str | None:
    """The name of the label column: the one asked for, or one that is called so.

    ``None`` where there need not be one: it is missing, and no other column is taken for it.
    """
    columns = [column.strip() for column in layout.columns]
    if label is not None:
        found = [column for column in columns if " ".join(column.split()) == " ".join(label.split())]
        if not found and not needed:
            return None
        if not found:
            raise ValueError(f"--label names {label!r}, but {_no_column(label, columns, file)}")
        return label if label in found else found[0]
    named = label_names(columns)
    if named or not needed:
        return named[0] if named else None
    if not layout.has_header:
        raise ValueError(
            f"The first line of {file} looks like data, not like column names, so columns are called "
            f"column_1 to column_{len(columns)}. Name the label column with --label."
        )
    raise ValueError(
        f"{file} has no column named label, y, class or target (it has {_some(columns)}). "
        "Name the label column with --label, or begin without labels: `sobgnn label` opens a page to label in."
    )


def check_columns(
    layout: Layout, label: str | None, identity: str | None, drop: Sequence[str], text: Sequence[str], file: str
) -> None:
    """Raise if an option names a column that does not exist, or one that has another role."""
    columns = [column.strip() for column in layout.columns]
    asked = [(identity, "--id"), *((name, "--drop") for name in drop), *((name, "--text") for name in text)]
    for name, option in asked:
        if name is not None and name not in columns:
            raise ValueError(f"{option} names {name!r}, but {_no_column(name, columns, file)}")
        if name is not None and name == label:
            raise ValueError(f"{option} names {name!r}, but column {label!r} holds the labels. Name another.")
    if identity in text:
        raise ValueError(f"--text names {identity!r}, but column {identity!r} holds the ids. Name another.")
    for column in (label, identity):  # another column of that name would become a feature
        name = None if column is None else layout.repeats.get(column, column)
        others = [c for c in layout.columns if c not in (column, *drop) and layout.repeats.get(c, c) == name]
        if others:
            raise ValueError(
                f"{file} has more than one column {shortened(name)}. Rename the others, or leave them out: "
                f"--drop {others[0]}."
            )


def find_id(frame: pl.DataFrame) -> tuple[str | None, list[str]]:
    """The column of ids, if there is one, and a sentence about one that is named id but is none.

    Rows that are entirely empty are ignored. A column whose values all differ is preferred.
    """
    filled = frame.filter(~empty_rows(frame))
    cells = {
        column.name: text_values(column) if is_text(column) else column
        for column in filled.get_columns()
        if not column.dtype.is_nested()
    }
    named = [name for name, column in cells.items() if name.lower() == "id" and column.n_unique() == filled.height]
    notes = [
        f"Column {name!r} repeats values, so it is a feature. If it should not be, leave it out: --drop {name}."
        for name, column in cells.items()
        if name.lower() == "id" and name not in named and not identifies_rows(column)
    ]
    found = named or [name for name, column in cells.items() if looks_like_id(column)]
    found = found or [name for name, column in cells.items() if identifies_rows(column)]
    return found[0] if found and frame.width > 1 else None, notes


def check_id(series: pl.Series) -> None:
    """Raise if most cells of a column that was named as the id repeat others."""
    distinct = text_values(series).fill_null("").n_unique()
    if 2 * distinct < series.len():
        raise ValueError(
            f"--id names {series.name!r}, but its {distinct:,} values do not identify {series.len():,} rows."
        )


def id_notes(series: pl.Series) -> list[str]:
    """Which column names the rows, and how many rows share their name with another."""
    known = text_values(series).drop_nulls()
    repeated = known.filter(known.is_duplicated())
    such = f" {repeated.len():,} rows share theirs with others, such as {shortened(repeated.first())}."
    return [f"Rows are named by column {series.name!r}, which is no feature then.{such if repeated.len() else ''}"]


def filled_with_labels(frame: pl.DataFrame, labeled: npt.NDArray[np.bool_]) -> list[str]:
    """Columns that came with the labels: blank for unlabeled rows, they may contain the label for the others."""
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


def _no_column(name: str, columns: Sequence[str], file: str) -> str:
    """The end of an error: the file's columns, the one that may be meant first."""
    folded = {column.strip().casefold(): column.strip() for column in columns}
    close = [folded[key] for key in get_close_matches(name.strip().casefold(), folded, 1)]
    meant = f" Did you mean {close[0]!r}?" if close else ""
    return f"the columns of {file} are {_some([*close, *(c for c in columns if c.strip() not in close)])}.{meant}"


def _some(columns: Sequence[str]) -> str:
    return ", ".join(shortened(c.strip()) for c in columns[:8]) + (", …" if len(columns) > 8 else "")
