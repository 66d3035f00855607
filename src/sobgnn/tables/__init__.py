"""Files of points: CSV, Parquet and NPZ to features and labels by written rules, and predictions to CSV."""

from sobgnn.tables.encoding import Encoding
from sobgnn.tables.files import (
    atomic_file,
    batches,
    check_readable,
    file_stem,
    is_file_name,
    read_table,
    write_predictions,
)
from sobgnn.tables.table import Batch, Table, from_arrays, from_dataset

__all__ = [
    "Batch",
    "Encoding",
    "Table",
    "atomic_file",
    "batches",
    "check_readable",
    "file_stem",
    "from_arrays",
    "from_dataset",
    "is_file_name",
    "read_table",
    "write_predictions",
]
