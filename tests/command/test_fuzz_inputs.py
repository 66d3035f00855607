"""Three hundred malformed inputs: each ends in one line on stderr or in a result; no traceback, no partial file."""

from __future__ import annotations

import io
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sobgnn import SobolevClassifier, cli

CASES = 75  # for each of the four kinds


def small(paper, settings):
    return SobolevClassifier(k=5, n_members=1, epochs=5, random_state=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder to be damaged, and the files it can read."""
    folder = tmp_path_factory.mktemp("fuzz")
    generator = np.random.default_rng(0)
    code = generator.integers(0, 2, 40)
    values = generator.normal(size=(40, 3)) + 4 * code[:, None]
    frame = pl.DataFrame(values, schema=["a", "b", "c"]).with_columns(
        kind=pl.Series(np.array(["x", "y"])[code]), label=pl.Series(np.array(["u", "v"])[code])
    )
    frame.write_csv(folder / "good.csv")
    frame.write_parquet(folder / "good.parquet")
    np.savez(folder / "good.npz", X=values, y=code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sobgnn.command.fit._estimator", small)
        assert cli.main(["fit", str(folder / "good.csv"), "--out", str(folder / "run")]) == 0
        assert cli.main(["fit", str(folder / "good.npz"), "--out", str(folder / "array-run")]) == 0
    return folder


def damaged(data: bytes, generator: np.random.Generator) -> bytes:
    """Bytes with one to four injuries: cut, flipped, repeated, removed, or replaced by something odd."""
    odd = [b"\0", b'"', b"\xff\xfe", b"\n\n", b",,,,", b"nan", b"1e999", b"\r", b"-", b"\xf0\x9f\x8c\xb2", b"{", b"'"]
    for _ in range(int(generator.integers(1, 5))):
        at = int(generator.integers(0, len(data) + 1))
        to = min(len(data), at + int(generator.integers(1, 40)))
        kind = generator.integers(0, 6)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + bytes(generator.integers(0, 256, to - at, dtype=np.uint8)) + data[to:]
        elif kind == 2:
            data = data[:to] + data[at:]
        elif kind == 3:
            data = data[:at] + data[to:]
        elif kind == 4:
            data = data[:at] + odd[int(generator.integers(0, len(odd)))] + data[at:]
        else:
            data = data[at:] + data[:at]
    return data


def npz(**arrays) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


# Malformed by thought, where chance would not get to it.
CSV = [
    b"",
    b"\n",
    b"a,label",
    b"a,label\n",
    b"a,label\n1,u\n",
    b"a,label\n1,u\n2,u\n",
    b"a,label\n,u\n,v\n",
    b"a,label\n1,u,9\n2,v,9,9\n",
    b"label\nu\nv\n",
    b"a,a,label\n1,2,u\n3,4,v\n",
    b"\xef\xbb\xbfa,label\n1,u\n2,v\n",
    b'a,label\n"1,u\n2,v\n',
    b"a,label\n" + b"1," * 5000 + b"u\n",
    b",,\n1,2,3\n",
    b"a,label\ninf,u\n-inf,v\nnan,u\n",
    b"a,label\n1e400,u\n2,v\n",
    b"1,2,3\n4,5,6\n",
    b"PK\x03\x04",
    "a,label\n\u202e1,\u0000\n".encode(),
    b"a,label\n" + b"\n".join(b"%d,%d" % (i, i) for i in range(60)),
]
NPZ = [
    npz(X=np.zeros((0, 3)), y=np.zeros(0, int)),
    npz(X=np.zeros((5, 0)), y=np.arange(5)),
    npz(X=np.zeros(5), y=np.arange(5)),
    npz(X=np.zeros((5, 2), complex), y=np.arange(5)),
    npz(X=np.full((5, 2), np.nan), y=np.array([0, 1, 0, 1, -1])),
    npz(X=np.zeros((5, 2)), y=np.zeros(4, int)),
    npz(X=np.zeros((5, 2)), y=np.zeros((5, 2))),
    npz(X=np.zeros((5, 2)), z=np.zeros(5)),
    npz(y=np.zeros(5)),
    npz(X=np.array([["a", "b"]] * 5), y=np.array([0, 1, 0, 1, 0])),
    npz(X=np.ones((2, 2), dtype="M8[s]"), y=np.array([0, 1])),
    npz(
        X_data=np.ones(3),
        X_indices=np.array([0, 9, 1]),
        X_indptr=np.array([0, 2, 3]),
        X_shape=np.array([2, 2]),
        y=[0, 1],
    ),
    npz(X=np.eye(4), y=np.array([0, 1, 0, 1]), edge_index=np.array([[0, 9], [9, 0]])),
    b"\x93NUMPY\x01\x00",
    b"",
    b"PK\x05\x06" + b"\0" * 18,
]


def check(words, capsys, folder, before):
    """Run the command; the outcome is done or wrong input, in one line, with no file that was not asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what numbers do on the way to an error is not asked here
        code = cli.main(words)
    said = capsys.readouterr()
    assert code in (0, 2), said.err
    assert "Traceback" not in said.err
    assert said.err.count("\n") == (1 if code else 0), said.err
    if code:
        assert contents(folder) == before
    else:
        shutil.rmtree(folder / "out", ignore_errors=True)
        for made in folder.glob("*.predictions.csv"):
            made.unlink()
    return code


def contents(folder: Path):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_damaged_files_end_in_one_line_or_a_result(run, tmp_path, capsys, monkeypatch, suffix):
    monkeypatch.setattr("sobgnn.command.fit._estimator", small)
    monkeypatch.setattr("sobgnn.runs.page.render.render", lambda *_: "")  # the page has its own tests
    generator = np.random.default_rng(["csv", "parquet", "npz"].index(suffix))
    good = (run / f"good.{suffix}").read_bytes()
    thought = {
        "csv": CSV,
        "npz": NPZ,
        "parquet": [b"", b"PAR1", b"PAR1PAR1", good[:-4], good[4:], good[:-9] + good[-8:]],
    }
    cases = [*thought[suffix], *(damaged(good, generator) for _ in range(CASES))][:CASES]
    file = tmp_path / f"data.{suffix}"
    codes = []
    for number, case in enumerate(cases):
        file.write_bytes(case)
        before = contents(tmp_path)
        if number % 2 == 0 or number < len(thought[suffix]):
            codes.append(check(["fit", str(file), "--out", str(tmp_path / "out")], capsys, tmp_path, before))
        if number % 2 == 1 or number < len(thought[suffix]):
            model = "array-run" if suffix == "npz" else "run"
            codes.append(check(["predict", str(run / model), str(file)], capsys, tmp_path, before))
    assert 2 in codes


def test_damaged_run_folders_end_in_one_line_or_a_result(run, tmp_path, capsys):
    generator = np.random.default_rng(3)
    data = tmp_path / "data.csv"
    shutil.copy(run / "good.csv", data)
    names = ["table.json", "model/config.json", "model/weights.safetensors"]
    table = json.loads((run / "run" / "table.json").read_text())
    codes = []
    for number in range(CASES):
        folder = tmp_path / "run"
        shutil.copytree(run / "run", folder)
        target = folder / names[number % len(names)]
        if number < 3:
            target.unlink()
        elif number < 6:
            target.write_bytes(b"")
        elif number == 6:
            target.write_text(json.dumps(table | {"format": 99}))
        elif number == 9:
            target.write_text(json.dumps(table | {"encoding": {"columns": 3}}))
        elif number == 12:
            target.write_text("[" * 100_000)
        elif number == 15:
            shutil.copy(run / "array-run" / "table.json", target)
        else:
            target.write_bytes(damaged(target.read_bytes(), generator))
        codes.append(check(["predict", str(folder), str(data)], capsys, tmp_path, contents(tmp_path)))
        shutil.rmtree(folder)
    assert codes.count(2) > CASES // 2
