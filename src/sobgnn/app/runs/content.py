"""What a person sees of a row: its name, a few columns, a few words of each."""

from __future__ import annotations

from collections.abc import Mapping

from sobgnn.tables import Encoding, Table

_COLUMNS, _LENGTH = 4, 120
# Text of at least this length is shown before numbers.
_SENTENCE = 20


def row_name(table: Table, row: int) -> str:
    """The row's id, after the name of its column if it is a number: ticket 847530; without one row 17, from 0."""
    name = "" if table.ids is None else str(table.ids[row])
    if not name.strip():
        return f"row {row}"
    return f"{table.encoding.id or 'id'} {name}" if name.isdecimal() else name


def row_content(table: Table, row: int, importance: Mapping[str, float] | None = None) -> dict[str, str]:
    """A few columns of a row, shortened: the most important first, otherwise long texts first, then as in the file.

    Args:
        table: The run's table.
        row: Row number, from 0.
        importance: Importance of columns, by name.
    """
    pictures = table.encoding.pictures
    image = None if pictures is None else pictures.name
    cells = {name: " ".join(text.split()) for name, text in table.content(row).items()}
    cells = {name: text for name, text in cells.items() if text and name not in (table.encoding.id, image)}
    weight = importance or {}

    def rank(name: str) -> tuple[float, bool]:
        return -weight.get(name, 0.0), len(cells[name]) < _SENTENCE

    return {name: shortened(cells[name], _LENGTH) for name in sorted(cells, key=rank)[:_COLUMNS]}


def picture_path(table: Table, row: int) -> str | None:
    """Path of the row's picture, for a table of pictures."""
    pictures = table.encoding.pictures
    return None if pictures is None else table.content(row).get(pictures.name)


def column_slices(encoding: Encoding) -> dict[str, slice] | None:
    """Which features came from each column of the file; ``None`` for arrays, whose features have no names."""
    return encoding.slices if encoding.named else None


def shortened(text: str, most: int) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
