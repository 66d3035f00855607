"""The fuzzer's first cases, each kind in a process of its own; `make fuzz` runs as many as there is time for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import Audit, Wrong, quietly

CASES = {"files": 2000, "models": 500, "estimator": 300}
ROOT = Path(__file__).parents[2]


def fuzz(kind: str, *words: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    alone = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzz", kind, *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | alone, capture_output=True, text=True, timeout=580)


@pytest.mark.parametrize("kind", CASES)
def test_hostile_input_ends_in_a_result_or_in_one_line(kind):
    done = fuzz(kind, "--count", str(CASES[kind]))
    begun = [line for line in done.stderr.splitlines() if line.startswith("begin ")]
    # A process that was killed says nothing more: its last case is the one.
    assert done.returncode == 0, f"{done.stdout[-6000:]}\nlast case: {begun[-1:]}, exit {done.returncode}"
    assert f'"cases": {CASES[kind]}, "failed": 0' in done.stdout


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [AssertionError(), ValueError(""), ValueError("one\ntwo"), TypeError("Unable to allocate 8 GiB"), KeyError("x")],
)
def test_the_fuzzer_takes_only_one_line_of_a_value_or_type_error_for_an_answer(error):
    assert quietly(lambda: fail(ValueError("`k` must be at least 1, but got 0."))) is None
    with pytest.raises((Wrong, type(error))):
        quietly(lambda: fail(error))


def test_the_fuzzer_sees_files_outside_a_run_and_programs(tmp_path):
    (tmp_path / "inside").mkdir()
    for path in (tmp_path / "inside" / "a", tmp_path / "b"):
        path.write_text("")
    audit = Audit([tmp_path / "inside"])
    with audit:
        (tmp_path / "inside" / "a").read_text()
    assert not audit.seen
    with audit:
        (tmp_path / "b").read_text()
        subprocess.run(["true"], check=True)
    assert [seen.split()[0] for seen in audit.seen] == ["open", "subprocess.Popen"]
