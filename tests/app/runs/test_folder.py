from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sobgnn.app.runs.folder import check_free, fill_run, free_folder, new_run, open_run, remove_run, write_into
from sobgnn.app.runs.run import Checks, Fitted
from sobgnn.estimator.classifier import SobolevClassifier
from sobgnn.tables import from_arrays


def test_a_folder_must_be_free_and_possible_to_make(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/file").touch()
    with pytest.raises(ValueError, match="already exists"):
        check_free(tmp_path / "run")
    with pytest.raises(ValueError, match="cannot be created"):
        check_free(tmp_path / "run/file/deeper")


def test_the_next_free_name_is_safe_and_numbered(tmp_path):
    assert free_folder("my data/2", tmp_path).name == "my-data-2-1"
    (tmp_path / "x-1").mkdir()
    assert free_folder("x", tmp_path).name == "x-2"
    assert free_folder("..", tmp_path).name == "run-1"


def test_of_runs_that_are_made_at_once_each_gets_a_name_and_none_is_lost(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out, names in ((None, ["runs/x-1", "runs/x-2", "runs/x-3"]), (tmp_path / "a", ["a", "a-1", "a-2"])):
        with new_run(out, "x") as first, new_run(out, "x") as second:
            with new_run(out, "x") as third:
                (third.place / "third").touch()
            (second.place / "second").touch()
            (first.place / "first").touch()
        folders = [run.folder.absolute().relative_to(tmp_path).as_posix() for run in (third, second, first)]
        assert folders == names
        assert [path.name for run in (first, second, third) for path in run.folder.iterdir()] == [
            "first", "second", "third",
        ]  # fmt: skip


def test_a_run_that_fails_leaves_nothing_and_its_name_is_free(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), new_run(tmp_path / "a/b/run") as run:  # noqa: PT012
            (run.place / "half").touch()
            raise KeyboardInterrupt
        assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_cleared_by_the_next_fit_beside_it_and_what_is_held_is_kept(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from sobgnn.app.runs.folder import new_run\n"
        "with new_run(Path(sys.argv[1])) as run:\n"
        "    (run.place / 'half').touch(); os.kill(os.getpid(), 9)"
    )
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], check=False)
    assert sorted(path.name[17:] for path in tmp_path.iterdir()) == [".unfinished", ".unfinished.lock"]
    with new_run(tmp_path / "held") as held:
        with new_run(tmp_path / "one") as run:
            assert not list(run.place.iterdir())
            (run.place / "mine").touch()
        found = sorted(path.name for path in tmp_path.iterdir())
        assert found == [held.place.name, f"{held.place.name}.lock", "one"]


def filled(place, fitted, **_):
    (place / "model").mkdir()
    for name in ("model/weights", "table.json"):
        (place / name).write_text("new")
    return {"made": True}


def test_a_run_moves_in_beside_what_a_folder_holds_and_replaces_a_link_and_not_what_it_leads_to(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for place in (folder / "model", elsewhere):
        place.mkdir(parents=True)
        (place / "old").write_text("old")
    (folder / "labels").write_text("mine")
    monkeypatch.setattr("sobgnn.app.runs.folder.fill_run", filled)
    assert write_into(folder, None) == {"made": True}
    held = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert held == ["labels", "model/weights", "table.json"]
    for change in (lambda: write_into(folder, None), lambda: remove_run(folder)):
        shutil.rmtree(folder / "model")
        (folder / "model").symlink_to(elsewhere)
        change()
        assert not (folder / "model").is_symlink()
        assert (elsewhere / "old").read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["labels"]
    assert write_into(tmp_path / "new", None) == {"made": True}


def test_what_matters_is_a_stage_of_its_own_which_is_left_out_where_it_would_say_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sobgnn.app.runs.folder.column_importance", lambda fitted: {"a": 0.5})
    monkeypatch.setattr(SobolevClassifier, "save", lambda self, folder: None)
    X = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0], [9]], 20, axis=0)
    classifier = SobolevClassifier(families=["linear"], scale="range", random_state=0).fit(X, np.repeat([0, 1], 20))
    run = Fitted("data", classifier, from_arrays(X, np.repeat([0, 1], 20)), np.repeat([0, 1], 20))
    said = []

    def stage(what):
        said.append(what)
        return contextlib.nullcontext()

    def fill(fitted, **options):
        said.clear()
        (tmp_path / str(len(list(tmp_path.iterdir())))).mkdir()
        return fill_run(max(tmp_path.iterdir()), fitted, stage=stage, **options)

    assert fill(run).columns == {"a": 0.5}
    assert said == ["Measuring which columns matter", "Writing"]
    for fitted, options in ((run, {"importance": False}), (replace(run, complete=False), {})):
        assert fill(fitted, **options).columns is None
        assert said == ["Writing"]
    classifier.out_of_fold_probabilities_ = classifier.out_of_fold_probabilities_[::-1]  # no better than guessing
    assert fill(run).columns is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["table.json", "table.npz", "checks.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "large"])
def test_files_of_a_run_are_regular_and_not_too_large(tmp_path, name, kind):
    table = from_arrays(np.eye(4), np.array([0, 1, 0, 1]))
    table.encoding.save(tmp_path)
    Checks(None, 1.0).write(tmp_path)
    target = tmp_path / name
    target.unlink()
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "device":
        target.symlink_to("/dev/zero")
    elif kind == "folder":
        target.mkdir()
    elif kind == "loop":
        target.symlink_to(target)
    else:
        with open(target, "wb") as file:
            file.truncate(2**31)  # takes no room on the disk
    with pytest.raises(ValueError) as error:
        Checks.read(tmp_path) if name == "checks.json" else open_run(tmp_path)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["labels.db", "labels.csv"])
def test_a_labeling_that_was_not_finished_says_what_to_press(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"no model yet: open its page with `sobgnn label .*`, .* and press Finish"):
        open_run(tmp_path)
