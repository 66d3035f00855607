"""Claim: encoding 100,000 rows with two text columns of 200 words takes at most 60 s on 2 cores and 2 GB.

Words are drawn by Zipf's law from 50,000. Processor time is printed beside wall time, which other processes change.

    python -m benchmarks.tables_speed [ROWS]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import polars as pl

from sobgnn.tables import TableEncoder


def words(rows, length, seed):
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.array(["".join(rng.choice(letters, 3 + i % 7)) for i in range(50_000)])
    share = 1 / np.arange(1, 50_001)
    edges = np.cumsum(share / share.sum())
    for _ in range(rows):
        yield " ".join(vocabulary[np.searchsorted(edges, rng.random(length))])


def main(rows):
    table = pl.DataFrame(
        {
            "body": pl.Series(words(rows, 200, 0), dtype=pl.String),
            "answer": pl.Series(words(rows, 200, 1), dtype=pl.String),
            "channel": np.arange(rows) % 5,
        }
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    started, spent = time.perf_counter(), time.process_time()
    X = TableEncoder().fit_transform(table)
    wall, spent = time.perf_counter() - started, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"rows {rows:,}  features {X.shape[1]}  wall {wall:.1f} s  processor {spent:.1f} s  "
          f"memory {peak:.2f} GB (table alone {before:.2f})")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
