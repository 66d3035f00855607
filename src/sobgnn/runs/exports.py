"""Predictions in other programs' formats: Parquet, JSON lines, Label Studio's JSON, CSV for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn.runs.checks import Checks
from sobgnn.runs.run import Fitted
from sobgnn.tables.predictions import Sheet, write_spreadsheet

FORMATS = {
    "parquet": "predictions.parquet",
    "jsonl": "predictions.jsonl",
    "label-studio": "label-studio.json",
    "spreadsheet": "predictions.spreadsheet.csv",
}


def check_formats(names: list[str]) -> None:
    """Raise if a format is unknown."""
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise ValueError(f"--export must be one of {', '.join(FORMATS)}, but got {unknown[0]!r}.")


def export(folder: Path, fitted: Fitted, checks: Checks, formats: list[str]) -> None:
    """Write the predictions of a run into its folder, which holds predictions.csv, in each of the formats."""
    for name in formats:
        _WRITERS[name](folder / FORMATS[name], fitted, checks)


def spreadsheet_notes(sheet: Sheet, formats: Sequence[str]) -> list[str]:
    """A hint at the format for spreadsheets, if the file has decimal commas and that format was not requested."""
    if sheet.decimal == "." or "spreadsheet" in formats:
        return []
    return [
        "Predictions have decimal points between commas. For a spreadsheet that expects decimal commas: --export "
        "spreadsheet."
    ]


def _spreadsheet(path: Path, fitted: Fitted, checks: Checks) -> None:
    with path.open("wb") as file:
        sheet = fitted.table.encoding.sheet(fitted.table.separator)
        write_spreadsheet(path.with_name("predictions.csv"), file, sheet)


def _parquet(path: Path, fitted: Fitted, checks: Checks) -> None:
    import polars as pl

    classifier = fitted.classifier
    columns: dict[str, Any] = {"row": np.arange(len(fitted.given))}
    if fitted.table.ids is not None:
        columns["id"] = pl.Series([str(value) for value in fitted.table.ids.tolist()], dtype=pl.String)
    columns["label"] = classifier.transduction_.tolist()
    columns["given"] = fitted.given != -1
    columns |= checks.of_run(fitted)
    for place, name in enumerate(classifier.classes_.tolist()):
        columns[f"probability_{name}"] = classifier.label_distributions_[:, place].astype(np.float64)
    pl.DataFrame(columns).write_parquet(path)


def _lines(path: Path, fitted: Fitted, checks: Checks) -> None:
    classifier, ids = fitted.classifier, fitted.table.ids
    names = [str(name) for name in classifier.classes_.tolist()]
    decision = checks.of_run(fitted).get("decision")
    labels = classifier.transduction_.tolist()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row, probability in enumerate(classifier.label_distributions_.astype(float).round(6).tolist()):
            line: dict[str, Any] = {"row": row}
            if ids is not None:
                line["id"] = str(ids[row])
            line |= {"label": labels[row], "given": bool(fitted.given[row] != -1)}
            if decision is not None:
                line["decision"] = decision[row]
            line["probabilities"] = dict(zip(names, probability, strict=True))
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _label_studio(path: Path, fitted: Fitted, checks: Checks) -> None:
    """Tasks with a choice each: given labels as annotations, predicted ones as predictions.

    For a labeling configuration with ``<Choices name="label" toName="row">`` over ``<Text name="row" value="$text">``.
    A task's data are ``row``, ``text``, ``id``, ``decision`` and the row's columns; a column of one of these names is
    called "text (column)" and so on.
    """
    decision = checks.of_run(fitted).get("decision")
    labels, confidence = fitted.classifier.transduction_.tolist(), fitted.confidence
    tasks = []
    for row, label in enumerate(labels):
        cells = fitted.table.content(row)
        data: dict[str, Any] = {
            "row": row,
            "text": "\n".join(f"{name}: {text}" for name, text in cells.items()),
        }
        if fitted.table.ids is not None:
            data["id"] = str(fitted.table.ids[row])
        if decision is not None:
            data["decision"] = decision[row]
        for name, value in cells.items():
            while name in data:
                name += " (column)"
            data[name] = value
        chosen = [{"from_name": "label", "to_name": "row", "type": "choices", "value": {"choices": [str(label)]}}]
        task: dict[str, Any] = {"id": row + 1, "data": data}
        if fitted.given[row] != -1:
            task["annotations"] = [{"result": chosen}]
        else:
            task["predictions"] = [
                {"model_version": "sobgnn", "score": round(float(confidence[row]), 6), "result": chosen}
            ]
        tasks.append(task)
    path.write_text(json.dumps(tasks, ensure_ascii=False), encoding="utf-8")


_WRITERS = {"parquet": _parquet, "jsonl": _lines, "label-studio": _label_studio, "spreadsheet": _spreadsheet}
