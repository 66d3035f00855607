"""What cases need: fitted runs, a bound on memory, and an audit of what is opened."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from sobgnn import cli
from sobgnn._system.packages import installed
from sobgnn.app.runs.folder import open_run
from tests.encoders import static_model

BYTES = 2**30
EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class")


class Audit:
    """What Python reports of opened files, started programs and connections, while it is watching.

    Args:
        inside: Folders whose files may be opened, besides Python's own and the system's.
    """

    def __init__(self, inside: list[Path]) -> None:
        self.watching = False
        self.seen: list[str] = []
        own = [*sys.path, sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/lib", "/usr/lib"]
        self._inside = tuple(os.path.realpath(path) for path in [*inside, *(path for path in own if path)])
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event in EVENTS:
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
    """Fitted runs of a table, an array, pictures and texts by a model, and a place for the files of a case."""

    def __init__(self, place: Path) -> None:
        self.made, self.work, self.scratch = place / "made", place / "work", place / "tmp"
        self.outside = place / "outside"
        self.made.mkdir()
        self.outside.mkdir()
        self.audit = Audit([self.made, self.work, self.scratch])
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
        self.data = {"table": self.made / "table.csv", "array": self.made / "array.npz"}
        self.data["pictures"] = pictures(self.made / "pictures", code)
        self.models: dict[str, list[Path]] = {name: [] for name in self.data}
        pictures(self.outside, code[:1], "secret")
        (self.outside / "evil.pt2").write_bytes(b"PK")
        if installed("transformers"):
            static_model(self.outside / "model")
            self.data["texts"] = self.data["table"]
            self.models["texts"] = [Path(static_model(self.made / "model"))]
        self.runs = {name: self.made / f"{name}.run" for name in self.data}
        for name, data in self.data.items():
            assert command("fit", data, "--out", self.runs[name], *self.given(name)) == 0
        self.encodings = {name: open_run(self.runs[name])[1] for name in ("table", "array")}

    def given(self, name: str) -> list[object]:
        """What the command needs besides a run, since the run names no path."""
        return ["--text-model", *self.models[name]] if self.models[name] else []

    @contextlib.contextmanager
    def case(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """An empty folder for a case, which leaves no other file, and a bound on its memory."""
        for folder in (self.work, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        size = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (int(size.split()[1]) * 1024 + BYTES, before[1]))
        try:
            with monkeypatch.context() as patch, warnings.catch_warnings():
                patch.setattr(tempfile, "tempdir", str(self.scratch))
                warnings.simplefilter("ignore")  # what numbers do on the way to an error is not asked here
                yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        assert not os.listdir(self.scratch)


def pictures(folder: Path, codes: Any, name: str = "") -> Path:
    """Small pictures in folders of their classes, or one of this name."""
    for i, code in enumerate(codes[:16]):
        path = folder / (f"{name}.png" if name else f"{'uv'[code]}/{i}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (int(150 * code) + 3 * i, 40, 90)).save(path)
    return folder


def of_memory(text: str) -> bool:
    return any(word in text for word in ("MemoryError", "allocate", "out of memory"))


def command(*words: object) -> int:
    """Run the command, check what it says, and return its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([str(word) for word in words])
    said = err.getvalue()
    assert code in (0, 2), said
    assert said.count("\n") == (1 if code else 0), said
    assert "Traceback" not in said
    assert not of_memory(said), said
    return code


def quietly(action: Callable[[], Any]) -> Any:
    """What an action gives, or ``None`` where it ends in one line; anything else is wrong."""
    try:
        return action()
    except (ValueError, TypeError, PermissionError) as error:
        said = str(error)
        if "\n" in said or not said or of_memory(said):
            raise AssertionError(f"{type(error).__name__}: {said[:300]!r}") from error
    return None
