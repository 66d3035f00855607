"""Rows of a text file as tables of text: what polars cannot parse is read record by record, and repaired."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sobgnn.tables.reading.formats import Layout, text_blocks

# A longer record began with a stray quote.
_LONGEST_RECORD = 4 * 2**20


@dataclass
class RowCount:
    """How many rows are of some kind, and the first of them."""

    count: int = 0
    first: int = 0

    def add(self, row: int, count: int = 1) -> None:
        """Count rows of the kind, of which ``row`` is the first; called in the order of the rows."""
        if not self.count:
            self.first = row
        self.count += count


class _Runaway(Exception):  # noqa: N818 - a signal, not an error
    """A quote was opened and never closed."""


class CsvRows:
    """Rows of a text file as tables whose cells are all text.

    Blocks without quotes and of regular lines are parsed by polars; others record by record, where a quote counts only
    at the beginning of a cell, and an unclosed quote is read literally.

    Args:
        path: The file.
        layout: Its columns.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout
        self._stray = self._rows = 0  # unclosed quotes, and rows read
        self._long, self._short = RowCount(), RowCount()  # rows with more cells than columns, and with fewer
        self._heads = 0  # rows that repeat the header, as in files that were joined
        self._header = [layout.repeats.get(column, column) for column in layout.columns]
        self._skip = layout.skip
        self._blank = 0  # blank lines that are rows only if another row follows
        self._patience = _LONGEST_RECORD  # characters that may still be read in vain before a quote is given up
        self._options: dict[str, Any] = {
            "delimiter": layout.separator, "quotechar": layout.quote, "escapechar": layout.escape,
        }  # fmt: skip

    def notes(self) -> list[str]:
        """What users may not expect, once all rows are read."""
        notes = [f"Unclosed quotes were read literally: {self._stray:,}."] if self._stray else []
        notes += [f"Lines that repeat the header were left out: {self._heads:,}."] if self._heads else []
        for rows, which, cells in (
            (self._long, "more", "were left out"),
            (self._short, "fewer", "are treated as blank"),
        ):
            if rows.count:
                number = f"{rows.count:,} (first: row {rows.first})"
                notes.append(f"Rows with {which} cells than columns: {number}. Their last cells {cells}.")
        return notes

    def frames(self) -> Iterator[pl.DataFrame]:
        """Consecutive rows, in tables of a few million characters."""
        open_lines: list[str] = []
        for block in itertools.chain(text_blocks(self.path, self.layout.encoding), [None]):
            if block and not open_lines and not self._skip and not self._blank and self._is_regular(block):
                yield self._count(self._fast(block))
                continue
            open_lines += [] if block is None else [f"{line}\n" for line in block.removesuffix("\n").split("\n")]
            rows, open_lines = self._records(open_lines, last=block is None)
            if self._skip:
                skipped = min(self._skip, len(rows))
                rows, self._skip = rows[skipped:], self._skip - skipped
            rows = [[]] * self._blank + rows
            self._blank = 0
            while rows and not rows[-1]:
                rows.pop()
                self._blank += 1
            if rows:
                yield self._count(self._table(rows))

    def _is_regular(self, block: str) -> bool:
        layout = self.layout
        if layout.quote in block or "\n\n" in block or block.startswith("\n") or "\r" in block:
            return False
        lines = block.count("\n") + (not block.endswith("\n"))
        return block.count(layout.separator) == lines * (len(layout.columns) - 1)

    def _fast(self, block: str) -> pl.DataFrame:
        return pl.read_csv(
            io.BytesIO(block.encode("utf-8", "replace")), has_header=False, separator=self.layout.separator,
            quote_char=None, schema=dict.fromkeys(self.layout.columns, pl.String),
        )  # fmt: skip

    def _table(self, rows: list[list[str]]) -> pl.DataFrame:
        width = len(self.layout.columns)
        for number, row in enumerate(rows):
            if len(row) > width:
                if any(cell.strip() for cell in row[width:]):
                    self._long.add(self._rows + number)
                rows[number] = row[:width]
            elif len(row) < width:
                if any(cell.strip() for cell in row):
                    self._short.add(self._rows + number)
                rows[number] = [*row, *[""] * (width - len(row))]
        cells = zip(*rows, strict=True)
        columns = [pl.Series(n, c, dtype=pl.String) for n, c in zip(self.layout.columns, cells, strict=True)]
        return pl.DataFrame(columns)

    def _count(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self.layout.has_header and frame.width > 1:
            pairs = zip(frame.columns, self._header, strict=True)
            heads = frame.select(pl.all_horizontal(pl.col(name).str.strip_chars() == head for name, head in pairs))
            self._heads += int(heads.to_series().sum())
            frame = frame.filter(~heads.to_series().fill_null(False))
        self._rows += frame.height
        if self._long.count > max(10, 0.1 * self._rows):
            raise ValueError(
                f"{self.path.name} has rows of more than {frame.width} cells, the number of its columns "
                f"(first: row {self._long.first}). Put text with separators into quotes."
            )
        return frame

    def _records(self, lines: list[str], *, last: bool) -> tuple[list[list[str]], list[str]]:
        """Records of some lines, and the lines of a record that continues after them."""
        rows: list[list[str]] = []
        begin = at = size = longest = 0  # the record's first line, the next one, and characters between
        ended = False

        def feed() -> Iterator[str]:
            nonlocal at, size, ended
            while at < len(lines):
                at, size = at + 1, size + len(lines[at])
                if size > longest and at > begin + 1:
                    raise _Runaway
                yield lines[at - 1]
            ended = True

        reader = csv.reader(feed(), **self._options)
        limit = csv.field_size_limit(2 * _LONGEST_RECORD)
        try:
            while at < len(lines):
                begin, size, longest = at, 0, min(self._patience, _LONGEST_RECORD)
                row: list[str] | None
                try:
                    row = next(reader)
                except (_Runaway, csv.Error):
                    row = None
                if row is not None and ended and not last:
                    return rows, lines[begin:]
                joined = len(rows) >= self._skip and row is not None and self._is_joined(row, lines[begin:at])
                if row is None or ended or joined:
                    self._stray += 1
                    row = lines[begin].removesuffix("\n").split(self.layout.separator)
                    # Rereading is limited to a few times the size of the text: time must not grow quadratically.
                    self._patience += 4 * len(lines[begin]) - size
                    at, ended = begin + 1, False
                    reader = csv.reader(feed(), **self._options)
                rows.append(row)
        finally:
            csv.field_size_limit(limit)
        return rows, []

    def _is_joined(self, row: list[str], lines: list[str]) -> bool:
        """Whether a stray quote has joined lines to this row: its first line by itself has the right number of cells.

        The row then has another number of cells, or a quote that closes a cell within it.
        """
        width = len(self.layout.columns)
        if len(lines) < 2 or len(lines[0].split(self.layout.separator)) != width:
            return False
        if len(row) != width:
            return True
        try:
            next(csv.reader(lines, strict=True, **self._options))
        except csv.Error:
            return True
        return False
