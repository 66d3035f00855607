from __future__ import annotations

import os
from pathlib import Path

import pytest

from sobgnn._system.files import atomic_file, atomic_folder, write_text


@pytest.fixture
def calls(monkeypatch):
    """What is put on the disk, as inode numbers, and "rename", in the order in which it happens."""
    log: list[int | str] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def logged_fsync(handle):
        log.append(os.fstat(handle).st_ino)
        fsync(handle)

    def logged(move):
        def call(*places):
            log.append("rename")
            move(*places)

        return call

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged(replace))
    monkeypatch.setattr(os, "rename", logged(rename))
    return log


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_its_name_after(tmp_path, calls):
    write_text(tmp_path / "a.txt", "naïve\n")
    assert calls == [inode(tmp_path / "a.txt"), "rename", inode(tmp_path)]
    assert (tmp_path / "a.txt").read_bytes() == "naïve\n".encode()


def test_a_folder_and_its_files_are_on_the_disk_before_it_gets_its_name(tmp_path, calls):
    with atomic_folder(tmp_path / "run") as place:
        (place / "inner").mkdir()
        (place / "inner/a").write_text("x")
    renamed = calls.index("rename")
    assert set(calls[:renamed]) == {inode(path) for path in [tmp_path / "run", *(tmp_path / "run").rglob("*")]}
    assert calls[renamed + 1 :] == [inode(tmp_path)]


def test_a_file_that_fails_leaves_the_old_one_and_nothing_beside_it(tmp_path):
    write_text(tmp_path / "a.txt", "old")

    def fail_midway():
        with atomic_file(tmp_path / "a.txt") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_midway()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_folder_appears_whole_or_not_at_all_and_so_do_the_parents_it_needed(tmp_path):
    def fail_midway():
        with atomic_folder(tmp_path / "a/b/run") as place:
            (place / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_midway()
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(tmp_path / "a/b/run") as place:
        (place / "whole").write_text("x")
        assert not (tmp_path / "a/b/run").exists()
    assert [path.name for path in (tmp_path / "a/b").rglob("*")] == ["run", "whole"]


def test_a_folder_is_replaced_only_where_that_is_asked_for(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "old").write_text("x")
    with pytest.raises(ValueError, match="already exists"), atomic_folder(folder):
        pass
    with atomic_folder(folder, replace=True) as place:
        (place / "new").write_text("x")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["run", "run/new"]


def test_a_folder_that_others_have_made_meanwhile_is_left_to_them(tmp_path):
    with pytest.raises(FileExistsError, match="another process has made it"), atomic_folder(tmp_path / "run"):  # noqa: PT012
        (tmp_path / "run").mkdir()
        (tmp_path / "run/theirs").touch()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["run", "run/theirs"]


@pytest.mark.parametrize("others", [0, 1, 2])
def test_of_several_who_replace_a_folder_at_once_the_last_one_stays(tmp_path, monkeypatch, others):
    def late(source, target, rename=os.rename):
        if made:  # another process is faster
            Path(target).mkdir()
            (Path(target) / "a").write_text(made.pop())
        rename(source, target)

    folder, made = tmp_path / "run", ["other"] * others
    with atomic_folder(folder) as place:
        (place / "a").write_text("old")
    with monkeypatch.context() as patch, atomic_folder(folder, replace=True) as place:
        (place / "a").write_text("new")
        patch.setattr(os, "rename", late)
    assert not made
    assert (folder / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["run"]


def test_a_folder_whose_successor_cannot_be_renamed_is_put_back(tmp_path, monkeypatch):
    def failing(source, target, rename=os.rename):
        if Path(source).name != "run":
            raise KeyboardInterrupt
        rename(source, target)

    folder = tmp_path / "run"
    with atomic_folder(folder) as place:
        (place / "a").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing)
        patch.setattr(os, "replace", failing)
        with pytest.raises(KeyboardInterrupt), atomic_folder(folder, replace=True) as place:
            (place / "a").write_text("new")
    assert (folder / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["run"]


def test_permissions_are_those_of_any_new_file_and_folder(tmp_path):
    (tmp_path / "plain.txt").touch()
    (tmp_path / "plain").mkdir()
    write_text(tmp_path / "a.txt", "")
    with atomic_folder(tmp_path / "run"):
        pass
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_cannot_be_written_as_a_file(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        write_text(tmp_path, "x")


def test_a_place_that_cannot_be_written_to_is_named_by_the_file_and_not_by_a_temporary_name():
    with pytest.raises(OSError, match=r"'/proc/x\.csv'$"):
        write_text("/proc/x.csv", "a")


def test_a_full_disk_is_said_with_the_name_that_was_asked_for(tmp_path):
    for error in (OSError(28, "No space left on device", "/hidden/.t.x1"), RuntimeError("io error (os error 28)")):
        with pytest.raises(OSError, match="no space is left on its disk") as caught, atomic_file(tmp_path / "a.csv"):
            raise error
        assert caught.value.filename == str(tmp_path / "a.csv")
        with (
            pytest.raises(OSError, match="no space") as caught,
            atomic_folder(tmp_path / "run") as place,
            atomic_file(place / "a.csv"),
        ):
            raise error
        assert caught.value.filename == str(tmp_path / "run")
    assert not list(tmp_path.iterdir())
