"""CSV and Parquet files, and JSON lines, as polars tables: at once, or in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sobgnn.tables.columns import clean_names, empty_rows, is_text, label_names, shortened, text_values
from sobgnn.tables.formats import Layout, find_layout
from sobgnn.tables.kinds import identifies_rows, looks_like_id
from sobgnn.tables.lines import is_lines, read_lines
from sobgnn.tables.records import CsvReader

if TYPE_CHECKING:
    import polars as pl

_BATCH_CELLS = 4 * 2**20


def read_frame(
    path: Path,
    label: str | None,
    identity: str | None,
    drop: Sequence[str],
    need_labels: bool = True,
    encoding: str | None = None,
) -> tuple[pl.DataFrame, str | None, str | None, list[str], str]:
    """The table with cleaned names, the names of its label and id columns, notes, and the separator of its cells.

    If no id column is given, it is a column named id whose values do not repeat, or else detected from the cells.
    """
    import polars as pl

    notes: list[str] = []
    layout = frame = None
    if is_parquet(path):
        columns = list(pl.read_parquet_schema(path))
    elif is_lines(path):
        frame = read_lines(path)
        columns = frame.columns
    else:
        layout = find_layout(path, label, encoding=encoding)
        columns, notes = list(layout.columns), layout.notes
    headless = layout is not None and not layout.has_header
    label = _find_label(columns, label, path.name, need_labels, headless)
    for name, option in [(identity, "--id"), *((name, "--drop") for name in drop)]:
        if name is not None and name not in [column.strip() for column in columns]:
            raise ValueError(f"{option} names {name!r}, but {_no_column(name, columns, path.name)}")
    for name in (label, identity):
        if name is not None and layout is not None:
            _check_single(name, layout, drop, path.name)
    if frame is None and layout is None:
        frame = clean_names(pl.read_parquet(path))
    elif layout is not None:
        reader = CsvReader(path, layout)
        parts = list(reader.frames())
        frame = pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
        notes = [*notes, *reader.repairs.notes()]
    if frame is None or not frame.height:
        raise ValueError(f"{path.name} has no rows.")
    if identity is None:
        identity, said = _find_id(frame.drop([c for c in (label, *drop) if c in frame.columns]))
        notes += said
    return frame, label, identity, notes, "," if layout is None else layout.separator


def _find_id(frame: pl.DataFrame) -> tuple[str | None, list[str]]:
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


def is_parquet(path: Path) -> bool:
    """Whether the name is that of a Parquet file."""
    return path.name.lower().endswith(".parquet")


def _find_label(columns: Sequence[str], label: str | None, file: str, needed: bool, headless: bool) -> str | None:
    if label is not None:
        found = [c.strip() for c in columns if c.strip() == label or " ".join(c.split()) == " ".join(label.split())]
        if not found:
            raise ValueError(f"--label names {label!r}, but {_no_column(label, columns, file)}")
        return found[0]
    named = label_names(columns)
    if named:
        return named[0].strip()
    if not needed:
        return None
    if headless:
        raise ValueError(
            f"The first line of {file} looks like data, not like column names, so columns are called "
            f"column_1 to column_{len(columns)}. Name the label column with --label."
        )
    raise ValueError(
        f"{file} has no column named label, y, class or target (it has {_some(columns)}). "
        "Name the label column with --label, or begin without labels: `sobgnn label` opens a page to label in."
    )


def _check_single(column: str, layout: Layout, drop: Sequence[str], file: str) -> None:
    """Raise if another column has the name of the one with labels or ids: it would become a feature."""
    name = layout.repeats.get(column, column)
    others = [c for c in layout.columns if c not in (column, *drop) and layout.repeats.get(c, c) == name]
    if others:
        raise ValueError(
            f"{file} has more than one column {shortened(name)}. Rename the others, or leave them out: "
            f"--drop {others[0]}."
        )


def csv_frames(
    path: Path,
    check: Callable[[Layout], None] | None = None,
    names: Collection[str] = (),
    encoding: str | None = None,
) -> Iterator[pl.DataFrame]:
    """Tables of consecutive rows, all columns as text, from blocks of the file; ``check`` gets its layout first.

    A first row that holds all of ``names`` is the header.
    """
    layout = find_layout(path, expected=names, encoding=encoding)
    if check is not None:
        check(layout)
    yield from CsvReader(path, layout).frames()


def parquet_frames(path: Path) -> Iterator[pl.DataFrame]:
    """Tables of consecutive rows; polars skips the row groups that a slice does not touch."""
    import polars as pl

    scan = pl.scan_parquet(path, glob=False)
    width = max(1, len(pl.read_parquet_schema(path)))
    total = int(scan.select(pl.len()).collect().item())
    step = max(1, _BATCH_CELLS // width)
    for first in range(0, total, step):
        yield scan.slice(first, step).collect()


def _no_column(name: str, columns: Sequence[str], file: str) -> str:
    """The end of an error: the file's columns, and one that may be meant."""
    from difflib import get_close_matches

    folded = {column.strip().casefold(): column.strip() for column in columns}
    close = get_close_matches(name.strip().casefold(), folded, 1)
    meant = f" Did you mean {folded[close[0]]!r}?" if close else ""
    return f"the columns of {file} are {_some(columns)}.{meant}"


def _some(columns: Sequence[str]) -> str:
    return ", ".join(shortened(c.strip()) for c in columns[:8]) + (", …" if len(columns) > 8 else "")
