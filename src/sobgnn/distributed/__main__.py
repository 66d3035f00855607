"""``torchrun --nproc-per-node=K -m sobgnn.distributed fit``: points, a few labels, K ranks -> labels for all."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.distributed.fit import fit_over_ranks
from sobgnn.distributed.partition import Partition
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.knn import knn_graph
from sobgnn.nn.model import SSobGNN
from sobgnn.runtime.arrays import save_arrays
from sobgnn.runtime.ranks import LostRankError, Ranks, joined
from sobgnn.training import Progress, Schedule


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 done, 2 wrong input, 3 another rank was lost."""
    options = _parser().parse_args(arguments)
    try:
        _fit(options)
    except LostRankError as error:
        print(f"sobgnn: {error} Training resumes from its last checkpoint.", file=sys.stderr, flush=True)
        _leave(3)
    except (ValueError, OSError) as error:
        print(f"sobgnn: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return 2
    return 0


def _leave(status: int) -> None:
    """Exit at once: after a rank is lost, an orderly shutdown of the process group may wait for it."""
    sys.stdout.flush()
    os._exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchrun --nproc-per-node=K -m sobgnn.distributed",
        description="Full-graph training of S-SobGNN over K processes, exact: the rows of the graph and of the points "
        "are shared out, and the result is that of one process.",
    )
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "fit",
        help="train and label every point",
        description="Reads points and labels, writes graph.npz and graph.json (unless given), weights.npz, "
        "predictions.npy, probabilities.npy and metrics.json to OUT. Killed and started again, it resumes from its "
        "checkpoint there.",
    )
    command.add_argument("--points", required=True, type=Path, help="npy file [N, F]; it is memory-mapped")
    command.add_argument("--labels", required=True, type=Path, help="npy file [N] of integers; -1: not known")
    command.add_argument("--graph", type=Path, help="graph saved by Graph.save; built by k-NN if left out")
    command.add_argument("--out", required=True, type=Path, help="folder for the results")
    command.add_argument("--k", type=int, default=15)
    command.add_argument("--alpha", type=int, default=3)
    command.add_argument("--epsilon", type=float, default=1.0)
    command.add_argument("--hidden", type=int, default=64)
    command.add_argument("--layers", type=int, default=2)
    command.add_argument("--dropout", type=float, default=0.5)
    command.add_argument("--members", type=int, default=1, help="networks whose probabilities are averaged")
    command.add_argument("--epochs", type=int, default=200)
    command.add_argument("--lr", type=float, default=0.01)
    command.add_argument("--weight-decay", type=float, default=5e-4)
    command.add_argument("--seed", type=int, default=0)
    return parser


def _fit(options: argparse.Namespace) -> None:
    started, imported = time.perf_counter(), _peak()
    _check(options)
    X, target, classes = _points_and_labels(options)
    model = SSobGNN(
        X.shape[1], options.hidden, len(classes), options.layers, options.alpha, options.epsilon, options.dropout
    )
    options.out.mkdir(parents=True, exist_ok=True)
    with joined() as ranks:
        graph = _graph(options, X, ranks)
        if graph.num_nodes != len(X):
            raise ValueError(f"The graph must have one node per point, but got {graph.num_nodes} for {len(X)} points.")
        known = int((target >= 0).sum())
        checkpoint = options.out / f"checkpoint-{_digest(options, ranks)}.safetensors"
        bar = _Bar()
        training = time.perf_counter()
        fit = fit_over_ranks(
            model,
            graph,
            X,
            np.full((options.members, known), 1 / known, np.float32),
            target,
            [options.seed + member for member in range(options.members)],
            Schedule(options.epochs, options.lr, options.weight_decay, patience=None, evaluate_every=10),
            partition=Partition.of(graph, ranks.size),
            checkpoint=checkpoint,
            progress=bar if ranks.speaks else None,
        )
        trained = time.perf_counter()
        _write(options.out, fit.nodes.cpu().numpy(), fit.probabilities.cpu().numpy(), classes, len(X), ranks)
        own = {
            "rank": ranks.rank,
            "rows": len(fit.nodes),
            "halo_share": round(fit.halo_share, 6),
            "boundary": fit.boundary,
            "megabytes_sent": round(fit.bytes_sent / 2**20, 2),
            "peak_megabytes": _peak(),
            "on_top_megabytes": _peak() - imported,
        }
        reports = ranks.all(own)
        if ranks.speaks:
            weights = {name: value.cpu().numpy() for name, value in fit.members.parameters.items()}
            save_arrays(options.out / "weights.npz", weights)
            seconds = time.perf_counter() - started
            summary = {
                "seconds": round(seconds, 2),
                "training_seconds": round(trained - training, 2),
                "step_seconds": bar.step_seconds(),
                "epochs": fit.members.epochs,
                "ranks": reports,
            }
            checkpoint.unlink(missing_ok=True)
            (options.out / "metrics.json").write_text(json.dumps(summary, indent=1) + "\n")
            print(f"\n{len(X):,} points labeled in {seconds:.1f} s by {ranks.size} ranks; results in {options.out}")
            for report in reports:
                print("  " + "  ".join(f"{name} {value}" for name, value in report.items()))


