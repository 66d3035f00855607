"""Data sets as tables, and what a person sees of the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sobgnn.tables import Table, from_arrays
from sobgnn.tables.table import graph_of

# Data sets whose features are the gray values of square pictures.
_PICTURES = ("digits", "mnist")
# Columns of rows that are shown, and characters of each; text of the last mean length is shown before numbers.
_COLUMNS, _LENGTH, _SENTENCE = 4, 120, 20


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


def row_contents(
    table: Table, rows: Sequence[int], importance: Mapping[str, float] | None = None
) -> list[dict[str, str]]:
    """A few columns of rows, shortened: the most important ones, otherwise long texts first, then as in the file.

    All rows have the same columns; none if the table came from an array.

    Args:
        table: The run's table.
        rows: Row numbers, from 0.
        importance: Importance of columns, by name.
    """
    encoding, weight = table.encoding, importance or {}
    if not encoding.named or table.frame is None:
        return [{} for _ in rows]
    aside = {encoding.id, None if encoding.pictures is None else encoding.pictures.name}
    cells = [{name: " ".join(text.split()) for name, text in table.content(row).items()} for row in rows]
    lengths = {name: [len(held[name]) for held in cells if held.get(name)] for name in table.frame.columns}
    names = [name for name, known in lengths.items() if known and name not in aside]
    names.sort(key=lambda name: (-weight.get(name, 0.0), sum(lengths[name]) < _SENTENCE * len(lengths[name])))
    return [{name: shortened(held.get(name, ""), _LENGTH) for name in names[:_COLUMNS]} for held in cells]


def shortened(text: str, most: int) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
