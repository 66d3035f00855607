"""Claim: encoding 100,000 rows with two text columns of 200 words takes at most 60 s on 2 cores and 2 GB.

Words are drawn by Zipf's law from 50,000. Processor time is printed beside wall time, which other processes change.

    python -m benchmarks.tables_speed [ROWS]
    python -m benchmarks.tables_speed columns    processor seconds of 200,000 rows, one kind of column at a time
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

from sobgnn.tables import TableEncoder, batches, read_table
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


def columns(rows=200_000):
    rng = np.random.default_rng(0)
    cells = {
        "plain": [f"{v:.4f}" for v in rng.normal(size=rows)],
        "currency": [f"{v:,.2f} €".translate(str.maketrans(",.", ".,")) for v in rng.uniform(0, 9999, rows)],
        "date": [
            f"{d % 28 + 1:02}.{d % 12 + 1:02}.{2000 + d % 20} 10:{d % 60:02}" for d in rng.integers(0, 10**6, rows)
        ],
        "category": np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)].tolist(),
        "set": ["; ".join(f"t{i}" for i in row) for row in rng.integers(0, 20, (rows, 3))],
        "vector": [f"[{a:.3f}, {b:.3f}]" for a, b in rng.normal(size=(rows, 2))],
    }
    for name, column in cells.items():
        frame, encoder = pl.DataFrame({name: column}), TableEncoder()
        spent = [time.process_time()]
        for encode in (encoder.fit_transform, encoder.transform):
            encode(frame)
            spent.append(time.process_time())
        print(
            f"{name:10} fit_transform {spent[1] - spent[0]:5.2f} s  transform {spent[2] - spent[1]:5.2f} s", flush=True
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.tsv"
        pl.DataFrame({**cells, "label": ["u", "v"] * (rows // 2)}).write_csv(path, separator="\t")
        spent = [time.process_time()]
        table = read_table(path)
        spent.append(time.process_time())
        read = sum(batch.X.shape[0] for batch in batches(path, table.encoding))
        spent.append(time.process_time())
    print(
        f"all        read_table    {spent[1] - spent[0]:5.2f} s  batches   {spent[2] - spent[1]:5.2f} s  rows {read:,}"
    )


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
    elif sys.argv[1:] == ["columns"]:
        columns()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
