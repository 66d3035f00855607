"""Past one machine's memory: time, memory and traffic of every step of a fit over shards, and what kills do to it.

    python -m benchmarks.scale_shards fit --points 1000000 --shards 8 --engine local:2 --out /tmp/run
    python -m benchmarks.scale_shards memory --points 250000      # peak a process as shards grow: 1, 2, 4, 8
    python -m benchmarks.scale_shards kill --points 250000        # kill -9 in the middle, and resume
    python -m benchmarks.scale_shards ray --points 1000000       # three nodes; each kind of kill in three steps

    SOBGNN_DATA=FOLDER python -m benchmarks.scale_shards mnist     # 70 000 pictures, 4 shards

Points are the mixture of :mod:`benchmarks.scale_stages`, 128 columns, 20 labels per class; k = 15. Each prints its
results and leaves a line in results/scale.jsonl.

Claims: ten million points within 12 GiB; memory per process shrinks as shards grow; after a kill only lost tasks run
again, and the predictions are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.scale_meter import keep, mixture, shown
from benchmarks.timing import machine
from sobgnn import sharded
from sobgnn.sharded import engine, fitting

STEPS = ("find", "hop", "score")  # in which things are killed


def points(count: int, features: int, folder: Path) -> tuple[Path, dict[int, int], np.ndarray, np.ndarray, float]:
    """A file of points, the labels of some rows, the truth, which rows have no label, and the best accuracy."""
    path = folder / f"mixture-{count}-{features}.npy"
    about = path.with_suffix(".about.npz")
    if not about.exists():
        _, truth, best = mixture(count, features, path)
        np.savez(about, truth=truth, best=best)
    found = np.load(about)
    y = shown(found["truth"])
    labels = {int(row): int(y[row]) for row in np.flatnonzero(y >= 0)}
    return path, labels, found["truth"], y < 0, float(found["best"])


def steps_of(out: Path) -> dict[str, dict[str, float]]:
    """Seconds, processor seconds, peak GiB of a process and bytes written for others, of each kind of step."""
    table: dict[str, dict[str, float]] = {}
    for path in sorted((out / "done").glob("*.json"), key=lambda path: path.stat().st_mtime):
        empty = dict.fromkeys(("tasks", "clock", "processor", "peak", "MB"), 0.0)
        line = table.setdefault(path.stem.split("-")[0], empty)
        for found in json.loads(path.read_text()):
            line["tasks"] += 1
            line["clock"] += found["seconds"]
            line["processor"] += found["processor"]
            line["peak"] = max(line["peak"], found["peak_gib"])
            line["MB"] += found.get("sent", 0) / 1e6
    return table


def run(options: argparse.Namespace, out: Path, shards: int | None, engine: str, quiet: bool = False) -> dict[str, Any]:
    """Fit, and print a table of the steps."""
    path, labels, truth, unlabeled, best = points(options.points, options.features, options.folder)
    began = time.perf_counter()
    said = [began]

    def say(line: str) -> None:
        if not quiet and time.perf_counter() - said[0] > 20:
            said[0] = time.perf_counter()
            print(f"{said[0] - began:8.0f} s  {line}", flush=True)  # every 20 s

    result = sharded.fit(path, labels, out, engine=engine, k=15, shards=shards, progress=say)
    seconds = time.perf_counter() - began
    table = pl.read_parquet(result.predictions).sort("row")
    steps = steps_of(out)
    for name, line in {} if quiet else steps.items():
        print(
            f"{name:<10} {line['tasks']:5.0f} tasks {line['clock']:9.1f} s {line['processor']:8.1f} processor s "
            f"{line['peak']:6.2f} GiB {line['MB']:9.1f} MB"
        )
    found = {
        "points": options.points, "features": options.features, "shards": len(steps_shards(out)), "engine": engine,
        "seconds": seconds, "processor": sum(line["processor"] for line in steps.values()),
        "peak": max(line["peak"] for line in steps.values()), "recall": result.recall, "near": result.near,
        "accuracy": float((table["label"].to_numpy() == truth)[unlabeled].mean()), "best": best, "steps": steps,
        "bytes_per_row": 1e6 * sum(line["MB"] for line in steps.values()) / options.points, "machine": machine(),
        "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"{options.points:,} x {options.features}, {found['shards']} shards, {engine}: {seconds:.0f} s, "
        f"{found['processor']:.0f} processor s, peak {found['peak']:.2f} GiB a process, "
        f"{found['bytes_per_row']:.0f} bytes a row, recall {result.recall:.4f} in {result.near} cells, accuracy "
        f"{100 * found['accuracy']:.2f} % (best possible {100 * best:.2f} %)",
        flush=True,
    )
    return found


def steps_shards(out: Path) -> list[Any]:
    """What gathering found, of each shard."""
    found: list[Any] = json.loads((out / "done" / "gather.json").read_text())
    return found


def memory(options: argparse.Namespace) -> None:
    """Peak memory of a process as shards grow, and the traffic between them."""
    for shards in (1, 2, 4, 8):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            keep({"what": "shards of one size", **run(options, Path(folder) / "run", shards, "local:2", quiet=True)})


def mnist(options: argparse.Namespace) -> None:
    """mnist's pictures in four shards, with the labels of :mod:`benchmarks.scale_mnist`."""
    from benchmarks.suite import draw_labels
    from sobgnn.datasets import load

    data = load("mnist")
    order = np.sort(np.random.default_rng(0).permutation(len(data.y)))
    X, y = data.X[order].astype(np.float32), data.y[order]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        np.save(Path(folder) / "X.npy", X)
        for count in ("5", "100"):
            given = draw_labels(y, count, 0)
            labels = {int(row): int(given[row]) for row in np.flatnonzero(given >= 0)}
            out = Path(folder) / count
            result = sharded.fit(Path(folder) / "X.npy", labels, out, engine=options.engine, k=10, shards=4)
            table, steps = pl.read_parquet(result.predictions).sort("row"), steps_of(out)
            line = {
                "what": "shards, mnist", "labels": int(count), "recall": result.recall, "near": result.near,
                "accuracy": float((table["label"].to_numpy() == y)[given < 0].mean()), "shares": result.shares,
                "processor": sum(step["processor"] for step in steps.values()),
                "peak": max(step["peak"] for step in steps.values()), "machine": machine(),
            }  # fmt: skip
            print(json.dumps(line), flush=True)
            keep(line)


