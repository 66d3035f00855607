"""Readers of all kinds of files with named columns, and which of them reads a file."""

from __future__ import annotations

import itertools
import json
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sobgnn._system.files import check_regular
from sobgnn._system.packages import installed
from sobgnn.tables.columns.names import shortened
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.pictures import SUFFIXES as PICTURE_SUFFIXES
from sobgnn.tables.pictures import UNREAD, find_pictures, folder_labels, unlabeled_notes
from sobgnn.tables.reading.formats import Layout, find_encoding, find_layout, read_header, text_blocks
from sobgnn.tables.reading.records import CsvRows

_KINDS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".csv.gz": "csv", ".tsv.gz": "csv", ".txt.gz": "csv",
    ".parquet": "parquet", ".xlsx": "excel", ".xlsm": "excel", ".json": "json", ".json.gz": "json", ".jsonl": "lines",
    ".ndjson": "lines", ".jsonl.gz": "lines", ".ndjson.gz": "lines", ".npz": "npz", ".npy": "npz",
}  # fmt: skip
SUFFIXES = tuple(_KINDS)
_BATCH_CELLS = 4 * 2**20
_PICTURES_AT_ONCE = 1024
# Rows by which the header of a sheet is found.
_SAMPLE_ROWS = 200
# Excel sheets are held with all cells between the outermost ones: at most so many, or so many times as are filled.
_SHEET_CELLS, _SHEET_SHARE = 2**26, 16
# Bytes of an unpacked Excel file, and how many times those of the packed one, from which it is no sheet's.
_UNPACKED, _PACKED_SHARE = 2**29, 200
_PLACE = re.compile(rb"""r=["']([A-Z]{1,3})(\d{1,7})["']""")


def file_kind(path: Path, encoding: str | None = None, sheet: str | None = None) -> str:
    """``csv``, ``parquet``, ``excel``, ``json``, ``lines``, ``npz`` or ``pictures``, a folder; raises if it is none.

    Raises also if there is a character encoding or a sheet, and the kind has none.
    """
    kind = "pictures" if path.is_dir() else _kind(path)
    for option, value, own, files in (("encoding", encoding, "csv", "text"), ("sheet", sheet, "excel", "Excel")):
        if value is not None and kind != own:
            raise ValueError(f"--{option} is for {files} files, but {str(path)!r} is not one. Leave it out.")
    return kind


def _kind(path: Path) -> str:
    if not path.exists():
        raise ValueError(f"There is no file {str(path)!r}.")
    check_regular(path)
    name = path.name.lower()
    for suffix, kind in _KINDS.items():
        if name.endswith(suffix):
            return kind
    if name.endswith((*PICTURE_SUFFIXES, *UNREAD)):
        raise ValueError(f"Pictures are given as a folder, but got the file {path.name!r}. Put it into a folder.")
    hint = " Save the sheet as .xlsx or CSV." if name.endswith((".xls", ".xlsb", ".ods")) else ""
    raise ValueError(f"The file's name must end in {', '.join(SUFFIXES)}, but got {path.name!r}.{hint}")


@dataclass(frozen=True)
class Reader:
    """Rows of a file as tables."""

    layout: Layout
    # Consecutive rows: of CSV, Parquet and JSON lines so many at a time that memory does not grow with the file.
    frames: Callable[[], Iterable[pl.DataFrame]]
    late: Callable[[], list[str]] = list  # what users may not expect, once all rows are read, beside the layout's notes

    def table(self) -> pl.DataFrame:
        """All rows."""
        parts = list(self.frames())
        return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(self.layout.columns, pl.String))


def open_reader(
    path: Path,
    label: str | None = None,
    expected: Collection[str] = (),
    encoding: str | None = None,
    sheet: str | None = None,
    *,
    whole: bool = False,
) -> Reader:
    """The reader of a file or a folder of pictures.

    Args:
        path: Anything but NPZ and NPY.
        label: A column that the caller expects; a first row that holds it is the header.
        expected: Columns of which the same holds for all together.
        encoding: Character encoding of a text file; ``None`` detects it.
        sheet: Name of a sheet of an Excel file; ``None`` for the only one.
        whole: Whether all rows are read at once: types of JSON's columns depend on them.
    """
    kind = file_kind(path)
    if kind == "csv":
        rows = CsvRows(path, find_layout(path, label, expected, encoding))
        return Reader(rows.layout, rows.frames, rows.notes)
    if kind == "excel":
        return _excel(path, sheet, label, expected)
    if kind == "parquet":
        return _parquet(path)
    if kind == "pictures":
        return _pictures(path)
    objects = _json_objects if kind == "json" else _line_objects
    held = [list(itertools.chain(*objects(path)))] if whole or kind == "json" else None

    def parts() -> Iterable[list[dict[str, Any]]]:
        return objects(path) if held is None else held

    keys = tuple(dict.fromkeys(key for part in parts() for row in part for key in row))
    return Reader(Layout(keys), lambda: (_as_table(part, keys) for part in parts() if part))


