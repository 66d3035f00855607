"""Predictions as CSV, without formulas that a spreadsheet would run, and in the form that it opens."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

# Maximum bytes of a file's first line that are read.
_LONGEST_HEADER = 2**20


@dataclass(frozen=True)
class Sheet:
    """How a spreadsheet in the user's language writes CSV: the separator of cells and the decimal sign."""

    separator: str = ","
    decimal: str = "."


def write_predictions(
    file: IO[bytes],
    classes: Sequence[Any],
    first_row: int,
    label: npt.NDArray[Any],
    probability: npt.NDArray[Any],
    ids: npt.NDArray[Any] | None,
    *,
    header: bool,
    extra: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """Append rows: row, id if there are ids, label, columns of ``extra``, ``probability_<class>`` for each class.

    Text that a spreadsheet would run as a formula is prefixed with '; returns the number of such cells.
    """
    import polars as pl

    columns: dict[str, Any] = {"row": np.arange(first_row, first_row + len(label))}
    count = 0
    texts = {} if ids is None else {"id": [str(value) for value in ids.tolist()]}
    for name, values in {**texts, "label": [str(value) for value in label.tolist()]}.items():
        safe = [neutral(value) for value in values]
        count += sum(a is not b for a, b in zip(safe, values, strict=True))
        columns[name] = pl.Series(safe, dtype=pl.String)
    columns |= {name: pl.Series(list(values), dtype=pl.String) for name, values in (extra or {}).items()}
    for index, name in enumerate(classes):
        columns[f"probability_{name}"] = probability[:, index].astype(np.float64)
    pl.DataFrame(columns).write_csv(file, include_header=header, float_precision=6)
    return count


def are_predictions(path: Path) -> bool:
    """Whether a file begins like one of :func:`write_predictions`, or is empty."""
    with path.open("rb") as file:
        start = file.readline(_LONGEST_HEADER).decode("utf-8", "replace")
    return not start or (re.match(r"\ufeff?row([,;])(?:id\1)?label\1", start) is not None and "probability_" in start)


def spreadsheet_name(path: Path) -> Path:
    """Where :func:`write_spreadsheet` writes the predictions of a file: a.csv becomes a.spreadsheet.csv."""
    return path.with_name(path.name.removesuffix(".csv") + ".spreadsheet.csv")


def write_spreadsheet(predictions: Path, file: IO[bytes], sheet: Sheet) -> None:
    """Write predictions again for a spreadsheet: with a byte-order mark, and its separator and decimal sign."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    with predictions.open(encoding="utf-8", newline="") as given:
        rows, writer = csv.reader(given), csv.writer(text, delimiter=sheet.separator)
        limit = csv.field_size_limit(2**31 - 1)  # an id may be a long text
        try:
            header = next(rows)
            first = next(place for place, name in enumerate(header) if name.startswith("probability_"))
            writer.writerow(header)
            for row in rows:
                writer.writerow([*row[:first], *(cell.replace(".", sheet.decimal) for cell in row[first:])])
        finally:
            csv.field_size_limit(limit)
    text.flush()
    text.detach()


def neutral(text: str) -> str:
    """The text, prefixed with ' if a spreadsheet would run it as a formula; numbers are unchanged."""
    return f"'{text}" if is_formula(text) else text


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would treat the cell as a formula: it begins with =, +, -, @, tab or return.

    The signs count in their full-width forms too, which East Asian settings take for the plain ones. Numbers and single
    signs are not formulas.
    """
    if len(text) < 2 or text[0] not in "=+-@＝＋－＠\t\r":
        return False
    try:
        float(text)
    except ValueError:
        return True
    return text[0] in "\t\r"
