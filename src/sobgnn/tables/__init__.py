"""From files and frames to features and labels by fixed rules, and from predictions to CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sobgnn._system.files import is_file_name
from sobgnn.tables.encoding import ArrayEncoder, Batch, Encoding
from sobgnn.tables.predictions import are_predictions, write_predictions
from sobgnn.tables.reading.read import batches, check_readable, file_sheet, file_stem, read_table
from sobgnn.tables.table import Table, from_arrays

if TYPE_CHECKING:
    from sobgnn.tables.encoder import TableEncoder

__all__ = [
    "ArrayEncoder",
    "Batch",
    "Encoding",
    "Table",
    "TableEncoder",
    "are_predictions",
    "batches",
    "check_readable",
    "file_sheet",
    "file_stem",
    "from_arrays",
    "is_file_name",
    "read_table",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    if name != "TableEncoder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sobgnn.tables.encoder import TableEncoder  # imports scikit-learn: wrong files are named before

    return TableEncoder