def _points_and_labels(
    options: argparse.Namespace,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Points [N, F], each one's place among the classes [N] (-1: unknown), and the classes, sorted."""
    X, y = _read(options.points, 2, "[N, F]"), _read(options.labels, 1, "[N]")
    if len(X) != len(y):
        raise ValueError(f"Points and labels must have the same length, but got {len(X)} and {len(y)}.")
    if y.dtype.kind not in "iu":
        raise ValueError(f"{options.labels} must hold integers, with -1 for unknown labels, but holds {y.dtype}.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{options.points} must hold real numbers, but holds {X.dtype}.")
    below = np.flatnonzero(y < -1)
    if len(below):
        raise ValueError(
            f"Labels must be at least 0, and -1 if unknown, but that of point {below[0]} is {y[below[0]]}. "
            "Number the classes from 0."
        )
    classes = np.unique(y[y >= 0])
    if len(classes) < 2:
        raise ValueError(f"Labels must hold at least 2 classes, but got {len(classes)}. Unknown labels are -1.")
    return X, np.where(y >= 0, np.searchsorted(classes, y), -1), classes


def _digest(options: argparse.Namespace, ranks: Ranks) -> str:
    """A name for this training: another setting, or other files with the same names, is another one."""
    setting = {name: str(value) for name, value in vars(options).items()}
    setting |= {"points": _mark(options.points), "labels": _mark(options.labels)}
    setting |= {"graph": _mark(options.graph or options.out / "graph.npz")}
    digest: str = ranks.first(hashlib.sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()[:12])
    return digest


def _check(options: argparse.Namespace) -> None:
    """Raise if an option that nothing else checks is out of range."""
    for name in ("hidden", "members", "epochs"):
        if getattr(options, name) < 1:
            raise ValueError(f"`{name}` must be at least 1, but got {getattr(options, name)}.")
    if not (math.isfinite(options.lr) and options.lr > 0):
        raise ValueError(f"`lr` must be a number above 0, but got {options.lr}.")
    if not (math.isfinite(options.weight_decay) and options.weight_decay >= 0):
        raise ValueError(f"`weight_decay` must be a number of at least 0, but got {options.weight_decay}.")


def _read(path: Path, dimensions: int, shape: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a readable npy file: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != dimensions:
        raise ValueError(f"{path} must hold one array of shape {shape}.")
    return array


def _graph(options: argparse.Namespace, X: npt.NDArray[Any], ranks: Ranks) -> Graph:
    """The given graph, or one that all ranks build and rank 0 saves in the results for all to map.

    A file beside it records what it was built from: with other points or another k it is rebuilt.
    """
    path = options.graph or options.out / "graph.npz"
    if options.graph is None:
        beside = options.out / "graph.json"
        source = json.dumps({"points": _mark(options.points), "k": options.k}) + "\n"
        known = path.exists() and beside.exists() and beside.read_text() == source
        if not ranks.first(known):
            if ranks.speaks:
                beside.unlink(missing_ok=True)
                print(f"neighbors of {len(X):,} points", flush=True)
            built = knn_graph(X, options.k, device=ranks.device, ranks=ranks)
            if ranks.speaks:
                built.to("cpu").save(path)
                beside.write_text(source)
    ranks.wait()
    return Graph.load(path)


def _mark(path: Path) -> str:
    """A mark that distinguishes a file from an earlier one of the same name, without reading it."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def _write(
    out: Path, nodes: npt.NDArray[Any], probabilities: npt.NDArray[Any], classes: npt.NDArray[Any], n: int, ranks: Ranks
) -> None:
    """Each rank writes its own rows of files that rank 0 allocates."""
    files = {"probabilities.npy": probabilities, "predictions.npy": classes[probabilities.argmax(axis=1)]}
    if ranks.speaks:
        for name, rows in files.items():
            np.lib.format.open_memmap(out / name, "w+", rows.dtype, (n, *rows.shape[1:])).flush()
    ranks.wait()
    for name, rows in files.items():
        file = np.lib.format.open_memmap(out / name, mode="r+")
        file[nodes] = rows
        file.flush()
    ranks.wait()


class _Bar:
    """Prints the progress of training, and records times."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def __call__(self, progress: Progress) -> None:
        self.seen.append((progress.epoch, time.perf_counter()))
        print(f"\rstep {progress.epoch}/{progress.epochs}  loss {progress.train_loss:.4f}", end="", flush=True)

    def step_seconds(self) -> float | None:
        """Seconds of a step after the first evaluation; ``None`` with fewer than two evaluations."""
        if len(self.seen) < 2:
            return None
        (first, start), (last, end) = self.seen[0], self.seen[-1]
        return round((end - start) / (last - first), 4)


def _peak() -> int:
    """Peak memory of this process in megabytes."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    sys.exit(main())
