"""Real processes over gloo: what K ranks learn is what one process learns."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sobgnn import SobolevOperators, knn_graph
from sobgnn.distributed.__main__ import main
from sobgnn.training import Task, predict_members, train_members

from . import worker


def torchrun(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script on so many ranks. Ranks that wait for one another forever are ended before pytest ends the test."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--master-port=0"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=570, env=environment)


def run_worker(ranks: int, out: Path, kill_rank: int = -1, kill_epoch: int = 0) -> subprocess.CompletedProcess[str]:
    return torchrun(ranks, worker.__file__, str(out), str(kill_rank), str(kill_epoch))


@pytest.fixture(scope="module")
def alone() -> dict[str, np.ndarray]:
    """The same training in one process, by the ordinary loop and operators."""
    given, model = worker.problem(), worker.model()
    X = torch.from_numpy(given["X"])
    operators = SobolevOperators(knn_graph(given["X"], k=6), model.alpha, model.epsilon)
    known = np.flatnonzero(given["target"] >= 0)
    weight, held = np.zeros((2, 120), np.float32), np.zeros((2, 120), bool)
    weight[:, known], held[:, known] = given["train_weight"], given["validation"]
    target = torch.from_numpy(np.maximum(given["target"], 0))
    task = Task(target, torch.from_numpy(weight), torch.from_numpy(held))
    members = train_members(model, (X, operators), task, [3, 4], worker.SCHEDULE)
    probabilities = predict_members(model, members.parameters, (X, operators)).softmax(2).mean(0)
    assert probabilities.dtype == torch.float64
    return {"probabilities": probabilities.numpy(), **{k: v.numpy() for k, v in members.parameters.items()}}


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.trains), 3, 4])
def test_ranks_learn_what_one_process_learns(ranks: int, alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    done = run_worker(ranks, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(tmp_path / "result.npz") as result:
        assert (result["halo"] > 0) == (ranks > 1)  # else nothing was exchanged and the test proves nothing
        for name, value in alone.items():
            np.testing.assert_allclose(result[name], value, rtol=1e-8, atol=1e-8, err_msg=name)


def test_a_rank_that_dies_ends_the_others_and_the_training_resumes_to_the_same_end(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert run_worker(2, whole).returncode == 0
    killed = run_worker(2, broken, kill_rank=1, kill_epoch=20)  # returns: the rank that is left does not wait
    assert killed.returncode != 0
    assert not (broken / "result.npz").exists()
    assert (broken / "checkpoint.safetensors").exists()
    assert run_worker(2, broken).returncode == 0
    with np.load(whole / "result.npz") as a, np.load(broken / "result.npz") as b:
        assert a["best_epoch"].max() > 20  # what is kept was learned after the stop
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_the_command_labels_every_point_and_refuses_bad_input_in_one_line(tmp_path: Path) -> None:
    given = worker.problem()
    np.save(tmp_path / "points.npy", given["X"])
    np.save(tmp_path / "labels.npy", given["target"])
    fit = ["-m", "sobgnn.distributed", "fit", "--labels", str(tmp_path / "labels.npy"), "--out", str(tmp_path / "run")]
    done = torchrun(2, *fit, "--points", str(tmp_path / "points.npy"), "--k=6", "--epochs=20")
    assert done.returncode == 0, done.stderr[-2000:]
    assert np.load(tmp_path / "run" / "predictions.npy").shape == (120,)
    assert not list((tmp_path / "run").glob("checkpoint*"))
    again = torchrun(1, *fit, "--points", str(tmp_path / "points.npy"), "--k=6", "--epochs=2")
    assert "neighbors of" not in again.stdout
    other = torchrun(1, *fit, "--points", str(tmp_path / "points.npy"), "--k=5", "--epochs=2")
    assert "neighbors of 120 points" in other.stdout
    np.save(tmp_path / "points.npy", given["X"][::-1])
    swapped = torchrun(1, *fit, "--points", str(tmp_path / "points.npy"), "--k=5", "--epochs=2")
    assert "neighbors of 120 points" in swapped.stdout
    np.save(tmp_path / "labels.npy", given["target"].astype(str))
    text = torchrun(1, *fit, "--points", str(tmp_path / "points.npy"))
    assert "labels.npy must hold integers" in text.stderr
    wrong = torchrun(1, *fit, "--points", str(tmp_path / "none.npy"))
    assert wrong.returncode != 0
    assert f"sobgnn: There is no file {tmp_path / 'none.npy'}." in wrong.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 0}, "`hidden` must be at least 1, but got 0."),
        ({"members": 0}, "`members` must be at least 1, but got 0."),
        ({"epochs": -4}, "`epochs` must be at least 1, but got -4."),
        ({"lr": "nan"}, "`lr` must be a number above 0, but got nan."),
        ({"weight-decay": -1}, "`weight_decay` must be a number of at least 0, but got -1.0."),
        ({"points": lambda X: X.astype(str)}, "must hold real numbers"),
        ({"points": lambda X: X + 1j}, "must hold real numbers"),
        ({"points": lambda X: np.where(np.arange(120)[:, None] == 7, np.nan, X)}, "X has 1 row with NaN"),
        ({"points": lambda X: X * 1e300}, "X has 120 rows with NaN, infinite or too large values (first: row 0)"),
        ({"labels": lambda y: np.where(y == 1, -2, y)}, "Labels must be at least 0, and -1 if unknown"),
    ],
)
def test_the_command_refuses_what_it_cannot_train_with(change, message, tmp_path: Path, capsys) -> None:
    given = worker.problem()
    knn_graph(given["X"], k=6).save(tmp_path / "graph.npz")
    arrays = {"points": given["X"], "labels": given["target"]}
    options = {"graph": tmp_path / "graph.npz", "out": tmp_path / "run", "epochs": 2}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", change[name](array) if name in change else array)
        options[name] = tmp_path / f"{name}.npy"
    options |= {name: value for name, value in change.items() if name not in arrays}
    assert main(["fit", *(f"--{name}={value}" for name, value in options.items())]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_command_reads_points_of_any_byte_order(tmp_path: Path) -> None:
    given = worker.problem()
    np.save(tmp_path / "labels.npy", given["target"])
    found = []
    for order in ("<f8", ">f8"):
        np.save(tmp_path / "points.npy", given["X"].astype(order))
        files = [f"--{name}={tmp_path / name}.npy" for name in ("points", "labels")]
        assert main(["fit", *files, f"--out={tmp_path / order}", "--k=6", "--epochs=5"]) == 0
        found.append(np.load(tmp_path / order / "probabilities.npy"))
    np.testing.assert_array_equal(*found)


@pytest.mark.cuda
def test_one_rank_over_nccl_learns_what_a_cpu_learns(alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    done = run_worker(1, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(tmp_path / "result.npz") as result:
        np.testing.assert_allclose(result["probabilities"], alone["probabilities"], atol=5e-3)


@pytest.mark.cuda
def test_the_command_labels_every_point_on_a_gpu(tmp_path: Path) -> None:
    given = worker.problem()
    np.save(tmp_path / "points.npy", given["X"])
    np.save(tmp_path / "labels.npy", given["target"])
    fit = ["-m", "sobgnn.distributed", "fit", f"--labels={tmp_path}/labels.npy", f"--out={tmp_path}/run"]
    done = torchrun(1, *fit, f"--points={tmp_path}/points.npy", "--k=6", "--epochs=20")
    assert done.returncode == 0, done.stderr[-2000:]
    assert np.load(tmp_path / "run" / "predictions.npy").shape == (120,)
