"""Predictions in other programs' formats: Parquet, JSON lines, Label Studio's JSON, CSV for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn.app.runs.run import Fitted
from sobgnn.tables.predictions import Sheet, write_spreadsheet

FORMATS = {
    "parquet": "predictions.parquet",
    "jsonl": "predictions.jsonl",
    "label-studio": "label-studio.json",
    "spreadsheet": "predictions.spreadsheet.csv",
}


def check_formats(names: Sequence[str]) -> None:
    """Raise if a format is unknown."""
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise ValueError(f"--export must be one of {', '.join(FORMATS)}, but got {unknown[0]!r}.")


def export(
    folder: Path, fitted: Fitted, predictions: Path, decision: Sequence[str] | None, formats: Sequence[str]
) -> None:
    """Write the predictions of a run into a folder in each of the formats.

    Args:
        folder: Where.
        fitted: The run.
        predictions: They as CSV.
        decision: Accept, review or given, for each row, if the run decides.
        formats: Names of :data:`FORMATS`.
    """
    for name in formats:
        path = folder / FORMATS[name]
        if name == "spreadsheet":
            with path.open("wb") as file:
                write_spreadsheet(predictions, file, fitted.table.encoding.sheet(fitted.table.separator))
        else:
            {"parquet": _parquet, "jsonl": _lines, "label-studio": _label_studio}[name](path, fitted, decision)


def spreadsheet_notes(sheet: Sheet, formats: Sequence[str]) -> list[str]:
    """A hint at the format for spreadsheets, if the file has decimal commas and that format was not requested."""
    if sheet.decimal == "." or "spreadsheet" in formats:
        return []
    return [
        "Predictions have decimal points between commas. For a spreadsheet that expects decimal commas: --export "
        "spreadsheet."
    ]


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


def _parquet(path: Path, fitted: Fitted, decision: Sequence[str] | None) -> None:
    import polars as pl

    classifier = fitted.classifier
    columns: dict[str, Any] = {"row": np.arange(len(fitted.given))}
    if fitted.table.ids is not None:
        columns["id"] = pl.Series([str(value) for value in fitted.table.ids.tolist()], dtype=pl.String)
    columns |= {"label": classifier.transduction_.tolist(), "given": fitted.given != -1}
    columns |= {} if decision is None else {"decision": list(decision)}
    for place, name in enumerate(classifier.classes_.tolist()):
        columns[f"probability_{name}"] = classifier.label_distributions_[:, place].astype(np.float64)
    pl.DataFrame(columns).write_parquet(path)


def _lines(path: Path, fitted: Fitted, decision: Sequence[str] | None) -> None:
    classifier, ids = fitted.classifier, fitted.table.ids
    names = [str(name) for name in classifier.classes_.tolist()]
    labels = classifier.transduction_.tolist()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row, probability in enumerate(classifier.label_distributions_.astype(float).round(6).tolist()):
            line: dict[str, Any] = {"row": row}
            line |= {} if ids is None else {"id": str(ids[row])}
            line |= {"label": labels[row], "given": bool(fitted.given[row] != -1)}
            line |= {} if decision is None else {"decision": decision[row]}
            line["probabilities"] = dict(zip(names, probability, strict=True))
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _label_studio(path: Path, fitted: Fitted, decision: Sequence[str] | None) -> None:
    """Given labels as annotations, predicted ones as predictions, of tasks with ``row``, ``text``, id and decision."""
    labels, confidence, ids = fitted.classifier.transduction_.tolist(), fitted.confidence.tolist(), fitted.table.ids
    tasks = []
    for row, label in enumerate(labels):
        cells = fitted.table.content(row)
        fields: dict[str, Any] = {"row": row, "text": "\n".join(f"{name}: {text}" for name, text in cells.items())}
        fields |= {} if ids is None else {"id": str(ids[row])}
        fields |= {} if decision is None else {"decision": decision[row]}
        score = confidence[row] if fitted.given[row] == -1 else None
        tasks.append({"id": row + 1, **label_studio_task("text", fields, cells, str(label), score=score)})
    path.write_text(json.dumps(tasks, ensure_ascii=False), encoding="utf-8")
