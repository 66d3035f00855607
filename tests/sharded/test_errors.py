"""What is wrong is said in one line, nothing is lost, and the same call resumes once it is mended."""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import polars as pl
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sobgnn import sharded
from sobgnn.cli import main
from sobgnn.sharded import cells, fitting
from sobgnn.sharded.store import Store
from tests.sharded.conftest import FAST, Fits, blobs


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Three Parquet files with ids of text, and a file of labels."""
    points, truth = blobs(rows=900)
    ids = [f"row-{number}" for number in range(900)]
    (tmp_path / "data").mkdir()
    for part in range(3):
        rows = slice(300 * part, 300 * (part + 1))
        frame = pl.DataFrame({"id": ids[rows], "embedding": points[rows], "length": np.arange(300)})
        frame.write_parquet(tmp_path / "data" / f"part-{part}.parquet")
    known = range(0, 900, 15)
    labels = {"id": [ids[row] for row in known], "label": [f"class {truth[row]}" for row in known]}
    pl.DataFrame(labels).write_csv(tmp_path / "labels.csv")
    return tmp_path


def fit(folder: Path, **more: Any) -> sharded.Result:
    given = {"data": folder / "data", "labels": folder / "labels.csv", "out": folder / "run", "shards": 2, **FAST}
    return sharded.fit(**{**given, **more})


def change(file: str, how: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    """Change one of the tables."""

    def changed(folder: Path) -> None:
        path = folder / "data" / file
        how(pl.read_parquet(path)).write_parquet(path)

    return changed


def shorten(folder: Path) -> None:
    path = folder / "data" / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:-100])


def with_nan(frame: pl.DataFrame) -> pl.DataFrame:
    points = frame["embedding"].to_numpy().copy()
    points[7, 2] = np.nan
    return frame.with_columns(embedding=points)


def narrower(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("embedding").arr.to_list().list.head(5))


def label(text: str) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        path = folder / "labels.csv"
        path.write_text(path.read_text() + text)

    return changed


def one_class(folder: Path) -> None:
    (folder / "labels.csv").write_text("id,label\nrow-1,a\nrow-2,a\nrow-3,\n")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shorten, "part-1.parquet is no whole .npy or Parquet file"),
        (change("part-1.parquet", with_nan), "1 of 300 rows from 0 with NaN or infinity (first: row 7)"),
        (change("part-1.parquet", narrower), "has other columns than the first file: 'embedding' is List(Float32)"),
        (change("part-2.parquet", lambda f: f.drop("embedding")), "'embedding' is missing"),
        (
            change("part-2.parquet", lambda f: f.with_columns(id=pl.lit("row-3"))),
            "id 'row-3' occurs more than once",
        ),
        (change("part-2.parquet", lambda f: f.with_columns(id=pl.lit(None, pl.String))), "has blank ids"),
        (label("row-9999,class 1\n"), "Labels name 1 ids that no row has (first: 'row-9999')"),
        (label("row-0,class 1\n"), "Labels name the id 'row-0' more than once"),
        (one_class, "Labels must hold at least 2 classes, but got 1 class, 'a'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tables: Path,
    spoil: Callable[[Path], None],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(tables)
    monkeypatch.setattr("sobgnn.app.command.shards._engine", lambda _: "local")
    words = ["fit", f"{tables}/data/part-*.parquet", "--labels", f"{tables}/labels.csv", "--out", f"{tables}/run"]
    assert main([*words, "--shards", "2"]) == 2
    *progress, error = capsys.readouterr().err.strip().splitlines()
    assert message in error
    assert not any("sobgnn:" in line for line in progress)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "nothing-*.parquet"}, "There is no .npy or .parquet file"),
        ({"data": ["a.npy", "b.npy"]}, "There is no file"),
        ({"labels": "none.csv"}, "There is no file 'none.csv' of labels"),
        ({"points": "vector"}, "has no column 'vector'"),
        ({"engine": "dask"}, "`engine` must be"),
        ({"families": ["poisson"]}, "poisson"),
        ({"metric": "cosine"}, "no parameter 'metric'"),
        ({"shards": 0}, "`shards` must be"),
        ({"recall": 2}, "`recall` must be"),
    ],
)
def test_wrong_arguments_are_named(tables: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("*", r"\*")):
        fit(tables, **given)


def test_a_run_holds_one_fit(tables: Path, fits: Fits) -> None:
    fit(tables)
    with pytest.raises(ValueError, match="holds a fit with other k"):
        fit(tables, k=7)
    with pytest.raises(ValueError, match="is no run of shards"):
        fit(tables, out=tables)
    with pytest.raises(ValueError, match="must have the columns"):
        sharded.predict(tables / "run", fits.folder / "data", tables / "out")
    with pytest.raises(ValueError, match="is no finished fit"):
        sharded.predict(tables, tables / "data", tables / "out")


def test_a_file_that_is_gone_is_named_and_the_run_resumes_when_it_is_back(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tables / "data" / "part-1.parquet"

    def gone(run: Any, part: int) -> dict[str, Any]:
        if part == 1 and path.exists():
            path.rename(tables / "aside")
        return partition(run, part)

    partition = cells.partition
    monkeypatch.setattr(cells, "partition", gone)
    with pytest.raises(ValueError, match=r"part-1\.parquet"):
        fit(tables)
    (tables / "aside").rename(path)
    monkeypatch.undo()
    assert fit(tables).rows == 900


def test_a_full_disk_is_said_and_what_was_finished_is_kept(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, begun = Store.save, Store.read_json(Store(str(tables)), "none")
    assert begun is None

    def full(self: Store, name: str, array: Any) -> int:
        if name == "hop-1":
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(self, name, array)

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(ValueError, match=r"No space left in .*run. Make room and run the same again"):
        fit(tables)
    assert (tables / "run" / "done" / "hop" / "0.json").is_file()
    monkeypatch.undo()
    result = fit(tables)
    table = pl.read_parquet(result.predictions)
    assert sorted(table["id"]) == sorted(f"row-{number}" for number in range(900))


def test_too_little_disk_is_said_before_anything_is_written(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting.shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    with pytest.raises(ValueError, match=r"needs at most about .* GiB of files in .*, but there are 0.0 GiB"):
        fit(tables)
    assert not list((tables / "run").glob("*.npy"))


class Refuses(MemoryFileSystem):
    """A bucket that may not be written."""

    protocol = "refuses"

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        raise PermissionError(errno.EACCES, "Access Denied", path)


def test_a_bucket_that_refuses_is_one_line(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fsspec.register_implementation("refuses", Refuses, clobber=True)
    words = ["fit", str(tables / "data"), "--labels", str(tables / "labels.csv"), "--out", "refuses://bucket/run"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "Access Denied" in error
    assert len(error.strip().splitlines()) == 1


def test_what_a_killed_process_was_writing_is_removed(tables: Path) -> None:
    (tables / "run").mkdir()
    with fitting.only_one(str(tables / "run")):
        (tables / "run" / "hop-1.npy.123.tmp").write_bytes(b"half")
    fit(tables)
    assert not list((tables / "run").rglob("*.tmp"))


def test_two_processes_do_not_work_in_one_folder(tables: Path) -> None:
    with fitting.only_one(str(tables / "run")), pytest.raises(ValueError, match="is used by another process"):
        fit(tables)


def test_half_a_file_never_has_its_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.save("array", np.arange(5))

    def half() -> None:
        with store.writing("array.npy") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert store.load("array").tolist() == [0, 1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["array.npy"]


@pytest.mark.parametrize("root", ["", "memory://rows"])
def test_rows_are_read_without_the_others(tmp_path: Path, root: str) -> None:
    store, array = Store(root or str(tmp_path)), np.random.default_rng(0).normal(size=(40, 3)).astype(np.float16)
    store.save("a", array)
    store.save("none", array[:0])
    np.testing.assert_array_equal(store.load("a", 5, 9), array[5:9])
    np.testing.assert_array_equal(store.load("a"), array)
    assert store.load("none").shape == (0, 3)


def test_the_command_fits_and_predicts(tables: Path) -> None:
    run = [sys.executable, "-m", "sobgnn"]
    words = ["fit", "data/part-*.parquet", "--points", "embedding", "--labels", "labels.csv", "--out", "run"]
    done = subprocess.run([*run, *words], cwd=tables, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert "900 rows labeled; probably" in done.stdout
    words = ["predict", "run", "data/part-0.parquet", "data/part-1.parquet", "--out", "predictions"]
    done = subprocess.run([*run, *words], cwd=tables, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = pl.read_parquet(tables / "predictions" / "predictions" / "*.parquet")
    before = pl.read_parquet(tables / "run" / "predictions" / "*.parquet")
    both = found.join(before, on="id", suffix="_before")
    assert len(both) == 600
    assert (both["label"] == both["label_before"]).mean() > 0.97


def test_options_of_shards_need_labels_in_a_file(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(tables / "data" / "part-0.parquet"), "--cluster", "auto"]) == 2
    assert "--cluster is for shards" in capsys.readouterr().err
    words = ["fit", str(tables / "data"), "--labels", str(tables / "labels.csv"), "--out", str(tables / "run")]
    assert main([*words, "--accept", "0.9"]) == 2
    assert "--accept is not for a fit of shards" in capsys.readouterr().err
