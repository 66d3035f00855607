from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sobgnn import datasets
from sobgnn._system.process import at_most
from sobgnn.paper.__main__ import main
from sobgnn.paper.protocol import data as datafiles
from sobgnn.paper.protocol import workers
from sobgnn.paper.protocol.data import Prepared
from sobgnn.paper.protocol.evaluate import DatasetRunner, Limits
from sobgnn.paper.protocol.plan import Batch, Cell, search_batches
from sobgnn.paper.protocol.plan import test_batches as final_batches
from sobgnn.paper.protocol.results import Record, read

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


def test_two_shards_in_one_folder_are_one_run(folder: Path, tmp_path: Path) -> None:
    assert table(folder, tmp_path / "one") == 0
    assert table(folder, tmp_path / "two", "--shard", "1/2") == 0
    assert table(folder, tmp_path / "two", "--shard", "2/2") == 0
    assert len(list((tmp_path / "two").glob("*.jsonl"))) == 2
    assert timeless(tmp_path / "two") == timeless(tmp_path / "one")


def test_time_that_is_up_exits_with_3_and_the_next_run_goes_on(folder: Path, tmp_path: Path) -> None:
    assert table(folder, tmp_path / "out", "--time-limit", "0") == 3
    assert timeless(tmp_path / "out") == []
    assert table(folder, tmp_path / "out") == 0
    before = (tmp_path / "out" / "table1.jsonl").read_bytes()
    assert table(folder, tmp_path / "out") == 0  # nothing is left to do
    assert (tmp_path / "out" / "table1.jsonl").read_bytes() == before
    assert table(folder, tmp_path / "out", "--no-resume") == 2


def test_lines_that_were_lost_come_back_as_they_were(folder: Path, tmp_path: Path) -> None:
    assert table(folder, tmp_path) == 0
    path = tmp_path / "table1.jsonl"
    lines, before = path.read_text().splitlines(keepends=True), timeless(tmp_path)
    path.write_text("".join(lines[1::2]) + lines[0][:40])
    assert table(folder, tmp_path) == 0
    assert timeless(tmp_path) == before


@pytest.mark.parametrize("labels", ["10%", "5/class"])
@pytest.mark.parametrize(
    "model",
    ["S-SobGNN", "D-SobGNN", "GCN", "SIGN", "SuperGAT", "Poisson", "PoissonMBO+sizes", "LabelSpreading", "SVM"],
)
def test_no_number_of_the_search_depends_on_test_labels(toy: Prepared, model: str, labels: str) -> None:
    cell = Cell("table1", "toy", model, labels, trials=2, search_seeds=(0, 1), seeds=(7,))
    device, limits = torch.device("cpu"), Limits(epochs=10)
    lab = DatasetRunner(toy, device, limits)
    permuted = toy.y.copy()
    permuted[lab.test] = np.random.default_rng(0).permutation(permuted[lab.test])
    other = DatasetRunner(Prepared("toy", toy.X, permuted, toy.graph), device, limits)

    def searched(where: DatasetRunner) -> list[Record]:
        return [replace(r, seconds=0.0) for batch in search_batches(cell, 150) for r in where.run(batch)]

    lines = searched(lab)
    assert len(lines) == 4
    assert all(line.test_accuracy is None for line in lines)
    assert searched(other) == lines
    # The final stage does read them: the test above could fail.
    (batch,) = final_batches(cell, 0, dict(cell.settings()[0]), 150)
    (ours,), (theirs,) = (where.run(batch) for where in (lab, other))
    assert ours.validation_accuracy == theirs.validation_accuracy
    assert ours.test_accuracy != theirs.test_accuracy


def test_a_prepared_file_gives_back_the_graph_and_nearly_the_features(toy: Prepared, folder: Path) -> None:
    loaded = datafiles.load("toy", folder)
    np.testing.assert_array_equal(loaded.y, toy.y)
    assert (loaded.graph.to_scipy() != toy.graph.to_scipy()).nnz == 0
    np.testing.assert_allclose(loaded.X, toy.X, rtol=1e-3, atol=1e-6)


def test_the_graph_of_a_data_set_is_used_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = np.stack([np.arange(12), (np.arange(12) + 1) % 12])
    edges = np.concatenate([ring, ring[::-1]], axis=1)
    X, y = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.arange(12) % 2
    monkeypatch.setattr(datasets, "load", lambda name: datasets.Dataset(name, X, y, ("a", "b"), edges))
    given = datafiles.prepare("ring")
    assert given.graph.num_edges == 24
    np.testing.assert_allclose(given.graph.weight, 0.5)  # D^(-1/2) A D^(-1/2) where every degree is 2
    np.testing.assert_array_equal(given.X, X)
    datafiles.save(given, tmp_path)
    loaded = datafiles.load("ring", tmp_path)
    assert loaded.deviation == "own graph, features in float16"
    with pytest.raises(ValueError, match="ring has a graph of its own: there is no k to change"):
        datafiles.with_k(loaded, 5)


def test_a_data_set_whose_columns_have_units_is_standardized(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(3, [1, 100], size=(60, 2)).astype(np.float32)
    for standardize, deviations in ((True, [1, 1]), (False, X.std(axis=0))):
        loaded = datasets.Dataset("toy", X, np.arange(60) % 2, ("a", "b"), standardize=standardize)
        monkeypatch.setattr(datasets, "load", lambda name, loaded=loaded: loaded)
        np.testing.assert_allclose(datafiles.prepare("toy").X.std(axis=0), deviations, rtol=1e-5)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b""])
def test_a_damaged_prepared_file_is_one_line(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / "toy.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"toy\.npz is not a readable npz file.*`sobgnn reproduce prepare`\.$"):
        datafiles.load("toy", folder)


def test_an_unknown_model_is_named_with_those_there_are(folder: Path, tmp_path: Path, capsys: object) -> None:
    assert table(folder, tmp_path, models="GCM") == 2
    assert "no model 'GCM'" in capsys.readouterr().err  # type: ignore[attr-defined]


def test_workers_write_the_lines_of_one_process(folder: Path, tmp_path: Path) -> None:
    models = "S-SobGNN,SGC,SVM"
    with at_most(1):  # workers share the threads there are, and sums depend on how many add them up
        assert table(folder, tmp_path / "one", models=models) == 0
        assert table(folder, tmp_path / "two", "--workers", "2", "--time-limit", "0", models=models) == 3
        assert timeless(tmp_path / "two") == []
        assert table(folder, tmp_path / "two", "--workers", "2", models=models) == 0
    lines = timeless(tmp_path / "one")
    assert len(lines) == 3 * (2 * 2 + 2)
    assert timeless(tmp_path / "two") == lines


def test_a_worker_that_ends_is_one_line_and_nothing_is_lost(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(workers, "_train", _train_or_end)
        assert table(folder, tmp_path, "--workers", "2") == 2
    assert "One of 2 workers ended" in capsys.readouterr().err
    some = timeless(tmp_path)
    assert table(folder, tmp_path) == 0
    assert {record.key for record in some} < {record.key for record in timeless(tmp_path)}


def _train_or_end(batch: Batch) -> workers.Trained:
    if batch.stage == "test":
        os._exit(1)
    return workers._worker.train(batch)


def test_no_workers_at_all_is_one_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table(folder, tmp_path / "out", "--workers", "0") == 2
    assert "`workers` must be at least 1, but got 0." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
