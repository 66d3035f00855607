"""The kinds of columns: each is fitted once, parses every cell once, and encodes what it parsed."""

from sobgnn.tables.columns.base import (
    BLANKS,
    COMMON_BLANKS,
    Arrays,
    Cells,
    Choice,
    Column,
    empty_rows,
    is_text,
    standardized,
    text_values,
)
from sobgnn.tables.columns.names import clean_names, counted, distinct_names, label_names, listed, shortened

__all__ = [
    "BLANKS",
    "COMMON_BLANKS",
    "Arrays",
    "Cells",
    "Choice",
    "Column",
    "clean_names",
    "counted",
    "distinct_names",
    "empty_rows",
    "is_text",
    "label_names",
    "listed",
    "shortened",
    "standardized",
    "text_values",
]
