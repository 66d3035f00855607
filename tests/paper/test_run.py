from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sobgnn._system.process import limit_threads
from sobgnn.paper import run as running
from sobgnn.paper.command import run_command
from sobgnn.paper.data import Prepared
from sobgnn.paper.report import write
from sobgnn.paper.results import Record, append, read
from sobgnn.paper.run import DatasetRunner
from sobgnn.paper.studies import Cell, search_batches
from sobgnn.paper.studies import test_batches as final_batches

SMALL = ["table1", "--datasets", "toy", "--trials", "2", "--seeds", "2", "--epochs", "10", "--device", "cpu"]


def timeless(path: Path) -> list[Record]:
    return sorted((replace(record, seconds=0.0) for record in read(path)), key=lambda record: record.key)


def table(folder: Path, out: Path, *more: str, models: str = "S-SobGNN,SGC") -> int:
    return run_command(
        [*SMALL, "--models", models, "--data", str(folder), "--out", str(out), *more], "sobgnn reproduce"
    )


def test_interrupted_at_every_batch_and_restarted_the_lines_are_those_of_an_uninterrupted_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = "S-SobGNN,GCN,SGC,SVM"
    assert table(folder, tmp_path / "whole", models=models) == 0
    lines, cut = timeless(tmp_path / "whole"), tmp_path / "cut"
    assert len(lines) == 4 * (2 * 2 + 2)
    batches = 0

    def interrupt(path: Path, records: list[Record]) -> None:
        """Let one batch pass; of the next, half its lines and half of one more are written."""
        nonlocal batches
        batches += 1
        append(path, records if batches % 2 else records[: len(records) // 2])
        if batches % 2 == 0:
            with path.open("ab") as file:
                file.write(b'{"study":"tab')
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running, "append", interrupt)
        for _ in range(20):
            try:
                assert table(folder, cut, models=models) == 0
            except KeyboardInterrupt:
                continue
            break
    assert batches > 8
    assert timeless(cut) == lines
    before = (cut / "table1.jsonl").read_bytes()
    assert before.count(b"\n") == len(lines)  # none twice
    assert table(folder, cut, models=models) == 0  # nothing is left to do
    assert (cut / "table1.jsonl").read_bytes() == before


def test_no_batch_starts_after_the_time_limit(folder: Path, tmp_path: Path) -> None:
    assert table(folder, tmp_path / "lines", "--time-limit", "0") == 3
    assert not (tmp_path / "lines").exists()


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
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(running, "fill", fill_and_end)
        with pytest.raises(ChildProcessError, match="One of 2 workers ended"):
            table(folder, tmp_path, "--workers", "2", models="SGC,MLP")
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
    changed = toy.y.copy()
    changed[lab.test] = 0
    other = DatasetRunner(Prepared("toy", toy.X, changed, toy.graph), lab.device, epochs=10)

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
    for study in (
        ["few-labels", "--trials", "1", "--labels", "5/class", "--models", "S-SobGNN,LabelSpreading,SobolevClassifier"],
        ["ablations", "--kinds", "self_branch,k,powers"],
        ["ablations", "--model", "D-SobGNN", "--kinds", "hops"],
    ):
        assert run_command([*study, *common], "sobgnn reproduce") == 0
    lines = list(read(tmp_path / "lines"))
    assert len(lines) == 2 * (2 + 2) + 2 + (2 + 5 + 2) * 2 + 4 * 2
    size = {line.variant: line.measures.get("operator MB", 0.0) for line in lines}
    assert size["powers=matrix"] > 2 * size["powers=hadamard"] > 0
    write(tmp_path / "lines", tmp_path)
    assert "| LabelSpreading |" in (tmp_path / "few_labels.md").read_text()
    told = (tmp_path / "ablations.md").read_text()
    assert "| powers=matrix |" in told
    assert "## D-SobGNN: hops" in told
