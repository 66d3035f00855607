"""From DATA, as users name it, to a table: a file, or a data set's name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sobgnn.tables import Table, file_stem, from_arrays, is_file_name, read_table
from sobgnn.tables.table import graph_of

# Data sets whose features are the gray values of square pictures.
_PICTURES = ("digits", "mnist")


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
