from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sobgnn.command.reproduce import app
from sobgnn.protocol import actions
from sobgnn.protocol.__main__ import main
from sobgnn.protocol.results import read


def test_the_table_is_trained_and_reported_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    lines, words = tmp_path / "lines", CliRunner()
    common = ["--datasets", "toy", "--data", str(folder), "--out", str(lines), "--device", "cpu", "--epochs", "5"]
    sized = ["table1", "--models", "SGC,MLP", "--trials", "2", "--seeds", "2", *common]
    done = words.invoke(app, sized)
    assert done.exit_code == 0, done.output
    assert len(list(read(lines))) == 2 * (2 * 2 + 2)
    assert "min left" in done.output
    assert words.invoke(app, [*sized, "--no-resume"]).exit_code != 0
    assert words.invoke(app, ["table1", *common, "--models", "GCN", "--time-limit", "0"]).exit_code == 3
    done = words.invoke(app, ["report", "--lines", str(lines), "--out", str(tmp_path / "tables")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "tables" / "table1.md").exists()


def test_the_settings_are_published_one_file_a_model(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["settings", "--out", str(tmp_path), "--trials", "3"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "S-SobGNN.json").read_text().count('"trial"') == 3
    published = Path(__file__).parents[2] / "results" / "settings"
    for file in published.glob("*.json"):  # what is kept in the repository is what a search tries
        first = file.read_text().splitlines()[1].rstrip(",")
        assert first == (tmp_path / file.name).read_text().splitlines()[1].rstrip(",")


@pytest.mark.parametrize("options", [["--models", ""], ["--datasets", ","], ["--heads", "paper", "--models", "MLP"]])
def test_options_that_leave_nothing_to_train_are_refused(options: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["table1", "--out", str(tmp_path / "lines"), "--device", "cpu", *options])
    assert "There is nothing to train" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_that_is_not_known_leaves_nothing_behind(tmp_path: Path) -> None:
    common = ["--datasets", "foo", "--out", str(tmp_path / "results" / "lines"), "--device", "cpu"]
    assert CliRunner().invoke(app, ["table1", "--models", "SGC", *common]).exit_code != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("study", ["table1", "few-labels", "ablations"])
def test_both_command_lines_train_the_same_cells_by_default(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    monkeypatch.setattr(actions, "train", lambda running, study, cells: not trained.append((study, cells)))
    assert CliRunner().invoke(app, [study]).exit_code == 0
    assert main([study]) == 0
    assert trained[0] == trained[1]