def _parquet(path: Path) -> Reader:
    """A few million cells at a time; polars skips the row groups that a slice does not touch."""
    layout = Layout(tuple(pl.read_parquet_schema(path)))

    def frames() -> Iterator[pl.DataFrame]:
        scan = pl.scan_parquet(path, glob=False)
        total = int(scan.select(pl.len()).collect().item())
        step = max(1, _BATCH_CELLS // max(1, len(layout.columns)))
        return (scan.slice(first, step).collect() for first in range(0, total, step))

    return Reader(layout, frames)


def _excel(path: Path, sheet: str | None, label: str | None, expected: Collection[str]) -> Reader:
    """One sheet, held in memory. All cells are text, so that the rules for CSV files read them."""
    if not installed("fastexcel"):
        raise ValueError(
            f'{path.name} needs the package fastexcel: install it with `pip install "sobgnn[excel]"`, or save the '
            "sheet as CSV."
        )
    import fastexcel

    _check_book(path)
    book = fastexcel.read_excel(path)
    names = [name for name in book.sheet_names if sheet is None or name == sheet]
    sheets = {name: book.load_sheet(name, header_row=None, dtypes="string") for name in names}
    filled = {name: held.to_polars() for name, held in sheets.items() if held.height or name == sheet}
    if sheet is not None and not filled:
        raise ValueError(f"--sheet names {sheet!r}, but {path.name} has {_quoted(book.sheet_names)}.")
    if len(filled) > 1:
        raise ValueError(f"{path.name} has {len(filled)} sheets: {_quoted(list(filled))}. Name one with --sheet.")
    cells = next(iter(filled.values()), pl.DataFrame())
    cells = cells[[series.name for series in cells if series.null_count() < series.len()]]
    # A title in the first cell has no others beside it.
    sample = [[cell or "" for cell in row] for row in cells.head(_SAMPLE_ROWS).iter_rows()]
    sample = [row if any(row[1:]) else row[:1] for row in sample]
    layout = read_header(sample, path.name, label, expected)
    cells = cells.slice(layout.skip)
    cells.columns = list(layout.columns)
    return Reader(layout, lambda: [cells] if cells.height else [])


def _check_book(path: Path) -> None:
    """Raise a ValueError if an Excel file would take memory that has nothing to do with its size.

    Its reader ends the whole process where memory is short.
    """
    packed, size = path.stat().st_size, 0
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            filled, rows, columns, end = 0, 0, 0, b""
            with archive.open(entry) as file:
                while block := file.read(2**22):
                    size += len(block)
                    if size > max(_UNPACKED, _PACKED_SHARE * packed):
                        raise ValueError(f"{path.name} cannot be read: its {packed:,} bytes unpack to over {size:,}.")
                    places = _PLACE.findall(end + block)
                    filled, end = filled + len(places), block[-20:]
                    rows = max([rows, *(int(row) for _, row in places)])
                    columns = max([columns, *(_column_number(name) for name in {name for name, _ in places})])
            if rows * columns > max(_SHEET_CELLS, _SHEET_SHARE * filled):
                raise ValueError(
                    f"{path.name} cannot be read: it has {filled:,} cells, spread over {rows:,} rows and {columns:,} "
                    "columns. Delete those far from the table, or save it as CSV."
                )


def _column_number(name: bytes) -> int:
    """The number of a column by its letters: A is 1, Z 26, AA 27."""
    number = 0
    for letter in name:
        number = 26 * number + letter - ord("A") + 1
    return number


def _pictures(path: Path) -> Reader:
    """The names of the pictures in a folder, and the subfolders that they are in."""
    names, notes = find_pictures(path)
    parts = [names[first : first + _PICTURES_AT_ONCE] for first in range(0, len(names), _PICTURES_AT_ONCE)]
    kinds = {"image": pl.String, "label": pl.String}
    return Reader(
        Layout(("image", "label"), notes),
        lambda: (pl.DataFrame({"image": part, "label": folder_labels(part)}, schema=kinds) for part in parts),
        lambda: unlabeled_notes(names),
    )


def _as_table(rows: list[dict[str, Any]], keys: Collection[str]) -> pl.DataFrame:
    return as_frame({key: [row.get(key) for row in rows] for key in keys})


def _json_objects(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The objects of a JSON file of records, a list of them, all at once."""
    text = "".join(text_blocks(path, find_encoding(path)[0])).removeprefix("\ufeff")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = " If it has one object per line, name it .jsonl." if str(error).startswith("Extra data") else ""
        raise ValueError(f"{path.name} is not JSON: {' '.join(str(error).split())[:120]}.{lines}") from None
    held = rows if isinstance(rows, list) else [rows]
    wrong = next((number for number, row in enumerate(held) if not isinstance(row, dict)), None)
    if held is not rows or wrong is not None:
        where = f"item {wrong} is" if held is rows else "it holds"
        raise ValueError(
            f'{path.name} must hold a list of objects, [{{"column": value, …}}, …], but {where} '
            f"{shortened(json.dumps(held[wrong or 0])[:60])}."
        )
    yield rows


def _line_objects(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The objects of JSON lines in order, a few million characters at a time; blank lines are skipped."""
    number = 0
    for block in text_blocks(path, find_encoding(path)[0]):
        found = []
        for line in block.removesuffix("\n").split("\n"):
            number += 1
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                raise ValueError(
                    f"{path.name} must hold one JSON object per line, but line {number} is {shortened(line.strip())}."
                )
            found.append(value)
        yield found


def _quoted(names: Collection[str]) -> str:
    return ", ".join(map(shortened, names))
