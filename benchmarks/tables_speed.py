"""Claim: encoding 100,000 rows with two text columns of 200 words takes at most 60 s on 2 cores and 2 GB.

Words are drawn by Zipf's law from 50,000. Processor time is printed beside wall time, which other processes change.

    python -m benchmarks.tables_speed [ROWS]
    python -m benchmarks.tables_speed stray      streams CSV files of 20 and 40 MB with a quote that nothing closes
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from sobgnn.tables import TableEncoder
from sobgnn.tables.reading.readers import open_reader


def words(rows, length, seed):
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.array(["".join(rng.choice(letters, 3 + i % 7)) for i in range(50_000)])
    share = 1 / np.arange(1, 50_001)
    edges = np.cumsum(share / share.sum())
    for _ in range(rows):
        yield " ".join(vocabulary[np.searchsorted(edges, rng.random(length))])


def stray():
    line = "0.1234,5.678,abc def,u\n"
    for size in (20, 40):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "stray.csv"
            path.write_text("a,b,c,label\n" + 10 * line + '1,2,"open,u\n' + (size * 10**6 // len(line)) * line)
            spent = time.process_time()
            rows = sum(frame.height for frame in open_reader(path).frames())
            spent = time.process_time() - spent
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{size} MB  rows {rows:,}  processor {spent:.1f} s  memory {peak:.2f} GB")


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
    if sys.argv[1:] == ["stray"]:
        stray()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
