from __future__ import annotations

from pathlib import Path

import pytest

from sobgnn.cli import main
from sobgnn.paper.results import read


def test_the_table_is_trained_and_reported_from_the_command_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines"
    common = ["--datasets", "toy", "--data", str(folder), "--out", str(lines), "--device", "cpu", "--epochs", "5"]
    sized = ["reproduce", "table1", "--models", "SGC,MLP", "--trials", "2", "--seeds", "2", *common]
    assert main(sized) == 0
    assert len(list(read(lines))) == 2 * (2 * 2 + 2)
    assert "min left" in capsys.readouterr().out
    assert main([*sized, "--no-resume"]) == 2
    assert "already holds results of table1" in capsys.readouterr().err
    assert main(["reproduce", "table1", *common, "--models", "GCN", "--time-limit", "0"]) == 3
    assert main(["reproduce", "report", "--lines", str(lines), "--out", str(tmp_path / "tables")]) == 0
    told = (tmp_path / "tables" / "table1.md").read_text()
    assert "(2 trials, 2 search seeds, 2 seeds, 5 steps, features in float16)" in told
    command = "sobgnn reproduce table1 --models SGC,MLP --datasets toy --trials 2 --seeds 2 --epochs 5 --data FOLDER\n"
    assert command in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", ""], "There is nothing to train"),
        (["--heads", "paper", "--models", "MLP"], "There is nothing to train"),
        (["--models", "GCM"], "There is no model 'GCM'"),
        (["--models", "SGC", "--datasets", "foo"], "There is no data set 'foo'"),
        (["--models", "SGC", "--shard", "3"], "argument --shard: must be I/N, such as 1/4, but got '3'"),
        (["--models", "SGC", "--workers", "0"], "`workers` must be at least 1, but got 0."),
        (["--model", "SGC"], "unrecognized arguments: --model SGC"),
    ],
)
def test_wrong_options_are_one_line_and_leave_nothing_behind(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "table1", "--out", str(tmp_path / "lines"), "--device", "cpu", *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_commands_and_figure_1_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--help"]) == 0
    assert "few-labels" in capsys.readouterr().out
    assert main(["reproduce", "figure1", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"figure1.png", "figure1.svg"}
