"""Hostile files, run folders and estimator inputs: each ends in a result, or in one line of a known error.

From the command that is exit code 2, one line on stderr and no file left behind. No case may take a minute, or 1 GB
more than there was. `make fuzz` tries many more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sobgnn import SobolevClassifier
from sobgnn.app.runs.folder import open_run
from sobgnn.tables import batches, read_table
from tests.fuzz.bench import Audit, Bench, command, quietly
from tests.fuzz.files import data_files
from tests.fuzz.inputs import cases
from tests.fuzz.models import copy_run, harm

# Cases of each kind that `make fuzz` asks for; otherwise they are few, and the same every time.
ASKED = int(os.environ.get("FUZZ", "0"))
SECONDS = 60


def tries(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=ASKED or count, derandomize=not ASKED, database=None, deadline=1000 * SECONDS,
        suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    def small(*_: Any) -> Any:
        quick = {"k": 3, "n_members": 1, "epochs": 1, "hidden_channels": 4, "scale": "range", "random_state": 0}
        return SobolevClassifier(families=["sobolev", "diffusion"], **quick)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sobgnn.app.command.fit._estimator", small)
        patch.setattr("sobgnn.app.runs.page.render.render", lambda *_: "")  # the page has its own tests
        yield Bench(tmp_path_factory.mktemp("fuzz"))


@tries(400)
@given(data_files(), st.integers(0, 59))
def test_files(bench: Bench, monkeypatch: pytest.MonkeyPatch, file: tuple[str, bytes], number: int) -> None:
    """Through the readers and, now and then, through the whole command."""
    with bench.case(monkeypatch):
        path = bench.work / f"data.{file[0]}"
        path.write_bytes(file[1])
        table = quietly(lambda: read_table(path, need_labels=number % 3 > 0))
        if table is not None:
            values = table.X.data if hasattr(table.X, "tocsr") else table.X
            assert np.isfinite(values).all()
            assert len(table.codes) == table.X.shape[0]
        name = "array" if path.suffix.startswith(".np") or number % 4 == 0 else "table"
        quietly(lambda: [batch.X for batch in batches(path, bench.encodings[name])])
        if number % 15 == 0:
            command("fit", path, "--out", bench.work / "out")
            shutil.rmtree(bench.work / "out", ignore_errors=True)
        if number % 15 == 1:
            command("predict", bench.runs[name], path)
            (bench.work / "data.predictions.csv").unlink(missing_ok=True)
        assert os.listdir(bench.work) == [path.name]


@tries(200)
@given(st.integers(0, 2**32 - 1))
def test_models(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A damaged or forged run: where it is opened it must predict, and nothing outside it may be opened."""
    name = list(bench.runs)[seed % len(bench.runs)]
    with bench.case(monkeypatch):
        run = copy_run(bench.runs[name], bench.work / "run")
        said = harm(run, seed, bench.outside)
        before = sorted(bench.work.rglob("*"))
        with bench.audit as audit:
            found = quietly(lambda: open_run(run, *bench.models[name]))
            if found is not None and found[0].n_features_in_ < 10_000:
                X = np.random.default_rng(seed).normal(size=(4, found[0].n_features_in_))
                probability = quietly(lambda: found[0].predict_proba(X))
                assert probability is not None, said
                assert np.isfinite(probability).all(), said
                quietly(found[0].describe)
            if seed % 3 == 0 or found is not None:
                out = bench.work / "out.csv"
                command("predict", run, bench.data[name], *bench.given(name), "--out", out)
                out.unlink(missing_ok=True)
        assert not audit.seen, said
        assert sorted(bench.work.rglob("*")) == before, said


@tries(150)
@given(cases())
def test_estimator(bench: Bench, monkeypatch: pytest.MonkeyPatch, case: Any) -> None:
    """Through fit and predict."""
    with bench.case(monkeypatch):
        made = quietly(lambda: SobolevClassifier(**case.settings).fit(case.X, case.y, graph=case.graph))
        if made is None:
            return
        for found in (made.label_distributions_, quietly(lambda: made.predict_proba(case.new))):
            assert found is None or np.allclose(found.sum(axis=1), 1, atol=1e-3)
        made.describe()


def fail(error: BaseException) -> None:
    raise error


def test_only_one_line_of_a_value_or_type_error_is_an_answer() -> None:
    assert quietly(lambda: fail(ValueError("`k` must be at least 1, but got 0."))) is None
    for error in (ValueError(""), ValueError("one\ntwo"), TypeError("Unable to allocate 8 GiB"), KeyError("x")):
        with pytest.raises((AssertionError, KeyError)):
            quietly(lambda error=error: fail(error))


def test_files_outside_a_run_and_programs_are_seen(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    for path in (tmp_path / "inside" / "a", tmp_path / "b"):
        path.write_text("")
    with Audit([tmp_path / "inside"]) as audit:
        (tmp_path / "inside" / "a").read_text()
    assert not audit.seen
    with audit:
        (tmp_path / "b").read_text()
        subprocess.run(["true"], check=True)
    assert [seen.split()[0] for seen in audit.seen] == ["open", "subprocess.Popen"]
