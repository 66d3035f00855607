"""DATA as the page needs it: features for the model, and each row's content for the person who labels."""

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.labeling.pictures import Pictures, Shown
from sobgnn.runs.content import picture_path
from sobgnn.runs.source import dataset_table
from sobgnn.tables import Table

LONGEST_VALUE = 20_000
# Data sets whose features are the gray values of square pictures.
_PICTURES = ("digits", "mnist")


@dataclass(frozen=True)
class Source:
    """Points to label, with what a person sees of them.

    Args:
        name: Name of the data.
        table: Features, ids, and existing labels. Without labels ``classes`` is empty and ``codes`` are -1.
        fingerprint: Hash of the content, to detect changes.
        side: Width and height of the pictures, if features are their pixels, or 0.
        path: What was read, or ``None`` for a data set by its name.
    """

    name: str
    table: Table
    fingerprint: str
    side: int = 0
    path: Path | None = None
    _pictures: Pictures = field(default_factory=Pictures, compare=False, repr=False)

    @property
    def rows(self) -> int:
        """Number of points."""
        return int(self.table.X.shape[0])

    def id_of(self, row: int) -> str:
        """The row's id, or its number without ids."""
        return str(row) if self.table.ids is None else str(self.table.ids[row])

    def content(self, row: int, longest: int | None = LONGEST_VALUE) -> list[dict[str, Any]]:
        """What to show of a row: ``name``, ``kind`` ("text" or "picture"), ``value``; pictures and long texts first.

        A text longer than ``longest`` is truncated, and ``more`` is the number of characters left out.
        """
        if self.side:
            return [{"name": "picture", "kind": "picture", "value": ""}]
        parts: list[dict[str, Any]] = []
        pictures = self.table.encoding.pictures
        for name, value in self.table.content(row).items():
            if pictures is not None and name == pictures.name:
                parts.append({"name": name, "kind": "picture", "value": ""})
            elif name != self.table.encoding.id or self.pictured:
                more = 0 if longest is None else max(len(value) - longest, 0)
                parts.append({"name": name, "kind": "text", "value": value[:longest], "more": more})
        return sorted(parts, key=lambda part: -(10**9 if part["kind"] == "picture" else _length(part["value"])))

    @property
    def pictured(self) -> bool:
        """Whether rows name picture files."""
        return self.table.encoding.pictures is not None

    def excerpt(self, row: int, most: int = 140) -> str:
        """One line that represents the row in a list."""
        parts = [part["value"] for part in self.content(row) if part["kind"] == "text"]
        line = " · ".join(" ".join(value.split()) for value in parts[:6])
        line = line or f"row {self.id_of(row)}"
        return line if len(line) <= most else line[: most - 1] + "…"

    def search(self, words: str) -> list[int]:
        """The rows that contain all words, in any column or in the id, ignoring case."""
        import polars as pl

        wanted = words.split()[:8]
        if not wanted:
            return []
        columns = [pl.Series("", [self.id_of(row) for row in range(self.rows)])]
        if self.table.frame is not None:
            hidden = self.table.encoding.label
            columns += [c for c in self.table.frame.get_columns() if c.name != hidden and not c.dtype.is_nested()]
        texts = [column.cast(pl.String, strict=False).fill_null("").str.to_lowercase() for column in columns]
        found = pl.Series([True] * self.rows)
        for word in wanted:
            here = pl.Series([False] * self.rows)
            for text in texts:
                here = here | text.str.contains(word.lower(), literal=True)
            found = found & here
        return [int(row) for row in found.arg_true()]

    def picture(self, row: int) -> Shown | None:
        """The row's picture and its media type, or ``None`` if none can be shown."""
        try:
            return self.read_picture(row)
        except ValueError:
            return None

    def read_picture(self, row: int) -> Shown:
        """The row's picture and its media type; no other file can be requested.

        Raises:
            ValueError: There is none, or it cannot be shown; the message is one line.
        """
        if self.pictured:
            name = picture_path(self.table, row)
            if not name:
                raise ValueError("The row names no picture.")
            return self._pictures.read(Path(name))
        if not self.side:
            raise ValueError("Rows have no pictures.")
        values = np.asarray(self.table.X[row], dtype=np.float64).reshape(self.side, self.side)
        top = max(float(values.max()), 1e-12)
        grey = np.clip(255 * values / top, 0, 255).astype(np.uint8)
        return png(np.repeat(np.repeat(grey, 8, axis=0), 8, axis=1) if self.side < 32 else grey), "image/png"


