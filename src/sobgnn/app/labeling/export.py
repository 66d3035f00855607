"""Labels as files: CSV, Parquet, and Label Studio's JSON."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sobgnn.app.labeling.rows import Source
from sobgnn.app.labeling.store import Store
from sobgnn.app.runs.source import picture_path
from sobgnn.tables.predictions import is_formula, neutral

if TYPE_CHECKING:
    import polars as pl

KINDS = {
    "csv": ("labels.csv", "text/csv; charset=utf-8"),
    "parquet": ("labels.parquet", "application/vnd.apache.parquet"),
    "label-studio": ("labels.label-studio.json", "application/json"),
}


def labels_frame(source: Source, store: Store) -> pl.DataFrame:
    """A table of the labels: id (the row's number without ids), label, when, by."""
    import polars as pl

    names = ("id", "label", "when", "by")
    cells = [(source.id_of(row), store.classes[own.code], own.when, own.by) for row, own in store.labeled()]
    return pl.DataFrame(cells, schema=dict.fromkeys(names, pl.String), orient="row")


def labels_csv(source: Source, store: Store) -> bytes:
    """The table as CSV; text that a spreadsheet would run as a formula is prefixed with '."""
    import polars as pl

    frame = labels_frame(source, store)
    safe = [pl.Series(name, [neutral(text) for text in frame[name]], dtype=pl.String) for name in ("id", "label")]
    return frame.with_columns(safe).write_csv().encode()


def count_formulas(source: Source, store: Store) -> int:
    """Number of cells that :func:`labels_csv` writes with ' before them."""
    frame = labels_frame(source, store)
    return sum(is_formula(text) for name in ("id", "label") for text in frame[name])


def export(kind: str, source: Source, store: Store) -> bytes:
    """The labels as one of ``KINDS``."""
    if kind == "label-studio":
        return _label_studio(source, store)
    if kind == "csv":
        return labels_csv(source, store)
    file = io.BytesIO()
    labels_frame(source, store).write_parquet(file)
    return file.getvalue()


def _label_studio(source: Source, store: Store) -> bytes:
    """Tasks with one annotation each: the row's ``id``, its ``text`` or the path of its ``image``, and its columns."""
    from sobgnn.app.runs.exports import label_studio_task  # here, since it loads torch

    pictures = bool(source.pictured or source.side)
    shown = "image" if pictures else "text"
    tasks = []
    for row, label in store.labeled():
        cells = {part["name"]: part["value"] for part in source.content(row, None) if part["kind"] == "text"}
        fields = {"id": source.id_of(row), shown: _picture(source, row) if pictures else _text(source, row, cells)}
        tasks.append(label_studio_task(shown, fields, cells, store.classes[label.code], when=label.when))
    return json.dumps(tasks, ensure_ascii=False, indent=1).encode()


def _text(source: Source, row: int, texts: Mapping[str, str]) -> str:
    return " · ".join(" ".join(value.split()) for value in texts.values()) or f"row {source.id_of(row)}"


def _picture(source: Source, row: int) -> str:
    """The path of the row's picture, or the picture itself if there is no file."""
    if source.pictured:
        return picture_path(source.table, row) or ""
    content, kind = source.read_picture(row)
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
