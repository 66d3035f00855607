"""DATA as the page needs it: features for the model, and each row's content and picture for the person who labels."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn.app.runs.source import dataset_table, picture_side, shortened
from sobgnn.tables import Table
from sobgnn.tables.columns.names import label_names
from sobgnn.tables.pictures import FORMATS, open_picture

LONGEST_VALUE = 20_000
# A column is one of text, which comes first, if its mean length among this many rows is at least that.
SAMPLED, TEXT = 200, 60
# How alike two names are, from 0 to 1, of which one may be the other misspelled.
_SIMILAR = 0.75
# Larger pictures are reduced.
LARGEST_SIDE, LARGEST_FILE = 1600, 32 * 2**20
# Maximum number of pixels decoded per picture: 4 bytes each, and up to 12 for 16-bit pictures.
MOST_PIXELS = 64_000_000

Shown = tuple[bytes, str]


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
    _reading: Any = field(default_factory=threading.Lock, compare=False, repr=False)

    @property
    def rows(self) -> int:
        """Number of points."""
        return int(self.table.X.shape[0])

    @property
    def pictured(self) -> bool:
        """Whether rows name picture files."""
        return self.table.encoding.pictures is not None

    def id_of(self, row: int) -> str:
        """The row's id, or its number without ids."""
        return str(row) if self.table.ids is None else str(self.table.ids[row])

    @cached_property
    def _order(self) -> dict[str, int]:
        """The place of each column on the card, the same for all rows: pictures, then texts, then the others."""
        table = self.table
        if table.frame is None:
            return {}
        step = max(1, self.rows // SAMPLED)
        sampled = [table.content(row) for row in range(0, self.rows, step)]
        lengths = {name: [len(cells[name]) for cells in sampled if name in cells] for name in table.frame.columns}
        picture = table.encoding.pictures.name if table.encoding.pictures is not None else None

        def rank(name: str) -> tuple[bool, bool]:
            return name != picture, not (lengths[name] and np.mean(lengths[name]) >= TEXT)

        return {name: place for place, name in enumerate(sorted(table.frame.columns, key=rank))}

    def content(self, row: int, longest: int | None = LONGEST_VALUE) -> list[dict[str, Any]]:
        """What to show of a row: ``name``, ``kind`` ("text" or "picture"), ``value``; fields of all rows in one order.

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
        return sorted(parts, key=lambda part: self._order.get(part["name"], 0))

    def excerpt(self, row: int, most: int = 140) -> str:
        """One line that represents the row in a list."""
        parts = [part["value"] for part in self.content(row) if part["kind"] == "text"]
        line = " · ".join(" ".join(value.split()) for value in parts[:6]) or self.table.row_name(row)
        return shortened(line, most)

    def search(self, words: str) -> list[int]:
        """The rows that contain all words, in any column or in the id, ignoring case."""
        import polars as pl

        wanted = words.lower().split()[:8]
        if not wanted:
            return []
        columns = [pl.Series("", [self.id_of(row) for row in range(self.rows)])]
        if self.table.frame is not None:
            hidden = self.table.encoding.label
            columns += [c for c in self.table.frame.get_columns() if c.name != hidden and not c.dtype.is_nested()]
        texts = pl.DataFrame([column.cast(pl.String, strict=False).alias(str(i)) for i, column in enumerate(columns)])
        line = pl.concat_str(pl.all().fill_null(""), separator="\n").str.to_lowercase()
        found = texts.select(pl.all_horizontal(line.str.contains(word, literal=True) for word in wanted))
        return found.to_series().arg_true().to_list()

    def read_picture(self, row: int) -> Shown:
        """The row's picture and its media type; no other file can be requested.

        Raises:
            ValueError: There is none, or it cannot be shown; the message is one line.
        """
        pictures = self.table.encoding.pictures
        if pictures is not None and self.table.frame is not None:
            name = str(self.table.frame[pictures.name][row] or "").strip()
            if not name:
                raise ValueError("The row names no picture.")
            path = pictures.open_path(name)
            if path is None:
                raise ValueError("It is a link to something outside the folder of the pictures.")
            with self._reading:  # one at a time: large ones take memory, and Python's warning filter is shared
                return _read(path)
        if not self.side:
            raise ValueError("Rows have no pictures.")
        from PIL import Image

        values = np.asarray(self.table.X[row], dtype=np.float64).reshape(self.side, self.side)
        gray = Image.fromarray(np.clip(255 * values / max(float(values.max()), 1e-12), 0, 255).astype(np.uint8))
        scale = 8 if self.side < 32 else 1
        return _encoded(gray.resize((scale * self.side, scale * self.side), Image.Resampling.NEAREST), "PNG")


def _read(path: Path) -> Shown:
    """A picture unchanged if a browser can show it well, otherwise reduced; raises ValueError with the reason."""
    from PIL import Image

    if not path.is_file():
        raise ValueError("There is no such file." if not path.exists() else "It is not a regular file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about many pixels, which are counted here
            image = Image.open(path, formats=FORMATS)
        with image:
            kind, size, held = image.format, image.size, path.stat()
            image.draft("RGB", (LARGEST_SIDE, LARGEST_SIDE))  # a JPEG is decoded at a fraction of its size
            pixels = math.prod(image.size)
    except Image.DecompressionBombError:
        raise ValueError("It has too many pixels to be shown.") from None
    except Exception:  # a damaged picture can make Pillow raise anything
        raise ValueError("The file is not a readable picture.") from None
    if kind in ("PNG", "JPEG") and max(size) <= LARGEST_SIDE and held.st_size <= LARGEST_FILE:
        return path.read_bytes(), f"image/{kind.lower()}"
    if pixels > MOST_PIXELS:
        raise ValueError(
            f"It has {size[0]:,} × {size[1]:,} pixels; at most {MOST_PIXELS // 10**6} million can be shown. The model "
            "still uses it."
        )
    return _reduced(path, "JPEG" if kind == "JPEG" else "PNG", held.st_mtime_ns, held.st_size)


@lru_cache(maxsize=8)
def _reduced(path: Path, kind: str, *state: int) -> Shown:
    """The picture as the model sees it, at most ``LARGEST_SIDE`` wide and high; ``state`` changes with the file."""
    image = open_picture(path, LARGEST_SIDE)
    if image is None:
        raise ValueError("The picture is damaged.")
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE), reducing_gap=2.0)
    return _encoded(image, kind)


def _encoded(image: Any, kind: str) -> Shown:
    held = io.BytesIO()
    image.save(held, kind)
    return held.getvalue(), f"image/{kind.lower()}"


def open_source(
    data: str, label: str | None = None, identity: str | None = None, drop: Sequence[str] = (), **options: Any
) -> Source:
    """Read DATA: a file, a folder of pictures, or a data set by its name.

    The column ``label`` may be missing, which starts without labels, empty, or have one class. The labels of a data set
    are not used, only its classes.
    Options are those of ``tables.read_table``, for files.
    """
    from sobgnn import tables

    if not tables.is_file_name(data):
        table = dataset_table(data)
        side = picture_side(data, table)
        unlabeled = replace(table, codes=np.full_like(table.codes, -1))
        return Source(data, unlabeled, _fingerprint(data.encode(), unlabeled), side)
    path = Path(data)
    tables.check_readable(path)
    label = None if path.is_dir() else label  # pictures have no columns: folders are their labels
    table = tables.read_table(path, label, identity, drop, need_labels=False, **options)
    return Source(tables.file_stem(path), table, _fingerprint(path, table), path=path)


def check_new_label(source: Source, label: str) -> None:
    """Raise a ValueError if DATA has no column ``label``, but one whose name is almost the same."""
    if not _starts_unlabeled(source):
        return
    names = {column.strip().casefold(): column for column in source.table.frame.columns}  # type: ignore[union-attr]
    if meant := get_close_matches(label.strip().casefold(), names, 1, _SIMILAR):
        raise ValueError(
            f"There is no column {label!r}. Did you mean {names[meant[0]]!r}? To start a new column of labels, add "
            "--new."
        )


def new_label_note(source: Source, label: str | None) -> str:
    """A sentence where DATA is a table without the column ``label``, or without labels; else empty."""
    if not _starts_unlabeled(source):
        return ""
    if label is None:
        return "Starting without labels; --label COLUMN continues with those of a column."
    others = label_names(sorted(source.table.encoding.names))
    more = f" {others[0]!r} is a feature like the other columns; --drop {others[0]} leaves it out." if others else ""
    return f"There is no column {label!r}; starting without labels.{more}"


def _starts_unlabeled(source: Source) -> bool:
    table, path = source.table, source.path
    return table.frame is not None and path is not None and path.is_file() and table.encoding.label is None


def check_unchanged(source: Source) -> None:
    """Raise a ValueError where a file, or a picture that its rows name, is no longer what was read."""
    if source.path is None:
        return
    with contextlib.suppress(OSError):
        if _fingerprint(source.path, source.table) == source.fingerprint:
            return
    raise ValueError(
        f"{source.path} has changed since it was opened here, so labels may be of other rows now. Put it back as it "
        "was and try again, or label the new data in another folder with --out."
    )


def _fingerprint(data: Path | bytes, table: Table) -> str:
    """Hash of a file's bytes, and of the names and bytes of the rows' pictures."""
    digest = hashlib.sha256(data if isinstance(data, bytes) else b"")

    def add(path: Path) -> None:  # in pieces: a file may be larger than memory has room for
        with open(path, "rb") as file:
            while piece := file.read(2**20):
                digest.update(piece)

    if isinstance(data, Path) and data.is_file():
        add(data)
    pictures = table.encoding.pictures
    if pictures is not None and table.frame is not None:
        for name in table.frame[pictures.name].to_list():
            digest.update(f"\0{name}\0".encode())
            path = pictures.open_path(str(name or "").strip())
            with contextlib.suppress(OSError, ValueError):  # a name that is not valid for a file
                if path is not None and path.is_file():
                    add(path)
    return digest.hexdigest()[:16]