def open_source(
    data: str, label: str | None = None, identity: str | None = None, drop: Sequence[str] = (), **options: Any
) -> Source:
    """Read DATA: a file, a folder of pictures, or a data set by its name.

    A column of labels may be missing, empty or have one class. The labels of a data set are not used, only its classes.
    Options are those of ``tables.read_table``, for files.
    """
    from sobgnn import tables

    if not tables.is_file_name(data):
        table = dataset_table(data)
        side = math.isqrt(table.X.shape[1]) if data in _PICTURES else 0
        unlabeled = replace(table, codes=np.full_like(table.codes, -1))
        return Source(data, unlabeled, _fingerprint(data.encode(), unlabeled), side)
    path = Path(data)
    tables.check_readable(path)
    label = None if path.is_dir() else label  # pictures have no columns: folders are their labels
    try:
        table = tables.read_table(path, label, identity, drop, need_labels=False, **options)
    except ValueError as error:
        if label is None or not str(error).startswith("--label names"):
            raise
        # The column does not exist yet: only its name is known.
        table = tables.read_table(path, None, identity, drop, need_labels=False, **options)
    return Source(tables.file_stem(path), table, _fingerprint(_content(path), table), path=path)


def check_new_label(source: Source, label: str) -> None:
    """Raise a ValueError if DATA has no column ``label`` but one whose name differs from it by a letter or two."""
    if not lacks_label(source, label) or source.table.frame is None:
        return
    name = label.strip().casefold()
    near = {column: _edits(name, column.strip().casefold()) for column in source.table.frame.columns}
    meant = min(near, key=near.__getitem__)
    if near[meant] <= min(2, len(name) / 2):
        raise ValueError(
            f"There is no column {label!r}. Did you mean {meant!r}? To start a new column of labels, add --new."
        )


def _edits(one: str, other: str) -> int:
    """Number of letters to insert, remove or replace that make one word the other."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        before, row = row, [i]
        for j, others in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != others)))
    return row[-1]


def lacks_label(source: Source, label: str) -> bool:
    """Whether DATA is a table without a column of that name."""
    if source.table.frame is None or source.path is None or source.path.is_dir():
        return False
    return " ".join(label.split()) not in (" ".join(name.split()) for name in source.table.frame.columns)


def open_asked(request: dict[str, Any]) -> Source:
    """Read the data of a page for its model's process; raises ValueError if the page has read other data."""
    source = open_source(request["data"], request["label"], request["identity"], request["drop"], **request["reading"])
    if source.fingerprint != request["fingerprint"]:
        raise ValueError(_changed(request["data"]))
    return source


def check_unchanged(source: Source) -> None:
    """Raise a ValueError where a file, or a picture that its rows name, is no longer what was read."""
    if source.path is None:
        return
    try:
        now = _fingerprint(_content(source.path), source.table)
    except OSError:
        now = ""
    if now != source.fingerprint:
        raise ValueError(_changed(source.path))


def _changed(data: object) -> str:
    return (
        f"{data} has changed since it was opened here, so labels may be of other rows now. Put it back as it was and "
        "try again, or label the new data in another folder with --out."
    )


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _length(text: str) -> int:
    """The length of long texts; 0 for others, which keep their order."""
    return len(text) if len(text) > 60 else 0


def png(grey: npt.NDArray[np.uint8]) -> bytes:
    """A gray picture [height, width] as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = grey.shape
    lines = b"".join(b"\0" + line.tobytes() for line in grey)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _fingerprint(content: bytes, table: Table) -> str:
    """Hash of a file's bytes, and of the names and bytes of the rows' pictures."""
    digest = hashlib.sha256(content)
    pictures = table.encoding.pictures
    if pictures is not None and table.frame is not None:
        for name in table.frame[pictures.name].to_list():
            digest.update(f"\0{name}\0".encode())
            path = pictures.open_path(str(name or "").strip())
            with contextlib.suppress(OSError, ValueError):  # a name that is not valid for a file
                digest.update(path.read_bytes() if path is not None and path.is_file() else b"")
    return digest.hexdigest()[:16]
