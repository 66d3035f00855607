from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest

from sobgnn.cli import main
from sobgnn.paper import plots
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
    ("study", "options", "message"),
    [
        ("table1", ["--models", ""], "There is nothing to train"),
        ("table1", ["--heads", "paper", "--models", "MLP"], "There is nothing to train"),
        ("table1", ["--heads", "own"], '"plain" or "paper", but got \'own\''),
        ("table1", ["--models", "GCM"], "There is no model 'GCM'"),
        ("table1", ["--models", "SGC", "--datasets", "foo"], "There is no data set 'foo'"),
        ("table1", ["--shard", "3"], "argument --shard: must be I/N with 1 <= I <= N, such as 1/4, but got 3"),
        ("table1", ["--shard", "3/2"], "argument --shard: must be I/N with 1 <= I <= N, such as 1/4, but got 3/2"),
        ("table1", ["--workers", "0"], "argument --workers: must be at least 1, but got 0"),
        ("table1", ["--model", "SGC"], "unrecognized arguments: --model SGC"),
        ("few-labels", ["--labels", "0/class"], "--labels must be like 5/class or 10%, but got '0/class'"),
        ("ablations", ["--kinds", "depth"], "There is no ablation 'depth' of S-SobGNN"),
        ("ablations", ["--model", "GCN"], "There are ablations of S-SobGNN and D-SobGNN, but got 'GCN'"),
        ("report", ["--lines", "none"], "No results at none. Create some with `sobgnn reproduce table1`."),
    ],
)
def test_wrong_options_are_one_line_and_leave_nothing_behind(
    study: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = [] if study == "report" else ["--device", "cpu"]
    assert main(["reproduce", study, "--out", str(tmp_path / "lines"), *device, *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--help"]) == 0
    assert "few-labels" in capsys.readouterr().out


def test_figure_1_shows_two_panels_with_five_curves_each_and_is_always_the_same(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    graph = plots.default_graph(n=100)
    assert (graph.num_nodes, graph.describe().components) == (100, 1)
    png, svg = plots.draw_figure1(graph, tmp_path / "new" / "folder")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for label in ("Non-sparse", "Sparse", "Eigenvalue index, ascending", "Eigenvalue / largest eigenvalue"):
        assert label in text
    for color in plots._COLORS:  # the curve of each panel, and its line in the legend
        assert len(re.findall(f"stroke: {color}", text)) == 3
    assert "<dc:date>" not in text
    again = plots.draw_figure1(plots.default_graph(n=100), tmp_path)
    assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]
    assert dict(matplotlib.rcParams) == before
