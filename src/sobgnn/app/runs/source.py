"""From DATA, as users name it, to a table, and what a person sees of its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sobgnn.tables import Table, file_stem, from_arrays, is_file_name, read_table
from sobgnn.tables.table import graph_of

# Data sets whose features are the gray values of square pictures.
_PICTURES = ("digits", "mnist")
# Columns of a row that are shown, and characters of each; text from the last length on is shown before numbers.
_COLUMNS, _LENGTH, _SENTENCE = 4, 120, 20


def load_table(
    data: str, label: str | None = None, identity: str | None = None, drop: Sequence[str] = (), **options: Any
) -> tuple[str, Table]:
    """The name and the table of a file or a data set; other arguments are for files, see ``tables.read_table``."""
    if is_file_name(data):
        return file_stem(Path(data)), read_table(Path(data), label, identity, drop, **options)
    return data, dataset_table(data)


def dataset_table(name: str) -> Table:
    """A data set by its name."""
    from sobgnn import datasets

    found = datasets.load(name)
    graph = graph_of(found.edge_index, found.X.shape[0])
    return from_arrays(found.X, found.y, class_names=found.class_names, graph=graph)


def picture_side(data: str, table: Table) -> int:
    """Width and height of the pictures whose gray values are the features of a data set; 0 for other data."""
    side = math.isqrt(table.X.shape[1])
    return side if data in _PICTURES and table.frame is None and side**2 == table.X.shape[1] else 0


def picture_path(table: Table, row: int) -> str | None:
    """Path of the row's picture, for a table of pictures."""
    pictures = table.encoding.pictures
    return None if pictures is None else table.content(row).get(pictures.name)


def row_content(table: Table, row: int, importance: Mapping[str, float] | None = None) -> dict[str, str]:
    """A few columns of a row, shortened: the most important first, otherwise long texts first, then as in the file.

    Args:
        table: The run's table.
        row: Row number, from 0.
        importance: Importance of columns, by name.
    """
    pictures, weight = table.encoding.pictures, importance or {}
    image = None if pictures is None else pictures.name
    cells = {name: " ".join(text.split()) for name, text in table.content(row).items()}
    cells = {name: text for name, text in cells.items() if text and name not in (table.encoding.id, image)}
    order = sorted(cells, key=lambda name: (-weight.get(name, 0.0), len(cells[name]) < _SENTENCE))
    return {name: shortened(cells[name], _LENGTH) for name in order[:_COLUMNS]}


def shortened(text: str, most: int) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
