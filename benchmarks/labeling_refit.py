"""Claim: a refit behind the page takes at most 3 s at 10 000 rows and 20 s at 100 000, on 2 cores.

    python -m benchmarks.labeling_refit [rows, default 10000] [labels, default 100]

Gaussian clusters in 64 dimensions, 10 classes; what is timed is one request of the page, from labels to guesses,
suggestions and suspects. The last one has 10 labels more than the one before, as most of the page's have; the first
one builds the graph too. Prints wall and processor seconds.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import numpy as np

from sobgnn.labeling.worker import Model


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    labels = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    generator = np.random.default_rng(0)
    y = generator.integers(0, 10, rows)
    X = (2 * generator.normal(size=(10, 64))[y] + 2 * generator.normal(size=(rows, 64))).astype(np.float32)
    print(__doc__.splitlines()[0])
    table = SimpleNamespace(X=X, graph=None)
    timed("reading: graph", lambda: models.append(Model(SimpleNamespace(table=table, rows=rows), {})))
    timed("map", models[0].map)
    none = np.array([], dtype=np.int64)
    first = timed("first suggestions", lambda: ask(none, none))
    chosen = first["suggested"]
    for count in (20, labels // 2, labels, labels + 10):
        more = generator.permutation(np.setdiff1d(np.arange(rows), chosen))
        chosen = np.concatenate([chosen, more])[:count]
        found = timed(f"refit, {count} labels", lambda chosen=chosen: ask(chosen, y[chosen]))
        print(f"   accuracy {(found['codes'][:, 0] == y).mean():.3f}")


models: list[Model] = []


def ask(rows: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
    none = np.array([], dtype=np.int64)
    return models[0].fit({"knows": 0}, {"rows": rows, "codes": codes, "skipped": none})[1]


def timed(what: str, do):
    wall, processor = time.perf_counter(), time.process_time()
    result = do()
    print(f"{what:<24} wall {time.perf_counter() - wall:6.1f} s, processor {time.process_time() - processor:6.1f} s")
    return result


if __name__ == "__main__":
    main()
