from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from sobgnn.app.runs import FORMATS
from sobgnn.app.runs.exports import export
from sobgnn.app.runs.run import checks_of
from sobgnn.app.runs.summary import spreadsheet_notes
from sobgnn.tables import read_table, write_predictions
from sobgnn.tables.predictions import Sheet
from tests.fitted_runs import fitted_run


@pytest.fixture
def written(tmp_path):
    lines = [
        f"n{i};{i // 4},{i % 4 * 25};{'red' if i % 3 else 'blue'};{'xyz'[i % 3] if i % 2 else ''}" for i in range(90)
    ]
    (tmp_path / "t.csv").write_text("id;height;color;label\n" + "\n".join(lines) + "\n")
    fitted = fitted_run(table=read_table(tmp_path / "t.csv", None, None, []), labels=None, accept=0.5)
    with (tmp_path / "predictions.csv").open("wb") as file:
        classifier = fitted.classifier
        p = classifier.label_distributions_
        write_predictions(
            file, classifier.classes_.tolist(), 0, classifier.transduction_, p, fitted.table.ids, header=True
        )
    extra = checks_of(fitted).of_run(fitted)
    export(tmp_path, fitted, extra, list(FORMATS))
    return tmp_path, fitted


def test_parquet_and_json_lines_hold_the_predictions(written):
    folder, fitted = written
    table = pl.read_parquet(folder / "predictions.parquet")
    lines = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    assert table["label"].to_list() == [line["label"] for line in lines] == fitted.classifier.transduction_.tolist()
    assert table["id"][7] == lines[7]["id"] == "n7"
    assert table["given"].to_list() == [line["given"] for line in lines] == (fitted.given != -1).tolist()
    assert table["decision"].to_list() == [line["decision"] for line in lines]
    columns = [f"probability_{name}" for name in fitted.classifier.classes_]
    np.testing.assert_allclose(table[columns].to_numpy(), fitted.classifier.label_distributions_, atol=1e-6)
    np.testing.assert_allclose([list(line["probabilities"].values()) for line in lines],
                               fitted.classifier.label_distributions_, atol=1e-6)  # fmt: skip


def test_label_studio_gets_given_labels_as_annotations_and_others_as_predictions(written):
    folder, fitted = written
    tasks = json.loads((folder / "label-studio.json").read_text())
    assert [task["data"]["row"] for task in tasks] == list(range(90))
    assert tasks[4]["data"]["height"] == "1,0"
    assert "color: red" in tasks[4]["data"]["text"]
    for row, task in enumerate(tasks):
        given = fitted.given[row] != -1
        assert ("annotations" in task) == given == ("predictions" not in task)
        result = (task["annotations"] if given else task["predictions"])[0]["result"][0]
        assert result["type"] == "choices"
        assert result["value"] == {"choices": [str(fitted.classifier.transduction_[row])]}


def test_a_column_called_text_or_row_leaves_the_tasks_own(tmp_path):
    lines = [f"n{i},{i % 7}.5,word {i % 5},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("id,row,text,decision,label\n" + "\n".join(lines) + "\n")
    fitted = fitted_run(table=read_table(tmp_path / "t.csv"), labels=None, accept=0.5)
    extra = checks_of(fitted).of_run(fitted)
    export(tmp_path, fitted, extra, ["label-studio"])
    for number, task in enumerate(json.loads((tmp_path / "label-studio.json").read_text())):
        data = task["data"]
        assert (data["row"], data["row (column)"]) == (number, f"{number % 7}.5")
        assert data["text"].split("\n")[1:3] == [f"row: {number % 7}.5", f"text: word {number % 5}"]
        assert data["text (column)"] == f"word {number % 5}"
        assert (data["id"], data["decision (column)"]) == (f"n{number}", "ab"[number % 2])
        assert data["decision"] in ("given", "accept", "review")


def test_a_file_with_decimal_commas_gives_a_spreadsheet_with_them(written):
    folder, fitted = written
    text = (folder / "predictions.spreadsheet.csv").read_bytes().decode()
    assert text.startswith("\ufeffrow;id;label;")
    found = pl.read_csv(text.encode(), separator=";", decimal_comma=True)
    np.testing.assert_allclose(found["probability_x"], fitted.classifier.label_distributions_[:, 0], atol=1e-6)


def test_the_format_for_spreadsheets_is_hinted_at_where_it_helps():
    assert "--export spreadsheet" in spreadsheet_notes(Sheet(";", ","), [])[0]
    assert not spreadsheet_notes(Sheet(";", ","), ["spreadsheet"])
    assert not spreadsheet_notes(Sheet(), [])
