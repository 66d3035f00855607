"""From files and frames to features and labels by fixed rules, and from predictions to CSV.

Names are imported when they are first used: what names and counts things in sentences is needed before polars is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sobgnn._system.files import is_file_name
    from sobgnn.tables.encoder import TableEncoder
    from sobgnn.tables.encoding import ArrayEncoder, Batch, Encoding
    from sobgnn.tables.predictions import are_predictions, write_predictions
    from sobgnn.tables.reading.read import batches, check_readable, file_sheet, file_stem, read_table
    from sobgnn.tables.table import Table, from_arrays

_HOME = {
    "_system.files": ("is_file_name",),
    "tables.encoder": ("TableEncoder",),
    "tables.encoding": ("ArrayEncoder", "Batch", "Encoding"),
    "tables.predictions": ("are_predictions", "write_predictions"),
    "tables.reading.read": ("batches", "check_readable", "file_sheet", "file_stem", "read_table"),
    "tables.table": ("Table", "from_arrays"),
}
__all__ = [
    "ArrayEncoder", "Batch", "Encoding", "Table", "TableEncoder", "are_predictions", "batches", "check_readable",
    "file_sheet", "file_stem", "from_arrays", "is_file_name", "read_table", "write_predictions",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"sobgnn.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
