"""JSON lines as polars tables: one object per line, whose keys are columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sobgnn.tables.columns import shortened
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.formats import find_encoding, text_blocks

if TYPE_CHECKING:
    import polars as pl


def is_lines(path: Path) -> bool:
    """Whether the name is that of a file of JSON lines."""
    return path.name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson"))


def read_lines(path: Path) -> pl.DataFrame:
    """The whole file. A key that an object lacks is a blank cell; nested objects become columns ``a.b``."""
    rows = [row for part in _objects(path) for row in part]
    return _table(rows, dict.fromkeys(key for row in rows for key in row))


def line_frames(path: Path) -> Iterator[pl.DataFrame]:
    """Tables of consecutive rows, from blocks of the file; each has a column for every key of the file."""
    keys = dict.fromkeys(key for part in _objects(path) for row in part for key in row)
    for part in _objects(path):
        if part:
            yield _table(part, keys)


def _table(rows: list[dict[str, Any]], keys: Collection[str]) -> pl.DataFrame:
    return as_frame({key: [row.get(key) for row in rows] for key in keys})


def _objects(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The file's objects in order, a few million characters at a time; blank lines are skipped."""
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
