"""What a person sees of a row: a few columns, a few words of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import scipy.sparse as sp

_COLUMNS, _LENGTH = 4, 90
# A text from this length is worth reading before numbers are.
_SENTENCE = 20


def row_name(table: Any, row: int) -> str:
    """The row's id, or its number from 0."""
    return str(table.ids[row]) if table.ids is not None else f"row {row}"


def row_content(table: Any, row: int, importance: Mapping[str, float] | None = None) -> dict[str, str]:
    """A few columns of a row, shortened: those that matter most first, else long texts first, then as in the file.

    Args:
        table: The run's :class:`~sobgnn.tables.Table`.
        row: From 0.
        importance: Columns that matter, by name.
    """
    cells = {name: " ".join(text.split()) for name, text in _cells(table, row).items()}
    cells = {name: text for name, text in cells.items() if text and name not in (table.encoding.id, "image")}
    weight = importance or {}

    def rank(name: str) -> tuple[float, bool]:
        return -weight.get(name, 0.0), len(cells[name]) < _SENTENCE

    shown = sorted(cells, key=rank)[:_COLUMNS]
    return {name: _short(cells[name]) for name in shown}


def picture_path(table: Any, row: int) -> str | None:
    """Where the row's picture is, for a table of pictures."""
    return _cells(table, row).get("image") if getattr(table.encoding, "pictures", None) is not None else None


def _cells(table: Any, row: int) -> dict[str, str]:
    if hasattr(table, "content"):
        found: dict[str, str] = table.content(row)
        return found
    names = column_slices(table.encoding)
    held = table.X[[row]].toarray()[0] if sp.issparse(table.X) else table.X[row]
    shown = {}
    for name, place in list((names or {}).items())[: 4 * _COLUMNS]:
        values = held[place]
        categories = next((c.categories for c in getattr(table.encoding, "columns", ()) if c.name == name), ())
        if len(categories):
            shown[name] = next((text for text, on in zip(categories, values, strict=True) if on), "")
        elif len(values) == 1:
            shown[name] = f"{float(values[0]):.6g}"
    return shown


def column_slices(encoding: Any) -> dict[str, slice] | None:
    """Which features came from each column of the file; ``None`` for arrays, whose features have no names."""
    if not encoding.named:
        return None
    if getattr(encoding, "encoder", None) is not None:
        return {block.name: slice(block.start, block.stop) for block in encoding.encoder.blocks_}
    slices, at = {}, 0
    for column in encoding.columns:
        slices[column.name] = slice(at, at + column.width)
        at += column.width
    return slices


def _short(text: str) -> str:
    return text if len(text) <= _LENGTH else text[: _LENGTH - 1].rstrip() + "…"
