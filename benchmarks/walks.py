"""How far one call travels: lines by folder, and the files and Python calls of sobgnn that common calls pass.

    python -m benchmarks.walks [WALK ...]        # `python -m benchmarks.walks --list` names the walks

A call is one function of sobgnn entered; a file counts once. Each walk runs once before it is counted, so that imports
and compiled code do not. The cell of the protocol needs SOBGNN_DATA, the folder with kather_texture.npz.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sobgnn"
CODE = (".py", ".cpp", ".h", ".js", ".css", ".html", ".j2")


@contextlib.contextmanager
def walked() -> Iterator[Counter[str]]:
    """Counts the calls inside by file."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            calls[frame.f_code.co_filename] += 1

    threading.setprofile_all_threads(note) if sys.version_info >= (3, 12) else threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, 8)) + 3 * np.eye(8)[np.arange(300) % 3]


def layer() -> Callable[[], Any]:
    """SobolevConv(x, edge_index)."""
    import torch

    import sobgnn

    edge_index, weight = sobgnn.knn_graph(points(), k=6).edges()
    conv, x = sobgnn.SobolevConv(8, 4), torch.from_numpy(points()).float()
    return lambda: conv(x, edge_index, weight)


def prebuilt() -> Callable[[], Any]:
    """SobolevConv(x, operators)."""
    import torch

    import sobgnn

    operators = sobgnn.SobolevOperators(sobgnn.knn_graph(points(), k=6), alpha=3, epsilon=1.0)
    conv, x = sobgnn.SobolevConv(8, 4), torch.from_numpy(points()).float()
    return lambda: conv(x, operators)


def neighbors() -> Callable[[], Any]:
    """knn_graph(X)."""
    import sobgnn

    X = points()
    return lambda: sobgnn.knn_graph(X, k=6)


def epoch() -> Callable[[], Any]:
    """One epoch of five S-SobGNNs trained together."""
    import torch

    import sobgnn
    from sobgnn.training import Schedule, Task, train_members

    operators = sobgnn.SobolevOperators(sobgnn.knn_graph(points(), k=6), alpha=3, epsilon=1.0)
    model, x = sobgnn.SSobGNN(8, 16, 3), torch.from_numpy(points()).float()
    weight = (torch.arange(300) < 60).float().expand(5, -1) / 60
    task = Task(torch.arange(300) % 3, weight)
    return lambda: train_members(model, (x, operators), task, range(5), Schedule(epochs=1))


def cell() -> Callable[[], Any]:
    """One cell of the protocol: two settings and two final seeds of S-SobGNN, five epochs."""
    from sobgnn.cli import main

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(None):
            words = "reproduce table1 --models S-SobGNN --datasets cancer --trials 2 --seeds 2 --epochs 5 --device cpu"
            with contextlib.suppress(SystemExit):
                main([*words.split(), "--out", folder])

    return train


def fit() -> Callable[[], Any]:
    """SobolevClassifier().fit(X, y)."""
    import sobgnn

    X = points()
    y = np.where(np.arange(300) < 45, np.arange(300) % 3, -1)
    return lambda: sobgnn.SobolevClassifier(random_state=0, device="cpu").fit(X, y)


def command() -> Callable[[], Any]:
    """sobgnn fit FILE.csv."""
    from sobgnn.cli import main

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(None):
            file = Path(folder) / "file.csv"
            rows = [[*(f"{value:.3f}" for value in x), str(n % 3) if n < 45 else ""] for n, x in enumerate(points())]
            lines = [[f"c{n}" for n in range(8)] + ["label"], *rows]
            file.write_text("".join(",".join(line) + "\n" for line in lines))
            with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
                main(["fit", str(file), "--out", str(Path(folder) / "run")])

    return train


def label() -> Callable[[], Any]:
    """A label click: the request with its answer, and what the open window is told: with a model of two classes."""
    import asyncio
    import json
    import time

    from tests.app.labeling.conftest import ticket_file
    from tests.app.labeling.fake_model import Fake

    from sobgnn.app.labeling.app import application
    from sobgnn.app.labeling.launch import open_page
    from sobgnn.app.labeling.security import Guard

    folder = Path(tempfile.mkdtemp())
    page = open_page(str(ticket_file(folder)), folder=folder / "run", trainer=Fake)
    labeling, guard = page.labeling, Guard(application(page.labeling), "token", 1)
    for code in range(2):
        labeling.store.label([code, code + 2], labeling.store.add_class(f"class {code}"))
    while not labeling.model.predictions.guessing:
        time.sleep(0.05)
    labeling.model._due = lambda: None  # a fit is another walk
    sent = [(b"host", b"localhost:1"), (b"origin", b"http://localhost:1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/token/api/label", "headers": sent, "query_string": b""}

    async def click() -> None:
        row = labeling.upcoming()[0]["row"]
        body = json.dumps({"rows": [row], "class": row % 2}).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            assert message.get("status", 200) == 200

        await guard(dict(scope), receive, send)

    def walk() -> None:
        asyncio.run(click())
        labeling.state("window")
        labeling.progress()

    return walk


WALKS = {walk.__name__: walk for walk in (layer, prebuilt, neighbors, epoch, cell, fit, command, label)}


def lines(folder: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in folder.rglob("*") if path.suffix in CODE)


def main() -> None:
    wanted = sys.argv[1:] or list(WALKS)
    if "--list" in wanted:
        print("\n".join(f"{name:<10} {walk.__doc__}" for name, walk in WALKS.items()))
        return
    print(f"{'folder':<24} lines")
    for folder in sorted(path for path in SOURCE.iterdir() if path.is_dir() and lines(path)):
        print(f"{folder.name:<24} {lines(folder):>6}")
    for name in ("src", "tests", "benchmarks"):
        print(f"{name + '/':<24} {lines(ROOT / name):>6}")
    words = sum(len(path.read_text("utf-8").split()) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    print(f"{'words of docs and root':<24} {words:>6}")
    words = sum(len(path.read_text("utf-8").split()) for path in (ROOT / "results").rglob("*.md"))
    print(f"{'words of results':<24} {words:>6}\n\n{'walk':<44} files  calls  files by folder")
    for name in wanted:
        if name == "cell" and "SOBGNN_DATA" not in os.environ:
            print(f"{WALKS[name].__doc__:<44} not walked: SOBGNN_DATA names no folder")
            continue
        walk = WALKS[name]()
        walk()
        with walked() as calls:
            walk()
        title = str(WALKS[name].__doc__).split(":")[0]
        rooms = Counter(Path(file).relative_to(SOURCE).parts[0].removesuffix(".py") for file in calls)
        by_folder = ", ".join(f"{room} {files}" for room, files in rooms.most_common())
        print(f"{title:<44} {len(calls):>5} {calls.total():>6}  {by_folder}", flush=True)


if __name__ == "__main__":
    main()
