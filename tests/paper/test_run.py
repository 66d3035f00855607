from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sobgnn._system.process import limit_threads
from sobgnn.paper import run as running
from sobgnn.paper.__main__ import main
from sobgnn.paper.data import Prepared
from sobgnn.paper.evaluate import DatasetRunner
from sobgnn.paper.results import Record, read
from sobgnn.paper.studies import Cell, search_batches
from sobgnn.paper.studies import test_batches as final_batches

SMALL = ["table1", "--datasets", "toy", "--trials", "2", "--seeds", "2", "--epochs", "10", "--device", "cpu"]


def timeless(path: Path) -> list[Record]:
    return sorted((replace(record, seconds=0.0) for record in read(path)), key=lambda record: record.key)


def table(folder: Path, out: Path, *more: str, models: str = "S-SobGNN,SGC") -> int:
    return main([*SMALL, "--models", models, "--data", str(folder), "--out", str(out), *more])


def test_killed_ten_times_and_restarted_the_lines_are_those_of_an_uninterrupted_run(
    folder: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    worker = Path(__file__).with_name("worker.py")
    arguments = [*SMALL, "--models", "S-SobGNN,GCN,SGC,SVM", "--data", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(worker), str(whole), str(killed), "10", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1  # some kills came before the end
    lines = timeless(whole)
    assert len(lines) == 4 * (2 * 2 + 2)
    assert timeless(killed) == lines


def test_lines_that_were_lost_or_wait_for_time_come_as_in_one_run(folder: Path, tmp_path: Path) -> None:
    assert table(folder, tmp_path / "one") == 0
    lines = timeless(tmp_path / "one")
    path = tmp_path / "two" / "table1.jsonl"
    assert table(folder, path.parent, "--time-limit", "0") == 3
    assert not path.exists()
    path.parent.mkdir()
    whole = (tmp_path / "one" / "table1.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(whole[1::2]) + whole[0][:40])
    assert table(folder, path.parent) == 0
    assert timeless(path.parent) == lines
    before = path.read_bytes()
    assert table(folder, path.parent) == 0  # nothing is left to do
    assert path.read_bytes() == before
    assert table(folder, path.parent, "--no-resume") == 2


def test_two_shards_or_workers_in_one_folder_are_one_run(folder: Path, tmp_path: Path) -> None:
    models = "S-SobGNN,SGC,SVM"
    with limit_threads(1):  # workers share the threads there are, and sums depend on how many add them up
        assert table(folder, tmp_path / "one", models=models) == 0
        for part in ("1/2", "2/2"):
            assert table(folder, tmp_path / "shards", "--shard", part, models=models) == 0
        assert table(folder, tmp_path / "workers", "--workers", "2", models=models) == 0
    lines = timeless(tmp_path / "one")
    assert len(lines) == 3 * (2 * 2 + 2)
    for parts in ("shards", "workers"):
        assert len(list((tmp_path / parts).glob("table1.?-of-2.jsonl"))) == 2
        assert timeless(tmp_path / parts) == lines


def test_a_worker_that_ends_is_one_line_and_nothing_is_lost(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(running, "fill", fill_and_end)
        assert table(folder, tmp_path, "--workers", "2", models="SGC,MLP") == 2
    assert "One of 2 workers ended" in capsys.readouterr().err
    some = timeless(tmp_path)
    assert some
    assert table(folder, tmp_path, models="SGC,MLP") == 0
    assert {record.key for record in some} <= {record.key for record in timeless(tmp_path)}


def fill_and_end(cells: Sequence[Cell], data: Mapping[str, Prepared], how: running.Run) -> bool:
    running.fill(cells, data, how)
    os._exit(1)


def test_a_member_trains_on_its_training_points_and_is_chosen_by_its_validation_points(toy: Prepared) -> None:
    lab = DatasetRunner(toy, torch.device("cpu"), epochs=1)
    splits = [lab.split("5/class", seed) for seed in (3, 4)]
    task = lab._task(splits)
    assert task.validation is not None
    for split, weight, chosen in zip(splits, task.train_weight, task.validation, strict=True):
        np.testing.assert_array_equal(lab.development[weight > 0], split.train)
        assert float(weight.sum()) == pytest.approx(1)
        np.testing.assert_array_equal(lab.development[chosen], split.validation)
    np.testing.assert_array_equal(task.target, toy.y[lab.development])


@pytest.mark.parametrize("labels", ["10%", "5/class"])
@pytest.mark.parametrize(
    "model",
    ["S-SobGNN", "D-SobGNN", "GCN", "SIGN", "SuperGAT", "Poisson", "PoissonMBO+sizes", "LabelSpreading", "SVM"],
)
def test_no_number_of_the_search_depends_on_test_labels(toy: Prepared, model: str, labels: str) -> None:
    cell = Cell("table1", "toy", model, labels, trials=2, final=2)
    lab = DatasetRunner(toy, torch.device("cpu"), epochs=10)
    permuted = toy.y.copy()
    permuted[lab.test] = np.random.default_rng(0).permutation(permuted[lab.test])
    other = DatasetRunner(Prepared("toy", toy.X, permuted, toy.graph), lab.device, epochs=10)

    def searched(where: DatasetRunner) -> list[Record]:
        return [replace(r, seconds=0.0) for batch in search_batches(cell, 150) for r in where.run(batch)]

    lines = searched(lab)
    assert len(lines) == 4
    assert all(line.test_accuracy is None for line in lines)
    assert searched(other) == lines
    # The final stage does read them: the test above could fail.
    (batch,) = final_batches(cell, 0, cell.settings()[0], 150)
    ours, theirs = (where.run(batch)[0] for where in (lab, other))
    assert ours.validation_accuracy == theirs.validation_accuracy
    assert ours.test_accuracy != theirs.test_accuracy


def test_the_other_studies_run_and_are_reported(folder: Path, tmp_path: Path) -> None:
    common = ["--datasets", "toy", "--data", str(folder), "--out", str(tmp_path / "lines"), "--seeds", "2"]
    common += ["--epochs", "5", "--device", "cpu"]
    few = ["few-labels", *common, "--trials", "1", "--labels", "5/class"]
    assert main([*few, "--models", "S-SobGNN,LabelSpreading,SobolevClassifier"]) == 0
    assert main(["ablations", *common, "--kinds", "self_branch,k,powers"]) == 0
    assert main(["ablations", *common, "--model", "D-SobGNN", "--kinds", "hops"]) == 0
    lines = list(read(tmp_path / "lines"))
    assert len(lines) == 2 * (2 + 2) + 2 + (2 + 5 + 2) * 2 + 4 * 2
    size = {line.variant: line.measures.get("operator MB", 0.0) for line in lines}
    assert size["powers=matrix"] > 2 * size["powers=hadamard"] > 0
    assert main(["report", "--lines", str(tmp_path / "lines"), "--out", str(tmp_path)]) == 0
    assert "| LabelSpreading |" in (tmp_path / "few_labels.md").read_text()
    told = (tmp_path / "ablations.md").read_text()
    assert "| powers=matrix |" in told
    assert "## D-SobGNN: hops" in told
