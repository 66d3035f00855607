from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from sobgnn import SobolevClassifier, cli
from tests.estimator.tuning.tuning_cases import clusters


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimators that the command makes train for a moment."""

    def few_epochs(**parameters: Any) -> SobolevClassifier:
        return SobolevClassifier(**{**parameters, "epochs": 15})

    importlib.import_module("sobgnn.estimator.tuning.search")  # before, for it keeps the class it finds
    monkeypatch.setattr("sobgnn.estimator.classifier.SobolevClassifier", few_epochs)


def tune(*words: object) -> int:
    return cli.main(["tune", *map(str, words)])


def table_file(folder: Path) -> Path:
    X, y = clusters()
    rows = [",".join([*(f"{v:.4f}" for v in x), "abc"[c] if c >= 0 else ""]) for x, c in zip(X, y, strict=True)]
    file = folder / "points.csv"
    file.write_text("\n".join(["p,q,r,s,t,label", *rows]) + "\n")
    return file


def journals(run: Path) -> list[str]:
    return [path.name for path in run.glob("*.journal")]


@pytest.mark.usefixtures("quick")
def test_the_command_writes_a_run_with_its_search_and_goes_on_with_more_trials(tmp_path: Path) -> None:
    file, run = table_file(tmp_path), tmp_path / "run"
    for trials in (1, 2):
        assert tune(file, "--trials", trials, "--out", run) == 0
        held = {"model", "predictions.csv", "report.html", "metrics.json", "table.json", "table.npz", "checks.json"}
        assert {path.name for path in run.iterdir()} == held | set(journals(run))
        assert len(journals(run)) == 1
        measured = json.loads((run / "metrics.json").read_text())
        search = measured["search"]
        assert len(search["trials"]) == trials
    assert "<h2>The search</h2>" in (run / "report.html").read_text()
    assert {name: measured["settings"][name] for name in search["setting"]} == search["setting"]


@pytest.mark.usefixtures("quick")
def test_the_run_of_another_search_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, run = table_file(tmp_path), tmp_path / "run"
    assert tune(file, "--trials", 1, "--out", run) == 0
    before = (run / "metrics.json").read_bytes()
    other = tmp_path / "others.csv"
    other.write_text(file.read_text().replace(".", ".9"))
    assert tune(other, "--trials", 1, "--out", run) == 2
    assert "already exists" in capsys.readouterr().err
    assert (run / "metrics.json").read_bytes() == before


@pytest.mark.usefixtures("quick")
def test_the_same_command_goes_on_in_the_folder_of_a_search_that_wrote_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    file = table_file(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("sobgnn.app.runs.folder.fill_run", killed)
        assert tune(file, "--trials", 1) == 130
    run = tmp_path / "runs/points-1"
    assert [path.name for path in run.iterdir()] == journals(run)
    assert tune(file, "--trials", 1) == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["points-1"]
    assert (tmp_path / "runs/points-1/table.json").exists()


@pytest.mark.usefixtures("quick")
def test_a_worker_takes_part_in_the_search_and_writes_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, storage = table_file(tmp_path), f"sqlite:///{tmp_path / 'trials.db'}"
    words = (file, "--trials", 1, "--storage", storage, "--out", tmp_path / "run")
    assert tune(*words, "--worker") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["points.csv", "trials.db"]
    assert tune(*words) == 0
    assert len(json.loads((tmp_path / "run/metrics.json").read_text())["search"]["trials"]) == 1
    assert not journals(tmp_path / "run")


def test_a_request_that_is_refused_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = table_file(tmp_path)
    (tmp_path / "taken").mkdir()
    for words, said in (
        (["--trials", 0], "trials"),
        (["--worker"], "--storage"),
        (["--labels", 2], "labels to hold out"),
        (["--out", tmp_path / "taken"], "already exists"),
        (["--sampler", "grid"], "sampler"),
        (["--accept", 2], "--accept must be between 0 and 1, but got 2"),
        (["--class-weight", "even"], "--class-weight: invalid choice"),
        (["--device", "abacus"], "There is no device 'abacus' here"),
        (["--text", "subject"], "--text names 'subject'"),
        (["--text", "p", "--text-model", tmp_path / "missing"], "missing"),
    ):
        assert tune(file, "--out", tmp_path / "run", *words) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("quick")
def test_a_tuned_run_marks_predictions_to_accept_and_weighs_classes(tmp_path: Path) -> None:
    words = ("--trials", 1, "--out", tmp_path / "run", "--accept", 0.9, "--class-weight", "balanced")
    assert tune(table_file(tmp_path), *words) == 0
    assert json.loads((tmp_path / "run" / "checks.json").read_text())["accept"]["target"] == 0.9
    assert (
        json.loads((tmp_path / "run" / "model" / "config.json").read_text())["settings"]["class_weight"] == "balanced"
    )
