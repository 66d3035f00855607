"""A million points on one machine: time and peak memory of every stage, and how they grow.

    python -m benchmarks.scale_stages [--sizes 1000000] [--features 128] [--k 15] [--method auto] [--device cpu]
    python -m benchmarks.scale_stages --sizes 62500 125000 250000 500000 1000000     # with log-log slopes

Points are a mixture of Gaussians in a space of a few dimensions, mapped into many and blurred: the best possible
accuracy is that of the posterior, which is known. 20 labels per class are shown.

Claim: every stage after the neighbour search grows with a log-log slope of at most 1.15.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from sobgnn import SobolevClassifier, classifier, fitting

CLASSES, LATENT, PER_CLASS = 10, 6, 20


def mixture(n: int, features: int, path: Path, seed: int = 0) -> tuple[np.memmap, np.ndarray, float]:
    """Points [n, features] written to ``path``, their classes, and the accuracy of the best possible classifier.

    x = W u + 0.05 e with u ~ N(m_c, I) in ``LATENT`` dimensions and e ~ N(0, I): the posterior of c given x needs
    only the projection of x on W's columns, whose noise 0.05 (WᵀW)^(-1/2) e adds to u's own.
    """
    generator = np.random.default_rng(seed)
    centers = 3.0 * generator.normal(size=(CLASSES, LATENT))
    W = np.linalg.qr(generator.normal(size=(features, LATENT)))[0]
    y = generator.integers(CLASSES, size=n)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n, features))
    right = 0
    for start in range(0, n, 1 << 16):
        rows = slice(start, min(start + (1 << 16), n))
        u = centers[y[rows]] + generator.normal(size=(rows.stop - rows.start, LATENT))
        noise = 0.05 * generator.normal(size=(len(u), features))
        X[rows] = u @ W.T + noise
        seen = u + noise @ W  # all classes have one covariance, so the nearest centre is the most probable
        distance = np.square(seen[:, None] - centers).sum(axis=2)
        right += int((distance.argmin(axis=1) == y[rows]).sum())
    X.flush()
    return np.load(path, mmap_mode="r"), y, right / n


class Meter:
    """Seconds and peak memory of named stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak: dict[str, float] = {}
        self._high = 0.0
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._high = 0.0
        start = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name] = self.seconds.get(name, 0) + time.perf_counter() - start
        self.peak[name] = max(self.peak.get(name, 0), self._high, _resident())
        print(f"  {name:<18} {self.seconds[name]:9.2f} s   peak {self.peak[name] / 2**30:6.2f} GiB", flush=True)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **keywords: Any) -> Any:
            with self.stage(name):
                return function(*arguments, **keywords)

        return measured

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self._high = max(self._high, _resident())


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


STAGES = {
    "neighbours": (classifier, "nearest"),
    "graph": (classifier, "graph_from_neighbors"),
    "operators": (classifier, "SobolevOperators"),
    "train graph nets": (fitting, "train_graph_members"),
    "train feature nets": (fitting, "train_feature_members"),
    "predict graph": (fitting, "graph_states"),
    "predict features": (fitting, "feature_logits"),
    "choose": (fitting, "choose"),
    "smooth": (fitting, "smooth"),
}


def run(n: int, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        X, truth, best = mixture(n, options.features, Path(folder) / "X.npy")
        y = np.full(n, -1)
        generator = np.random.default_rng(1)
        for c in range(CLASSES):
            y[generator.choice(np.flatnonzero(truth == c), PER_CLASS, replace=False)] = c
        meter = Meter()
        for name, (module, attribute) in STAGES.items():
            stack.enter_context(patch.object(module, attribute, meter.wrap(name, getattr(module, attribute))))
        print(f"{n:,} x {options.features} points, k = {options.k}, {options.device}")
        model = SobolevClassifier(
            k=options.k, method=options.method, device=options.device, n_members=options.members, random_state=0
        )
        with meter.stage("all of fit"):
            model.fit(X, y)
        hidden = y < 0
        accuracy = float((model.transduction_ == truth)[hidden].mean())
        recall = model.graph_.neighbor_recall
        print(f"  recall {'exact' if recall is None else f'{recall:.4f}'}")
        print(f"  accuracy {100 * accuracy:.2f} %, best possible {100 * best:.2f} %\n")
        return meter.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    times = [run(n, options) for n in options.sizes]
    if len(times) > 1:
        for name in times[0]:
            slope = np.polyfit(np.log(options.sizes), np.log([t[name] for t in times]), 1)[0]
            verdict = "" if name in ("neighbours", "all of fit") else ("holds" if slope <= 1.15 else "misses")
            print(f"{name:<18} log-log slope {slope:5.2f}   {verdict}")


if __name__ == "__main__":
    main()
