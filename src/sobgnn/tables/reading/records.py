"""Rows of a text file as tables of text: what polars cannot parse is read record by record, and repaired."""

from __future__ import annotations

import csv
import io
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sobgnn.tables.reading.formats import Layout, text_blocks

if TYPE_CHECKING:
    import polars as pl

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


class _Lines:
    """Lines for Python's CSV reader, which remember the current record and can be read again.

    Args:
        lines: In order.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._rest = iter(lines)
        self._back: deque[str] = deque()
        self.begin(0)

    def begin(self, longest: int) -> None:
        """Begin a new record, of at most ``longest`` characters if it has several lines."""
        self.fed: list[str] = []
        self.size = 0
        self.exhausted = False
        self._longest = longest

    def take_back(self) -> None:
        """Read all lines of the record but the first again."""
        self._back.extendleft(reversed(self.fed[1:]))

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._back.popleft() if self._back else next(self._rest, None)
        if line is None:
            self.exhausted = True
            raise StopIteration
        self.fed.append(line)
        self.size += len(line)
        if self.size > self._longest and len(self.fed) > 1:
            raise _Runaway
        return line


class Reader:
    """Rows of a file as tables.

    Args:
        path: The file.
        layout: Its columns.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = path
        self.layout = layout

    @property
    def notes(self) -> list[str]:
        """What users may not expect, once all rows are read."""
        return self.layout.notes

    def frames(self) -> Iterator[pl.DataFrame]:
        """Consecutive rows, so many at a time that memory does not grow with the file."""
        raise NotImplementedError

    def table(self) -> pl.DataFrame:
        """All rows."""
        import polars as pl

        parts = list(self.frames())
        return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(self.layout.columns, pl.String))


class CsvReader(Reader):
    """Rows of a text file as tables whose cells are all text.

    Blocks without quotes and of regular lines are parsed by polars; others record by record, where a quote counts only
    at the beginning of a cell, and an unclosed quote is read literally.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self._stray = self._rows = 0  # unclosed quotes, and rows read
        self._long, self._short = RowCount(), RowCount()  # rows with more cells than columns, and with fewer
        self._skip = layout.skip
        self._blank = 0  # blank lines that are rows only if another row follows
        self._patience = _LONGEST_RECORD  # characters that may still be read in vain before a quote is given up

    @property
    def notes(self) -> list[str]:
        """What users may not expect, once all rows are read."""
        notes = [f"Unclosed quotes were read literally: {self._stray:,}."] if self._stray else []
        for rows, which, cells in (
            (self._long, "more", "were left out"),
            (self._short, "fewer", "are treated as blank"),
        ):
            if rows.count:
                number = f"{rows.count:,} (first: row {rows.first})"
                notes.append(f"Rows with {which} cells than columns: {number}. Their last cells {cells}.")
        return [*self.layout.notes, *notes]

    def frames(self) -> Iterator[pl.DataFrame]:
        """Consecutive rows, in tables of a few million characters."""
        open_lines: list[str] = []
        blocks = itertools.chain(
            ((block, False) for block in text_blocks(self.path, self.layout.encoding)), [("", True)]
        )
        for block, last in blocks:
            if not open_lines and not self._skip and not self._blank and self._is_regular(block):
                if block:
                    yield self._count(self._fast(block))
                continue
            rows, open_lines = self._records(open_lines, block, last)
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
        import polars as pl

        return pl.read_csv(
            io.BytesIO(block.encode("utf-8", "replace")), has_header=False, separator=self.layout.separator,
            quote_char=None, schema=dict.fromkeys(self.layout.columns, pl.String),
        )  # fmt: skip

    def _table(self, rows: list[list[str]]) -> pl.DataFrame:
        import polars as pl

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
        self._rows += frame.height
        if self._long.count > max(10, 0.1 * self._rows):
            raise ValueError(
                f"{self.path.name} has rows of more than {frame.width} cells, the number of its columns "
                f"(first: row {self._long.first}). Put text with separators into quotes."
            )
        return frame

    def _records(self, before: list[str], block: str, last: bool) -> tuple[list[list[str]], list[str]]:
        """Records of the lines ``before`` and of the block, and the lines of a record that continues after it."""
        layout = self.layout
        lines = block.split("\n")
        if not lines[-1]:
            lines.pop()
        source = _Lines(itertools.chain(before, (line + "\n" for line in lines)))
        options = {"delimiter": layout.separator, "quotechar": layout.quote, "escapechar": layout.escape}
        reader = csv.reader(source, **options)  # type: ignore[arg-type]
        rows: list[list[str]] = []
        limit = csv.field_size_limit(2 * _LONGEST_RECORD)
        try:
            while True:
                source.begin(min(self._patience, _LONGEST_RECORD))
                row: list[str] | None
                try:
                    row = next(reader)
                except StopIteration:
                    return rows, []
                except (_Runaway, csv.Error):
                    row = None
                if row is not None and source.exhausted:
                    if not last:
                        return rows, source.fed
                    row = None  # the file ends inside a quote
                elif row is not None and len(rows) >= self._skip and self._is_joined(row, source.fed):
                    row = None
                if row is None:
                    self._stray += 1
                    row = source.fed[0].rstrip("\n").split(layout.separator)
                    # Rereading is limited to a few times the size of the text: time must not grow quadratically.
                    self._patience += 4 * len(source.fed[0]) - source.size
                    source.take_back()
                    reader = csv.reader(source, **options)  # type: ignore[arg-type]
                rows.append(row)
        finally:
            csv.field_size_limit(limit)

    def _is_joined(self, row: list[str], lines: list[str]) -> bool:
        """Whether a stray quote has joined lines to this row: its first line by itself has the right number of cells.

        The row then has another number of cells, or a quote that closes a cell within it.
        """
        layout = self.layout
        if len(lines) < 2 or len(lines[0].rstrip("\n").split(layout.separator)) != len(layout.columns):
            return False
        if len(row) != len(layout.columns):
            return True
        options = {"delimiter": layout.separator, "quotechar": layout.quote, "escapechar": layout.escape}
        try:
            next(csv.reader(lines, strict=True, **options))  # type: ignore[arg-type]
        except csv.Error:
            return True
        return False
