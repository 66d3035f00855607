from __future__ import annotations

import os

import pytest

from sobgnn.runs.folder import check_free, free_folder, write_into


def test_a_folder_must_be_free_and_possible_to_make(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/file").touch()
    with pytest.raises(ValueError, match="already there"):
        check_free(tmp_path / "run")
    with pytest.raises(ValueError, match="cannot be made"):
        check_free(tmp_path / "run/file/deeper")


def test_the_next_free_name_is_safe_and_numbered(tmp_path):
    assert free_folder("my data/2", tmp_path).name == "my-data-2-1"
    (tmp_path / "x-1").mkdir()
    assert free_folder("x", tmp_path).name == "x-2"
    assert free_folder("..", tmp_path).name == "run-1"


def test_a_run_moves_in_beside_what_a_folder_holds_and_leaves_what_is_not_its_own(tmp_path, monkeypatch):
    def fill(place, fitted):
        (place / "model").mkdir()
        (place / "model" / "weights").write_text("new")
        (place / "table.json").write_text("new")
        return {"made": True}

    folder, other = tmp_path / "run", tmp_path / f".run.{os.getpid()}.run"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "old").write_text("old")
    (folder / "labels").write_text("mine")
    other.mkdir()
    (other / "theirs").write_text("x")
    monkeypatch.setattr("sobgnn.runs.folder.fill_run", fill)
    assert write_into(folder, None) == {"made": True}
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        [f".run.{os.getpid()}.run/theirs", "run/labels", "run/model/weights", "run/table.json"]
    )
