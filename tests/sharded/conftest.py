"""Blobs in files, and fits of them in 1, 3 and 8 shards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sobgnn import sharded

FAST = {"families": ["sobolev", "diffusion", "linear"], "epochs": 20}
ROWS, WIDTH = 3000, 8


def blobs(seed: int = 0, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Points of six blobs of three classes."""
    centers = np.random.default_rng(7).normal(size=(6, WIDTH)) * 2.5
    generator = np.random.default_rng(seed)
    blob = generator.integers(6, size=rows)
    return (centers[blob] + generator.normal(size=(rows, WIDTH))).astype(np.float32), blob % 3


class Fits:
    """Fits of the blobs, made once: the truth, the labels given, and a function that fits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.points, self.truth = blobs()
        (folder / "data").mkdir()
        for part, rows in enumerate(np.array_split(np.arange(ROWS), 3)):
            np.save(folder / "data" / f"part-{part}.npy", self.points[rows])
        given = np.random.default_rng(1).permutation(ROWS)[:60]
        self.labels = {int(row): f"class {self.truth[row]}" for row in given}
        self._made: dict[int, sharded.Result] = {}

    def __call__(self, out: Path, **more: Any) -> sharded.Result:
        return sharded.fit(self.folder / "data", self.labels, out, **{"shards": 3, "keep": True, **FAST, **more})

    def of(self, shards: int) -> sharded.Result:
        if shards not in self._made:
            self._made[shards] = self(self.folder / f"run-{shards}", shards=shards)
        return self._made[shards]


@pytest.fixture(scope="session")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Fits:
    return Fits(tmp_path_factory.mktemp("sharded"))


@pytest.fixture
def load() -> Callable[[sharded.Result, str], np.ndarray]:
    """An array of a run, all shards joined."""

    def joined(result: sharded.Result, name: str) -> np.ndarray:
        shards = len(list((Path(result.out) / "predictions").glob("*.parquet")))
        return np.concatenate([np.load(f"{result.out}/{name}-{shard}.npy") for shard in range(shards)])

    return joined
