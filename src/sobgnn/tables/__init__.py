"""Files of points: CSV, Parquet and NPZ to features and labels by written rules, and predictions to CSV."""

from sobgnn.tables.encoding import Encoding
from sobgnn.tables.files import (
    batches,
    check_readable,
    file_stem,
    is_file_name,
    read_table,
    write_predictions,
)
from sobgnn.tables.table import Batch, Table, from_arrays

__all__ = [
    "Batch",
    "Encoding",
    "Table",
    "batches",
    "check_readable",
    "file_stem",
    "from_arrays",
    "is_file_name",
    "read_table",
    "write_predictions",
]