class Logged:
    """An engine that writes down when a task begins and ends, and in which process."""

    def __init__(self, inner: Any, log: Path, slow: float) -> None:
        self.inner, self.log, self.slow = inner, log, slow

    def map(self, step: Callable[[Any], Any], args: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return self.inner.map(partial(logged, str(self.log), self.slow, step), args)

    def close(self) -> None:
        self.inner.close()


def logged(log: str, slow: float, step: Any, argument: Any) -> Any:
    name = step.args[1]
    note(log, name, argument, "begin")
    if name in STEPS:
        time.sleep(slow)
    found = step(argument)
    note(log, name, argument, "end")
    return found


def note(log: str, name: str, argument: Any, what: str) -> None:
    line = {"step": name, "argument": str(argument), "what": what, "process": os.getpid(), "node": node()}
    with open(log, "a") as file:
        file.write(json.dumps(line) + "\n")


def node() -> str | None:
    """The node of Ray that this process belongs to."""
    if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
        return None
    return str(sys.modules["ray"].get_runtime_context().get_node_id())


def noted(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def going(log: Path, step: str, where: str = "process", since: int = 0) -> list[Any]:
    """The processes, or nodes, of tasks of this step that have begun and not ended, by what was noted since a line."""
    own = [line for line in noted(log)[since:] if line["step"] == step]
    ended = {line["argument"] for line in own if line["what"] == "end"}
    return [line[where] for line in own if line["what"] == "begin" and line["argument"] not in ended]


def drive(options: argparse.Namespace) -> None:
    """A driver that may be killed: fits on an engine whose tasks are written down."""
    path, labels, *_ = points(options.points, options.features, options.folder)
    fitting.make_engine = lambda name: Logged(engine.make_engine(name), options.log, options.slow)
    sharded.fit(path, labels, options.out, engine=options.engine, k=15, shards=options.shards, **settings(options))


def settings(options: argparse.Namespace) -> dict[str, Any]:
    return {"families": ["sobolev", "diffusion"], "epochs": 20} if options.fast else {}


def driver(options: argparse.Namespace, log: Path, out: Path, **environment: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "benchmarks.scale_shards", "drive", *(["--fast"] if options.fast else [])]
    for name in ("points", "features", "shards", "slow", "engine", "folder"):
        words.append(f"--{name}={getattr(options, name)}")
    return subprocess.Popen([*words, f"--log={log}", f"--out={out}"], env={**os.environ, **environment})


def wait_for(what: Callable[[], Any], process: subprocess.Popen[bytes], seconds: float = 3600) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"nothing to kill: the driver ended with {process.poll()}")


def compared(options: argparse.Namespace, log: Path, out: Path, folder: Path, killed: list[str]) -> None:
    """Say what ran more than once, and whether the predictions are those of a run that nobody disturbed."""
    path, labels, *_ = points(options.points, options.features, options.folder)
    calm = sharded.fit(path, labels, folder / "calm", engine="local", k=15, shards=options.shards, **settings(options))
    pair = [pl.read_parquet(f"{one}/predictions/*.parquet").sort("row") for one in (out, calm.out)]
    columns = [name for name in pair[0].columns if name.startswith("probability_")]
    difference = max(float((pair[0][name] - pair[1][name]).abs().max()) for name in columns)
    begun = Counter((line["step"], line["argument"]) for line in noted(log) if line["what"] == "begin")
    again = {f"{name} {argument}": times for (name, argument), times in begun.items() if times > 1}
    line = {
        "what": f"shards, {options.what}", "points": options.points, "shards": options.shards, "killed": killed,
        "tasks": len(begun), "again": again, "same_labels": float((pair[0]["label"] == pair[1]["label"]).mean()),
        "largest_difference": difference, "machine": machine(),
    }  # fmt: skip
    print(json.dumps(line, indent=1), flush=True)
    if not options.fast:
        keep(line)


def kill(options: argparse.Namespace) -> None:
    """Kill -9 the driver and its processes in three steps, and resume."""
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder, killed = Path(place), []
        out, log = folder / "run", folder / "log"
        for step in ("partition", "find", "score"):
            process = driver(options, log, out)
            wait_for(lambda step=step: going(log, step), process)
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed.append(f"driver in {step}")
            time.sleep(2)  # its processes see that it is gone
        assert driver(options, log, out).wait() == 0
        compared(options, log, out, folder, killed)


def ray(options: argparse.Namespace) -> None:
    """A cluster of three nodes on this machine; a worker, a node and the driver are killed, in each of three steps."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    others = {**small, "include_dashboard": None}
    nodes = {node.node_id: node for node in (cluster.add_node(**others), cluster.add_node(**others))}
    options.engine = "ray"
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            folder, killed = Path(place), []
            out, log = folder / "run", folder / "log"
            for step in STEPS:
                process = driver(options, log, out, RAY_ADDRESS=cluster.address)
                os.kill(wait_for(lambda step=step: going(log, step), process)[0], signal.SIGKILL)
                since = len(noted(log))  # what began before may be dead
                lost = wait_for(lambda s=step, n=since: {*going(log, s, "node", n)}.intersection(nodes), process).pop()
                since = len(noted(log))
                cluster.remove_node(nodes.pop(lost), allow_graceful=False)
                wait_for(partial(going, log, step, since=since), process)  # at the latest, what the node was doing
                process.send_signal(signal.SIGKILL)
                process.wait()
                node = cluster.add_node(**others)
                nodes[node.node_id] = node
                killed += [f"{what} in {step}" for what in ("worker", "node", "driver")]
            assert driver(options, log, out, RAY_ADDRESS=cluster.address).wait() == 0
            compared(options, log, out, folder, killed)
    finally:
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["fit", "memory", "mnist", "kill", "ray", "drive"])
    parser.add_argument("--points", type=lambda text: int(float(text)), default=250_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--engine", default="local:2")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where points are made")
    parser.add_argument("--out", type=Path, help="the run")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--slow", type=float, default=1.0, help="seconds by which tasks that are killed take longer")
    parser.add_argument("--fast", action="store_true", help="two families, few epochs, nothing is written down")
    options = parser.parse_args()
    if options.what == "fit":
        keep({"what": "shards", **run(options, options.out, options.shards, options.engine)})
    else:
        {"memory": memory, "mnist": mnist, "kill": kill, "ray": ray, "drive": drive}[options.what](options)


if __name__ == "__main__":
    main()
