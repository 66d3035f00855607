"""The fuzzer: `python -m tests.fuzz files|models|estimator|all [--seed S] [--count N] [--time SECONDS]`.

Every case follows from its seed. A case is good where it succeeds with finite probabilities, or ends in a ValueError or
TypeError of one line (from the command: exit code 2, one line on stderr, no file left behind). It fails on any other
exception, a traceback, exit code 1, more than 60 seconds, or more than 1 GB over the start. A forged run fails, too, if
it starts a program, connects, opens a file outside it, or is refused only after it was opened. Failing seeds are
printed; `--seed S --count 1` repeats one. Exit: 0 none failed, 1 some did.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn.runtime.packages import installed
from tests.encoders import static_model

SECONDS, BYTES = 60, 2**30
KINDS = ("files", "models", "estimator")
# Of the files, every n-th goes through the whole command too.
FIT_EVERY, PREDICT_EVERY = 60, 15
# Cases to a process, where all kinds are run.
AT_ONCE = 1000


class Wrong(AssertionError):  # noqa: N818 - a verdict
    """A case did not end as it must."""


def small(*_: Any) -> Any:
    """The estimator of the command, as quick as it gets."""
    from sobgnn import SobolevClassifier

    return SobolevClassifier(
        k=3, n_members=1, epochs=1, hidden_channels=4, families=["mlp", "diffusion"], scale="range", random_state=0
    )


class Audit:
    """What Python reports of opened files, started programs and connections, while it is watching.

    Args:
        inside: Folders whose files may be opened, besides Python's own and the system's.
    """

    def __init__(self, inside: list[Path]) -> None:
        self.watching, self.seen = False, []  # type: tuple[bool, list[str]]
        own = [*sys.path, sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/lib", "/usr/lib"]
        self._inside = tuple(os.path.realpath(path) for path in [*inside, *(path for path in own if path)])
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event in (
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "socket.connect",
            "pickle.find_class",
        ):
            self.seen.append(f"{event} {given!r:.120}")
        elif event == "open" and isinstance(given[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(given[0]))
            if not path.startswith(self._inside):
                self.seen.append(f"open {path}")

    def __enter__(self) -> Audit:
        self.watching, self.seen = True, []
        return self

    def __exit__(self, *_: object) -> None:
        self.watching = False


class Bench:
    """Fitted runs, of a table, an array, pictures and texts by a model, and a place for the files of a case.

    Args:
        place: An empty folder.
    """

    def __init__(self, place: Path) -> None:
        import polars as pl

        import sobgnn.command.fit
        import sobgnn.runs.page.render
        from sobgnn.runs.folder import open_run

        sobgnn.command.fit._estimator = small
        sobgnn.runs.page.render.render = lambda *_: ""  # the page has its own tests
        self.made, self.work, self.outside = place / "made", place / "work", place / "outside"
        for folder in (self.made, self.work, self.outside):
            folder.mkdir()
        self.audit = Audit([self.made, self.work])
        draw = np.random.default_rng(0)
        code = draw.integers(0, 2, 40)
        values = draw.normal(size=(40, 3)) + 4 * code[:, None]
        frame = pl.DataFrame(values, schema=["c0", "c1", "c2"]).with_columns(
            kind=pl.Series(np.array(["red", "blue"])[code]),
            note=pl.Series([" ".join(draw.choice(["ash", "birch", "is", "tall", "old"], 5)) for _ in code]),
            label=pl.Series(np.array(["u", "v"])[code]),
        )
        frame.write_csv(self.made / "table.csv")
        np.savez(self.made / "array.npz", X=values, y=code)
        self.data = {name: self.made / name for name in ("table.csv", "array.npz")}
        self.models = {name: [] for name in self.data}  # type: dict[Path | str, list[str]]
        self.data["pictures"], self.models["pictures"] = _pictures(self.made / "pictures", code), []
        _pictures(self.outside, code[:1], "secret")
        (self.outside / "evil.pt2").write_bytes(b"PK")
        if installed("transformers"):
            static_model(self.outside / "model")
            self.data["texts"] = self.made / "texts.csv"
            frame.write_csv(self.data["texts"])
            self.models["texts"] = ["--text-model", str(static_model(self.made / "model"))]
        self.runs = {name.split(".")[0]: self.made / f"{name.split('.')[0]}.run" for name in self.data}
        self.data = {name.split(".")[0]: path for name, path in self.data.items()}
        self.models = {str(name).split(".")[0]: words for name, words in self.models.items()}
        for name, run in self.runs.items():
            self.command(["fit", str(self.data[name]), "--out", str(run), *self.models[name]])
        self.encodings = {name: open_run(self.runs[name])[1] for name in ("table", "array")}

    def command(self, words: list[str]) -> int:
        """Run the command, check what it says, and return its exit code."""
        from sobgnn import cli

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(words)
        said = err.getvalue()
        if code not in (0, 2) or "Traceback" in said or said.count("\n") != (1 if code else 0) or _of_memory(said):
            raise Wrong(f"exit {code}: {said[-600:]}")
        return code

    def clean(self) -> None:
        """Remove what is in the place of a case."""
        shutil.rmtree(self.work)
        self.work.mkdir()


def _of_memory(text: str) -> bool:
    return any(word in text for word in ("MemoryError", "allocate", "out of memory"))


def quietly(action: Callable[[], Any]) -> Any:
    """What an action gives, or ``None`` where it ends in one line; anything else is wrong."""
    try:
        return action()
    except (ValueError, TypeError, PermissionError) as error:
        if "\n" in str(error) or not str(error) or _of_memory(str(error)):
            raise Wrong(f"{type(error).__name__}: {str(error)[:300]!r}") from error
    return None


def _pictures(folder: Path, codes: Any, name: str = "") -> Path:
    from PIL import Image

    for i, code in enumerate(codes[:16]):
        path = folder / (f"{name}.png" if name else f"{'uv'[code]}/{i}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (int(150 * code) + 3 * i, 40, 90)).save(path)
    return folder


def _left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def files(bench: Bench, seed: int) -> str:
    """A hostile file through the readers and, now and then, through the command."""
    from sobgnn.tables import batches, read_table
    from tests.fuzz.files import CHOSEN, data_file

    suffix, data = data_file(seed)
    path = bench.work / f"data.{suffix}"
    path.write_bytes(data)
    table = quietly(lambda: read_table(path, need_labels=seed % 3 > 0))
    if table is not None:
        values = table.X.data if hasattr(table.X, "tocsr") else table.X
        if not np.isfinite(values).all() or len(table.codes) != table.X.shape[0]:
            raise Wrong("features that are not finite, or not one per row")
    name = "array" if suffix.startswith("np") or seed % 4 == 0 else "table"
    quietly(lambda: [batch.X for batch in batches(path, bench.encodings[name])])
    said = ["no", "yes"][table is not None]
    chosen = seed < len(CHOSEN)
    if chosen or seed % FIT_EVERY == 0 or (seed % PREDICT_EVERY == 0 and table is not None):
        said += f" fit {bench.command(['fit', str(path), '--out', str(bench.work / 'out')])}"
        shutil.rmtree(bench.work / "out", ignore_errors=True)
    if chosen or seed % PREDICT_EVERY == 1:
        said += f" predict {bench.command(['predict', str(bench.runs[name]), str(path)])}"
        (bench.work / "data.predictions.csv").unlink(missing_ok=True)
    if _left(bench.work) != [path.name]:
        raise Wrong(f"left behind: {_left(bench.work)}")
    return f"{suffix} {said}"


def models(bench: Bench, seed: int) -> str:
    """A damaged or forged run, opened; where that works it must predict, and nothing outside it may be opened."""
    from sobgnn.runs.folder import open_run
    from tests.fuzz.models import copy_run, harm

    name = list(bench.runs)[seed % len(bench.runs)]
    run = copy_run(bench.runs[name], bench.work / "run")
    said = harm(run, seed, bench.outside)
    before, words = _left(bench.work), bench.models[name]
    try:
        with bench.audit as audit:
            found = quietly(lambda: open_run(run, *map(Path, words[1:])))
            if found is not None and found[0].n_features_in_ < 10_000:
                X = np.random.default_rng(seed).normal(size=(4, found[0].n_features_in_))
                probability = quietly(lambda: found[0].predict_proba(X))
                if probability is None or not np.isfinite(probability).all():
                    raise Wrong("a run that was opened does not predict, or what is not finite")
                quietly(found[0].describe)
            if seed % 3 == 0 or found is not None:
                given = ["predict", str(run), str(bench.data[name]), *words, "--out", str(bench.work / "out.csv")]
                bench.command(given)
                (bench.work / "out.csv").unlink(missing_ok=True)
        if audit.seen:
            raise Wrong(f"outside the run: {audit.seen[:3]}")
        if _left(bench.work) != before:
            raise Wrong(f"left behind: {_left(bench.work)}")
    except BaseException as error:
        error.add_note(said) if hasattr(error, "add_note") else None
        raise
    return "opened" if found is not None else "refused"


def estimator(bench: Bench, seed: int) -> str:
    """Hostile points, labels and parameters through fit and predict."""
    from sobgnn import SobolevClassifier
    from tests.fuzz.inputs import estimator_case

    case = estimator_case(seed)
    made = quietly(lambda: SobolevClassifier(**case.settings).fit(case.X, case.y, graph=case.graph))
    if made is None:
        return "refused"
    found = [made.label_distributions_, quietly(lambda: made.predict_proba(case.new))]
    for probability in found:
        if probability is not None and not np.allclose(probability.sum(axis=1), 1, atol=1e-3):
            raise Wrong("probabilities that do not add up to 1")
    made.describe()
    return "fitted" + ("" if found[1] is None else " and predicted")


def run(kind: str, first: int, count: int, until: float) -> int:
    """Run cases of one kind and print those that fail; returns how many did."""
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    scratch = place / "tmp"
    scratch.mkdir()
    tempfile.tempdir = str(scratch)
    failed, seen, slowest = 0, Counter[str](), (0.0, -1)

    def alarm(*_: Any) -> None:
        raise Wrong(f"more than {SECONDS} seconds")

    signal.signal(signal.SIGALRM, alarm)
    try:
        bench = Bench(place)
        case = {"files": files, "models": models, "estimator": estimator}[kind]
        case(bench, first)  # what is imported and kept once is no case's own
        bench.clean()
        shutil.rmtree(scratch)
        scratch.mkdir()
        start = _status("VmSize")
        resource.setrlimit(resource.RLIMIT_AS, (start + BYTES, resource.RLIM_INFINITY))
        seed = first
        while seed < first + count and time.monotonic() < until:
            print(f"begin {seed}", file=sys.stderr, flush=True)
            began = time.monotonic()
            signal.alarm(SECONDS)
            try:
                seen[case(bench, seed)] += 1
                if os.listdir(scratch):
                    raise Wrong(f"left in the temporary folder: {os.listdir(scratch)}")
            except BaseException as error:
                signal.alarm(0)
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                failed += 1
                trace = traceback.format_exc().strip().splitlines()
                print(f"FAILED {kind} seed {seed}: {type(error).__name__}: {str(error)[:300]}")
                print("    " + "\n    ".join(trace[-14:]), flush=True)
            finally:
                signal.alarm(0)
                bench.clean()
                shutil.rmtree(scratch)
                scratch.mkdir()
            slowest = max(slowest, (time.monotonic() - began, seed))
            seed += 1
    finally:
        shutil.rmtree(place, ignore_errors=True)
    summary = {"kind": kind, "first": first, "cases": seed - first, "failed": failed, "slowest": slowest[1]}
    print(json.dumps({**summary, "seconds": round(slowest[0], 1), "outcomes": dict(seen.most_common(12))}), flush=True)
    return failed


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    """Run cases of one kind, or of all kinds, until they or the time are used up."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=[*KINDS, "all"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--time", type=float, default=3600.0, metavar="SECONDS", help="at most, over all kinds")
    options = parser.parse_args()
    until = time.monotonic() + options.time
    if options.kind == "all":
        return _all(options.seed, options.count, until)
    warnings.simplefilter("ignore")  # what numbers do on the way to an error is not asked here
    return 1 if run(options.kind, options.seed, options.count, until) else 0


def _all(seed: int, count: int, until: float) -> int:
    """All kinds in turn, some cases to a process: a crash ends only that."""
    worst, last = 0, seed + count
    while seed < last and time.monotonic() < until:
        some = min(AT_ONCE, last - seed)
        for kind in KINDS:
            left = until - time.monotonic()
            if left <= 0:
                break
            words = [kind, "--seed", str(seed), "--count", str(some), "--time", str(left)]
            done = subprocess.run([sys.executable, "-m", "tests.fuzz", *words], capture_output=True, text=True)
            print(done.stdout, end="", flush=True)
            if done.returncode not in (0, 1):
                print(f"CRASHED {kind}, exit {done.returncode}: {' '.join(done.stderr.splitlines()[-3:])}", flush=True)
            worst = max(worst, 1 if done.returncode else 0)
        seed += some
    return worst


if __name__ == "__main__":
    sys.exit(main())
