"""Labels as files: CSV, Parquet, and Label Studio's JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sobgnn.labeling.session import Label
from sobgnn.labeling.source import Source
from sobgnn.tables.predictions import neutral

if TYPE_CHECKING:
    import polars as pl

KINDS = {
    "csv": ("labels.csv", "text/csv; charset=utf-8"),
    "parquet": ("labels.parquet", "application/vnd.apache.parquet"),
    "label-studio": ("labels.label-studio.json", "application/json"),
}


def labels_frame(source: Source, classes: Mapping[int, str], labels: Mapping[int, Label]) -> pl.DataFrame:
    """A table of the labels: id (the row's number where there are no ids), label, when, by."""
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
    """The table as CSV; text that a spreadsheet would run as a formula gets ' before it."""
    import polars as pl

    frame = labels_frame(source, classes, labels)
    safe = [pl.Series(name, [neutral(text) for text in frame[name]], dtype=pl.String) for name in ("id", "label")]
    return frame.with_columns(safe).write_csv().encode()


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
    """Tasks with one annotation each, for a project configured with ``<Choices name="label" toName="text">``."""
    tasks = []
    for row in sorted(labels):
        label = labels[row]
        data: dict[str, Any] = {part["name"]: part["value"] for part in source.content(row) if part["kind"] == "text"}
        result = {
            "from_name": "label",
            "to_name": "text",
            "type": "choices",
            "value": {"choices": [classes[label.code]]},
        }
        annotation = {"result": [result], "created_at": label.when, "was_cancelled": False}
        text = source.excerpt(row, most=10_000)
        task: dict[str, Any] = {"id": source.id_of(row), "text": text, **data}
        tasks.append({"data": task, "annotations": [annotation]})
    return json.dumps(tasks, ensure_ascii=False, indent=1).encode()
