"""What the scale benchmarks share: points whose best possible accuracy is known, and a meter of stages."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

CLASSES, LATENT, PER_CLASS = 10, 6, 20
LINES = Path(__file__).parents[1] / "results" / "scale.jsonl"


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


def shown(truth: np.ndarray, per_class: int = PER_CLASS) -> np.ndarray:
    """Labels [n] with -1 for all but ``per_class`` points of each class."""
    generator = np.random.default_rng(1)
    y = np.full(len(truth), -1)
    for c in np.unique(truth):
        y[generator.choice(np.flatnonzero(truth == c), per_class, replace=False)] = c
    return y


class Meter:
    """Seconds and peak memory of named stages. A stage within another counts as part of that one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}  # of all threads; steadier than the clock where others use the machine too
        self.peak: dict[str, float] = {}
        self.cuda_peak: dict[str, float] = {}
        self._depth = 0
        self._last: tuple[float, float] | None = None
        self._high = 0.0
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._depth += 1
        if self._depth > 1:
            yield
            self._depth -= 1
            return
        self._high = 0.0
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start, cpu = time.perf_counter(), time.process_time()
        yield
        if cuda:
            torch.cuda.synchronize()
            self.cuda_peak[name] = torch.cuda.max_memory_allocated() / 2**30
        self._depth -= 1
        spent = time.perf_counter() - start
        self.seconds[name] = self.seconds.get(name, 0) + spent
        self.cpu[name] = self.cpu.get(name, 0) + time.process_time() - cpu
        self.peak[name] = max(self.peak.get(name, 0), self._high, resident())
        on_device = f"   on the device {self.cuda_peak[name]:6.2f} GiB" if cuda else ""
        print(f"  {name:<20} {spent:9.2f} s   peak {self.peak[name]:6.2f} GiB{on_device}", flush=True)

    def reported(self, at: Any) -> None:
        """A hook for ``SobolevClassifier.fit``: what has passed since the last report was spent on this stage."""
        now = time.perf_counter(), time.process_time()
        before = self._last or now
        self.seconds[at.stage] = self.seconds.get(at.stage, 0) + now[0] - before[0]
        self.cpu[at.stage] = self.cpu.get(at.stage, 0) + now[1] - before[1]
        self.peak[at.stage] = max(self.peak.get(at.stage, 0), self._high, resident())
        self._high, self._last = 0.0, now

    def begin(self) -> None:
        """Count from here on."""
        self._last = time.perf_counter(), time.process_time()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self._high = max(self._high, resident())


def resident() -> float:
    """GiB of this process in memory, mapped files included."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


def keep(line: dict[str, Any], path: Path = LINES) -> None:
    """Append a measurement."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def kept(path: Path = LINES, **wanted: Any) -> list[dict[str, Any]]:
    """Measurements with these values."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]
