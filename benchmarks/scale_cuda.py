"""One GPU: a million points end to end, and the largest graph that trains.

    python -m benchmarks.scale_cuda [--points 1000000] [--seconds 150]

End to end is SobolevClassifier.fit on the mixture of scale_stages, on the device, twice. The largest graph is
found by doubling: a ring of N nodes joined to 30 others each at fixed random steps (so that reading a neighbor's row
misses the cache, as in a graph of points), 64 features, hidden 64, α = 3, full-graph training with every node
labelled, until memory ends; then halfway between the last that trained and the first that did not. Prints as it goes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
import traceback
from pathlib import Path

# Set before torch is loaded: sizes that differ from try to try would leave holes in memory.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import numpy as np
import torch

from benchmarks.scale_meter import Meter, mixture, shown
from benchmarks.timing import machine
from sobgnn import Graph, SobolevOperators

DEGREE, FEATURES, HIDDEN, CLASSES, ALPHA = 30, 64, 64, 10, 3
# Without a GPU the script can be tried on a CPU, with few points.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def end_to_end(n: int, features: int, k: int) -> dict:
    from sobgnn import SobolevClassifier

    with tempfile.TemporaryDirectory() as folder:
        X, truth, best = mixture(n + n // 10, features, Path(folder) / "X.npy")
        meter = Meter()
        print(f"{n:,} x {features} points, k = {k}", flush=True)
        model = SobolevClassifier(k=k, device=DEVICE, random_state=0)
        y = shown(truth[:n])
        start = time.perf_counter()
        meter.begin()
        model.fit(X[:n], y, progress=meter.reported)
        whole = time.perf_counter() - start
        accuracy = float((model.transduction_ == truth[:n])[y < 0].mean())
        with meter.stage("new points, a tenth"):
            predicted = model.predict(X[n:])
        meter.seconds["rest of fit"] = whole + meter.seconds["new points, a tenth"] - sum(meter.seconds.values())
        start = time.perf_counter()
        SobolevClassifier(k=k, device=DEVICE, random_state=0).fit(X[:n], y)  # nothing is compiled any more
        again = time.perf_counter() - start
        found = f"accuracy {100 * accuracy:.2f} %, best possible {100 * best:.2f} %"
        print(f"  whole fit {whole:.1f} s, again {again:.1f} s, {found}", flush=True)
        return {
            "what": "cuda stages", "points": n, "features": features, "k": k, "fit": whole, "again": again,
            "seconds": meter.seconds, "peak": meter.peak, "cuda_peak": meter.cuda_peak,
            "accuracy": accuracy, "best": best, "new_accuracy": float((predicted == truth[n:]).mean()),
        }  # fmt: skip


def ring(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """CSR on the device of nodes joined to i ± s for DEGREE / 2 random steps s; sorted rows, symmetric weights."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randperm(n // 2 - 1, generator=generator)[: DEGREE // 2] + 1
    weight = torch.rand(DEGREE // 2, generator=torch.Generator().manual_seed(seed + 1)) * 0.9 + 0.1
    indices = torch.empty((n, DEGREE), dtype=torch.int32, device=DEVICE)
    weights = torch.empty((n, DEGREE), dtype=torch.float32, device=DEVICE)
    both, of = torch.cat([steps, -steps]).to(DEVICE), torch.cat([weight, weight]).to(DEVICE)
    for start in range(0, n, 1 << 20):
        rows = torch.arange(start, min(start + (1 << 20), n), device=DEVICE)
        columns, order = ((rows[:, None] + both) % n).sort(dim=1)
        indices[start : start + len(rows)] = columns.int()
        weights[start : start + len(rows)] = of[order]
    indptr = torch.arange(0, n * DEGREE + 1, DEGREE, device=DEVICE)
    return indptr, indices.flatten(), weights.flatten()


def of_ring(n: int) -> SobolevOperators:
    """Operators of the ring. Every node has the same weights around it, so one node's scales are those of all."""
    graph = Graph(*ring(n))
    few = SobolevOperators(Graph(*ring(1000)).to("cpu"), ALPHA, 1.0)
    operators = object.__new__(SobolevOperators)
    operators.graph, operators.alpha, operators.epsilon = graph, few.alpha, few.epsilon
    operators._scale = {torch.float32: few.scale()[:1].to(DEVICE).expand(n, -1).contiguous()}
    return operators


def train(n: int, steps: int = 3) -> dict:
    """Full-graph training of one network; the features' first propagation is constant and made once."""
    from sobgnn import SSobGNN
    from sobgnn.training import Schedule, Task, train_members

    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    operators = of_ring(n)
    x = torch.randn(n, FEATURES, device=DEVICE)
    made = time.perf_counter()
    propagated = operators.propagate(x)
    target = torch.arange(n, device=DEVICE) % CLASSES
    task = Task(target, torch.full((1, n), 1 / n, device=DEVICE))
    model = SSobGNN(FEATURES, HIDDEN, CLASSES, 2, ALPHA, dropout=0.5, self_branch=True)
    times: list[float] = []
    schedule = Schedule(steps, patience=None)

    def stamp(_: object) -> None:
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter())

    train_members(model, (x, operators), task, [0], schedule, keywords={"propagated": propagated}, progress=stamp)
    step = float(np.diff(times).mean())
    peak = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else float("nan")
    print(
        f"  {n:>12,} nodes {n * DEGREE:>14,} entries   made in {made - start:5.1f} s   step {step:7.3f} s   "
        f"peak {peak:6.1f} GiB",
        flush=True,
    )
    return {"nodes": n, "entries": n * DEGREE, "step": step, "peak": peak, "made": made - start}


def largest(first: int, deadline: float) -> dict:
    trained: dict = {}
    failed, n = None, first
    while time.perf_counter() < deadline:
        begun = time.perf_counter()
        try:
            trained = train(n)
        except torch.OutOfMemoryError:
            print(f"  {n:>12,} nodes: memory ends", flush=True)
            failed = n
        except Exception:  # after another error the device may be lost; what was learnt before is kept
            traceback.print_exc()
            failed = n
            break
        gc.collect()
        torch.cuda.empty_cache()
        spent = time.perf_counter() - begun
        n = 2 * n if failed is None else (trained["nodes"] + failed) // 2
        if failed is not None and n - trained["nodes"] < 0.04 * n:
            break
        if time.perf_counter() + 2.5 * spent > deadline:
            print("  the time for this part is over", flush=True)
            break
    return {"what": "cuda largest", **trained, "failed": failed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--lines", type=Path, default=Path("results/scale.jsonl"))
    options = parser.parse_args()
    deadline = time.perf_counter() + options.seconds
    print(machine(DEVICE), flush=True)
    options.lines.parent.mkdir(parents=True, exist_ok=True)
    parts = {
        "end to end": lambda: end_to_end(options.points, options.features, options.k),
        "largest graph": lambda: largest(2 * options.points, deadline),
    }
    for name, part in parts.items():
        print(f"== {name}", flush=True)
        try:
            line = {**part(), "machine": machine(DEVICE)}
        except Exception:  # the parts do not need one another
            traceback.print_exc()
            continue
        with options.lines.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
