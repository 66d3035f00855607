"""Engines run the same steps: what a killed process or node lost is run again, and nothing else."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sobgnn.sharded.engine import Local, Pool, make_engine


def square(number: int) -> int:
    return number**2


def dies_once(argument: tuple[str, int]) -> int:
    """Kills its own process the first time."""
    folder, number = argument
    mark = Path(folder) / f"{number}-{len(list(Path(folder).iterdir()))}"
    mark.touch()
    if number == 2 and len(list(Path(folder).glob("2-*"))) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuses(_: int) -> None:
    raise ValueError("a line for people")


def test_names_choose_engines() -> None:
    assert isinstance(make_engine("local"), Local)
    assert isinstance(make_engine("local:3"), Pool)
    for name in ("local:0", "local:x", "spark", "ray:10001"):
        with pytest.raises(ValueError, match="`engine` must be"):
            make_engine(name)


@pytest.mark.parametrize("name", ["local", "local:2"])
def test_an_engine_gives_every_result_with_its_position(name: str) -> None:
    working = make_engine(name)
    assert sorted(working.map(square, [3, 1, 2])) == [(0, 9), (1, 1), (2, 4)]
    with pytest.raises(ValueError, match="a line for people"):
        list(working.map(refuses, [1, 2]))
    working.close()


def test_a_pool_runs_again_what_a_killed_process_had(tmp_path: Path) -> None:
    working = Pool(1)
    arguments = [(str(tmp_path), number) for number in range(4)]
    assert sorted(working.map(dies_once, arguments)) == [(number, number) for number in range(4)]
    runs = [path.name.split("-")[0] for path in tmp_path.iterdir()]
    assert sorted(runs) == ["0", "1", "2", "2", "3"]
    working.close()


def test_a_pool_gives_up_where_every_process_is_killed() -> None:
    working = Pool(1)
    with pytest.raises(ValueError, match="A process was killed 5 times, perhaps for want of memory"):
        list(working.map(dies, [0]))
    working.close()


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'sobgnn\[ray\]'"):
        make_engine("ray://head:10001")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_cluster_loses_a_worker_a_node_and_the_driver_and_runs_only_lost_tasks_again(tmp_path: Path) -> None:
    words = ["ray", "--fast", "--points=6000", "--features=16", "--shards=4", "--slow=3", f"--folder={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale_shards", *words], capture_output=True, text=True, timeout=550,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout[done.stdout.index("{") :])
    steps = ("find", "hop", "score")
    assert found["killed"] == [f"{what} in {step}" for step in steps for what in ("worker", "node", "driver")]
    for step in steps:  # what ran in the worker, on the node, and for the driver on all three nodes
        assert 1 <= sum(times - 1 for name, times in found["again"].items() if name.split()[0] == step) <= 5
    assert {name.split()[0] for name in found["again"]} == set(steps)
    assert found["same_labels"] == 1
    assert found["largest_difference"] < 1e-5
