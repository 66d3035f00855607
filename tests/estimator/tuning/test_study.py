from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from sobgnn.estimator.tuning.study import (
    ATTEMPTS_PER_SETTING,
    Pulse,
    StopSearch,
    finished,
    open_storage,
    retries_of,
    run_search,
)
from tests.postgres_server import UnavailableError, postgres_server


def parabola(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0, 1)
    trial.report(x, 1)
    if trial.number == 2:
        raise optuna.TrialPruned
    return (x - 0.3) ** 2


def test_a_search_ended_at_any_write_goes_on_with_nothing_lost_and_nothing_run_twice(tmp_path: Path) -> None:
    # A journal cut after any line is what a process killed there leaves behind.
    whole = tmp_path / "whole"
    with open_storage(whole) as storage:
        study = run_search(storage, "s", 4, parabola, sampler="random", seed=3)
        settings = sorted(trial.params["x"] for trial in finished(study))
    lines = whole.read_bytes().splitlines(keepends=True)
    assert len(lines) > 15
    for kept in range(len(lines)):
        cut = tmp_path / f"cut{kept}"
        cut.write_bytes(b"".join(lines[:kept]) + lines[kept][: len(lines[kept]) // 2])
        before: list[Any] = []
        with open_storage(cut) as storage:
            if "s" in [study.study_name for study in storage.get_all_studies()]:
                before = finished(optuna.load_study(study_name="s", storage=storage))
            ran: list[int] = []

            def counted(trial: optuna.Trial, ran: list[int] = ran) -> float:
                ran.append(trial.number)
                return parabola(trial)

            after = finished(run_search(storage, "s", 4, counted, sampler="random", seed=3))
        assert len(after) == 4
        assert [trial for trial in after if trial.number in {b.number for b in before}] == before
        assert len(ran) == 4 - len(before)
        assert sorted(trial.params["x"] for trial in after) == settings


def test_an_objective_that_stops_the_search_leaves_its_trial_to_be_run_again(tmp_path: Path) -> None:
    def stopping(trial: optuna.Trial) -> float:
        if trial.number == 2:
            raise StopSearch
        return parabola(trial)

    with open_storage(tmp_path / "j") as storage:
        assert len(finished(run_search(storage, "s", 4, stopping))) == 2
    with open_storage(tmp_path / "j") as storage:
        assert len(finished(run_search(storage, "s", 4, parabola))) == 4


def test_a_setting_that_keeps_failing_is_given_up_for_another(tmp_path: Path) -> None:
    tried: list[float] = []

    def failing(trial: optuna.Trial) -> float:
        tried.append(trial.suggest_float("x", 0, 1))
        raise RuntimeError("broken")

    with open_storage(None) as storage:
        for _ in range(ATTEMPTS_PER_SETTING + 1):
            with pytest.raises(RuntimeError, match="broken"):
                run_search(storage, "s", 1, failing)
    assert len(set(tried[:ATTEMPTS_PER_SETTING])) == 1
    assert tried[-1] != tried[0]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    try:
        with postgres_server() as url:
            yield url
    except UnavailableError as reason:
        pytest.skip(str(reason))


WORKER = """
import os, sys, time
from pathlib import Path
from sobgnn.estimator.tuning.study import Pulse, open_storage
from sobgnn.estimator.tuning.study import run_search

url, trials, log = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])

def say(word, trial):
    with open(log, "a") as file:
        file.write(f"{word} {os.getpid()} {trial.number} {trial.params['x']!r}\\n")

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    say("start", trial)
    while not (log.parent / "go").exists():  # until each worker has a trial, and one of them has been killed
        time.sleep(0.02)
    say("end", trial)
    return (x - 0.3) ** 2

pulse = Pulse(every=1, grace=3600)  # however slow this machine is, nobody alive is taken for dead
with open_storage(url, pulse) as storage:
    run_search(storage, "shared", trials, objective, sampler="random", seed=5)
"""


def said(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def let_signs_of_life_grow_old(storage: Any, study: str, number: int) -> None:
    """As if a trial's process had given none for a day."""
    identity = storage.get_trial_id_from_study_id_trial_number(storage.get_study_id_from_name(study), number)
    older = "UPDATE trial_heartbeats SET heartbeat = heartbeat - interval '1 day' WHERE trial_id = :identity"
    with storage.engine.begin() as connection:
        assert connection.execute(sqlalchemy.text(older), {"identity": identity}).rowcount == 1


def test_three_workers_on_postgresql_share_a_search_and_one_may_be_killed(postgres: str, tmp_path: Path) -> None:
    total, log = 14, tmp_path / "log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WORKER, postgres, str(total), str(log)]
    workers = [subprocess.Popen(command, env=environment) for _ in range(3)]
    try:
        until = time.monotonic() + 500  # a guard alone
        while len(said(log)) < 3:
            assert time.monotonic() < until, "the workers did not share the trials"
            assert all(worker.poll() is None for worker in workers)
            time.sleep(0.02)
        _, process, number, setting = said(log)[1]
        killed = next(worker for worker in workers if worker.pid == int(process))
        killed.kill()
        killed.wait()
        with open_storage(postgres) as storage:
            let_signs_of_life_grow_old(storage, "shared", int(number))
        (tmp_path / "go").touch()
        codes = [worker.wait(500) for worker in workers]
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
    assert sorted(codes) == [-signal.SIGKILL, 0, 0]

    with open_storage(postgres) as storage:
        study = optuna.load_study(study_name="shared", storage=storage)
        trials, done = study.trials, finished(study)
    assert total <= len(done) <= total + 1  # the two that are left may end at once
    assert not [trial for trial in trials if trial.state == TrialState.RUNNING]
    assert set(Counter(int(line[2]) for line in said(log) if line[0] == "end").values()) == {1}
    # The setting that the killed one was at work on was taken up by another.
    (again,) = [line for line in said(log) if line[0] == "end" and line[3] == setting]
    assert again[1] != process
    # The settings are those that one process would have drawn.
    with open_storage(None) as memory:
        alone = run_search(
            memory, "alone", len(done), lambda trial: trial.suggest_float("x", 0, 1), sampler="random", seed=5
        )
    assert sorted(t.params["x"] for t in done) == sorted(t.params["x"] for t in alone.trials)


def test_a_trial_whose_process_gave_no_sign_of_life_is_run_again(tmp_path: Path) -> None:
    with open_storage(f"sqlite:///{tmp_path / 'trials.db'}", Pulse(every=1, grace=2)) as storage:
        study = optuna.create_study(storage=storage, study_name="s")
        with pytest.warns(UserWarning, match="Heartbeat"):
            lost = study.ask()
        x = lost.suggest_float("x", 0, 1)
        storage.record_heartbeat(lost._trial_id)  # and nothing more is heard of the one that did
        older = "UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-1 day')"
        with storage.engine.begin() as connection:
            connection.execute(sqlalchemy.text(older))
        done = finished(run_search(storage, "s", 2, parabola))
    assert len(done) == 2
    assert done[0].params["x"] == x
    assert retries_of(done[0]) == [lost.number]
