"""Labels as files: CSV, Parquet, and Label Studio's JSON."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sobgnn.labeling.source import Source
from sobgnn.labeling.state import Label
from sobgnn.runs.content import picture_path
from sobgnn.tables.predictions import is_formula, neutral

if TYPE_CHECKING:
    import polars as pl

KINDS = {
    "csv": ("labels.csv", "text/csv; charset=utf-8"),
    "parquet": ("labels.parquet", "application/vnd.apache.parquet"),
    "label-studio": ("labels.label-studio.json", "application/json"),
}


def labels_frame(source: Source, classes: Mapping[int, str], labels: Mapping[int, Label]) -> pl.DataFrame:
    """A table of the labels: id (the row's number without ids), label, when, by."""
    import polars as pl

    rows = sorted(labels)
    columns = {
        "id": [source.id_of(row) for row in rows],
        "label": [classes[labels[row].code] for row in rows],
        "when": [labels[row].when for row in rows],
        "by": [labels[row].by for row in rows],
    }
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def labels_csv(source: Source, classes: Mapping[int, str], labels: Mapping[int, Label]) -> bytes:
    """The table as CSV; text that a spreadsheet would run as a formula is prefixed with '."""
    import polars as pl

    frame = labels_frame(source, classes, labels)
    safe = [pl.Series(name, [neutral(text) for text in frame[name]], dtype=pl.String) for name in ("id", "label")]
    return frame.with_columns(safe).write_csv().encode()


def count_formulas(source: Source, classes: Mapping[int, str], labels: Mapping[int, Label]) -> int:
    """Number of cells that :func:`labels_csv` writes with ' before them."""
    frame = labels_frame(source, classes, labels)
    return sum(is_formula(text) for name in ("id", "label") for text in frame[name])


def export(kind: str, source: Source, classes: Mapping[int, str], labels: Mapping[int, Label]) -> bytes:
    """The labels as one of ``KINDS``."""
    if kind == "label-studio":
        return _label_studio(source, classes, labels)
    if kind == "csv":
        return labels_csv(source, classes, labels)
    if kind != "parquet":
        raise ValueError(f"Labels are exported as {', '.join(KINDS)}, but got {kind!r}.")
    file = io.BytesIO()
    labels_frame(source, classes, labels).write_parquet(file)
    return file.getvalue()


def _label_studio(source: Source, classes: Mapping[int, str], labels: Mapping[int, Label]) -> bytes:
    """Tasks with one annotation each, for ``<Choices name="label" toName="text">``, or ``toName="image"`` for pictures.

    A task's data are the row's ``id``, its ``text`` or the path of its ``image``, and its columns; a column of one of
    these names is called "id (column)" and so on.
    """
    pictures = bool(source.pictured or source.side)
    shown = "image" if pictures else "text"
    tasks = []
    for row in sorted(labels):
        label = labels[row]
        texts = {part["name"]: part["value"] for part in source.content(row, None) if part["kind"] == "text"}
        data = {"id": source.id_of(row), shown: _picture(source, row) if pictures else _text(source, row, texts)}
        for name, value in texts.items():
            while name in data:
                name += " (column)"
            data[name] = value
        result = {
            "from_name": "label",
            "to_name": shown,
            "type": "choices",
            "value": {"choices": [classes[label.code]]},
        }
        annotation = {"result": [result], "created_at": label.when, "was_cancelled": False}
        tasks.append({"data": data, "annotations": [annotation]})
    return json.dumps(tasks, ensure_ascii=False, indent=1).encode()


def _text(source: Source, row: int, texts: Mapping[str, str]) -> str:
    return " · ".join(" ".join(value.split()) for value in texts.values()) or f"row {source.id_of(row)}"


def _picture(source: Source, row: int) -> str:
    """The path of the row's picture, or the picture itself if there is no file."""
    if source.pictured:
        return picture_path(source.table, row) or ""
    content, kind = source.read_picture(row)
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
