"""DATA as the page needs it: features for the model, and each row's content for the reader."""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sobgnn.runs.source import dataset_table
from sobgnn.tables import Table

if TYPE_CHECKING:
    import polars as pl

LONGEST_VALUE = 20_000
# Data sets whose features are the grey values of square pictures.
_PICTURES = ("digits", "mnist")


@dataclass(frozen=True)
class Source:
    """Points to label, with what a person sees of them.

    Args:
        name: What the data is called.
        table: Features, ids, and the labels that are there. Without labels ``classes`` is empty and ``codes`` are -1.
        fingerprint: Of the content, to notice that it changed.
        frame: The columns to show, or ``None`` for arrays.
        side: Width and height of the pictures that the features are, or 0.
    """

    name: str
    table: Table
    fingerprint: str
    frame: pl.DataFrame | None = None
    side: int = 0

    @property
    def rows(self) -> int:
        """Number of points."""
        return int(self.table.X.shape[0])

    def id_of(self, row: int) -> str:
        """The row's id, or its number where there are no ids."""
        return str(row) if self.table.ids is None else str(self.table.ids[row])

    def content(self, row: int) -> list[dict[str, Any]]:
        """What to show of a row: ``name``, ``kind`` ("text" or "picture") and ``value``, the longest text first."""
        if self.side:
            return [{"name": "picture", "kind": "picture", "value": ""}]
        if self.frame is None:
            values = np.asarray(
                self.table.X[[row]].todense() if hasattr(self.table.X, "todense") else self.table.X[row]
            )
            values = values.ravel()
            shown = [{"name": f"feature {i}", "kind": "text", "value": f"{v:.4g}"} for i, v in enumerate(values[:24])]
            if len(values) > 24:
                shown.append({"name": "…", "kind": "text", "value": f"{len(values) - 24} more"})
            return shown
        known = {name: value for name, value in self.frame.row(row, named=True).items() if value is not None}
        parts = [
            {"name": str(name), "kind": "text", "value": str(value)[:LONGEST_VALUE]} for name, value in known.items()
        ]
        return sorted(parts, key=lambda part: -len(part["value"]) if len(part["value"]) > 60 else 0)

    def excerpt(self, row: int, most: int = 140) -> str:
        """One line that stands for the row in a list."""
        parts = [part["value"] for part in self.content(row) if part["kind"] == "text"]
        line = " · ".join(" ".join(value.split()) for value in parts[:6])
        line = line or f"row {self.id_of(row)}"
        return line if len(line) <= most else line[: most - 1] + "…"

    def search(self, words: str, most: int = 50) -> list[int]:
        """The first rows that hold all words, in any column or in the id, upper and lower case alike."""
        import polars as pl

        wanted = words.split()[:8]
        if not wanted:
            return []
        ids = pl.Series("", [self.id_of(row) for row in range(self.rows)])
        columns = [ids] if self.frame is None else [ids, *self.frame.get_columns()]
        texts = [column.cast(pl.String, strict=False).fill_null("").str.to_lowercase() for column in columns]
        found = pl.Series([True] * self.rows)
        for word in wanted:
            here = pl.Series([False] * self.rows)
            for text in texts:
                here = here | text.str.contains(word.lower(), literal=True)
            found = found & here
        return [int(row) for row in found.arg_true().head(most)]

    def picture(self, row: int) -> tuple[bytes, str] | None:
        """The row's picture and its media type, or ``None`` where it has none."""
        if not self.side:
            return None
        values = np.asarray(self.table.X[row], dtype=np.float64).reshape(self.side, self.side)
        top = max(float(values.max()), 1e-12)
        grey = np.clip(255 * values / top, 0, 255).astype(np.uint8)
        return png(np.repeat(np.repeat(grey, 8, axis=0), 8, axis=1) if self.side < 32 else grey), "image/png"


def open_source(data: str, label: str | None = None, identity: str | None = None, drop: Sequence[str] = ()) -> Source:
    """Read DATA: a file, or a data set by its name. A column of labels may be missing, empty or have one class."""
    from sobgnn import tables

    if not tables.is_file_name(data):
        table = dataset_table(data)
        side = math.isqrt(table.X.shape[1]) if data in _PICTURES else 0
        unlabeled = replace(table, codes=np.full_like(table.codes, -1))
        return Source(data, unlabeled, _fingerprint(np.ascontiguousarray(unlabeled.X[:1000])), None, side)
    path = Path(data)
    tables.check_readable(path)
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if path.name.lower().endswith(".npz"):
        return Source(tables.file_stem(path), tables.read_table(path, label, identity, drop), content)
    frame, table = _read(path, label, identity, drop)
    return Source(tables.file_stem(path), table, content, frame)


def _read(path: Path, label: str | None, identity: str | None, drop: Sequence[str]) -> tuple[pl.DataFrame, Table]:
    """The columns to show, and the table to learn from."""
    import polars as pl

    from sobgnn.tables.encoding import BLANKS, choose_encoding, clean_names, label_names, text_values

    if path.name.lower().endswith(".parquet"):
        frame = pl.read_parquet(path)
    else:
        with open(path, "rb") as file:
            line = file.readline()
        separator = max(",;\t", key=lambda s: line.count(s.encode()))
        frame = pl.read_csv(path, separator=separator, null_values=list(BLANKS), infer_schema_length=None, glob=False)
    frame = clean_names(frame)
    found = label_names(frame.columns)
    label = label or (found[0] if found else None)
    if identity is None:
        named = [c for c in frame.columns if c.lower() == "id" and c != label and c not in drop]
        identity = named[0] if named and frame[named[0]].n_unique() == frame.height else None
    encoding, notes = choose_encoding(frame, label, identity, drop)
    codes, classes = np.full(frame.height, -1, dtype=np.int64), []
    if label in frame.columns:
        text = text_values(frame[label])
        classes = text.drop_nulls().unique().sort().to_list()
        codes = text.replace_strict(classes, list(range(len(classes))), default=-1, return_dtype=pl.Int64).to_numpy()
    ids = None if identity is None else np.array(text_values(frame[identity]).fill_null("").to_list(), dtype=object)
    shown = frame.drop([name for name in (label, identity) if name in frame.columns])
    return shown, Table(encoding.features(frame), codes.astype(np.int64), classes, encoding, ids, None, notes)


def png(grey: npt.NDArray[np.uint8]) -> bytes:
    """A grey picture [height, width] as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = grey.shape
    lines = b"".join(b"\0" + line.tobytes() for line in grey)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _fingerprint(values: npt.NDArray[Any]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]
