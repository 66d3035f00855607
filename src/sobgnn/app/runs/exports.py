"""Predictions in other programs' formats: Parquet, JSON lines, Label Studio's JSON, CSV for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sobgnn.app.runs import FORMATS, PREDICTIONS
from sobgnn.app.runs.run import Fitted
from sobgnn.tables.predictions import write_spreadsheet


def export(folder: Path, fitted: Fitted, extra: Mapping[str, Sequence[str]], formats: Sequence[str]) -> None:
    """Write the predictions of a run into its folder, which has them as CSV, in each of the formats.

    Args:
        folder: The folder.
        fitted: The run.
        extra: Columns that the checks add, such as ``decision``.
        formats: Names of :data:`~sobgnn.app.runs.FORMATS`.
    """
    table, classifier = fitted.table, fitted.classifier
    ids = {} if table.ids is None else {"id": pl.Series(list(map(str, table.ids.tolist())), dtype=pl.String)}
    labels = {"label": classifier.transduction_.tolist(), "given": fitted.given != -1}
    rows = pl.DataFrame({"row": np.arange(len(fitted.given)), **ids, **labels, **extra})
    names = [str(name) for name in classifier.classes_.tolist()]
    shares = pl.DataFrame(classifier.label_distributions_.astype(np.float64), schema=names, orient="row")
    for name in formats:
        path = folder / FORMATS[name]
        if name == "parquet":
            rows.hstack(shares.rename(lambda name: f"probability_{name}")).write_parquet(path)
        elif name == "jsonl":
            rows.with_columns(shares.select(pl.all().round(6)).to_struct("probabilities")).write_ndjson(path)
        elif name == "label-studio":
            path.write_text(json.dumps(_tasks(fitted, extra), ensure_ascii=False), encoding="utf-8")
        else:
            with path.open("wb") as file:
                write_spreadsheet(folder / PREDICTIONS, file, table.encoding.sheet(table.separator))


def label_studio_task(
    shown: str,
    fields: Mapping[str, Any],
    cells: Mapping[str, str],
    choice: str,
    *,
    score: float | None = None,
    when: str | None = None,
) -> dict[str, Any]:
    """A task of Label Studio with one choice, for ``<Choices name="label" toName="text">``, or ``toName="image"``.

    Args:
        shown: "text" or "image", the field that its labeling configuration shows.
        fields: The task's own data.
        cells: The row's columns; a column with the name of a field is called "text (column)" and so on.
        choice: The class.
        score: Its probability if it is a prediction; ``None``: it is an annotation.
        when: When the annotation was made.
    """
    data = dict(fields)
    for name, value in cells.items():
        while name in data:
            name += " (column)"
        data[name] = value
    result = [{"from_name": "label", "to_name": shown, "type": "choices", "value": {"choices": [choice]}}]
    if score is not None:
        return {"data": data, "predictions": [{"model_version": "sobgnn", "score": round(score, 6), "result": result}]}
    annotation = {"result": result, "was_cancelled": False}
    return {"data": data, "annotations": [annotation | ({} if when is None else {"created_at": when})]}


def _tasks(fitted: Fitted, extra: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Given labels as annotations, predicted ones as predictions, of tasks with ``row``, ``text``, id and checks."""
    labels, confidence, ids = fitted.classifier.transduction_.tolist(), fitted.confidence.tolist(), fitted.table.ids
    tasks = []
    for row, label in enumerate(labels):
        cells = fitted.table.content(row)
        fields: dict[str, Any] = {"row": row, "text": "\n".join(f"{name}: {text}" for name, text in cells.items())}
        fields |= {} if ids is None else {"id": str(ids[row])}
        fields |= {name: values[row] for name, values in extra.items()}
        score = confidence[row] if fitted.given[row] == -1 else None
        tasks.append({"id": row + 1, **label_studio_task("text", fields, cells, str(label), score=score)})
    return tasks
