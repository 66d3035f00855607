"""Claim: with the weights of TableEncoder, neighbors agree nearly as well as with the best weights of each table.

A text column's block has total variance w, a number's 1. Tables are newsgroup posts of six groups with invented
columns: numbers that tell the group more or less well, or not at all; or with the text of another row. Printed: how
many of a row's 10 nearest neighbors share its group, for each w.

    SOBGNN_DATA=... python -m benchmarks.tables_scaling
"""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
from sklearn.neighbors import NearestNeighbors

from sobgnn.tables import TableEncoder

WEIGHTS = (1, 2, 4, 6, 8, 12, 16, 32)


def agreement(X, y, k=10):
    found = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(X).kneighbors(X, return_distance=False)[:, 1:]
    return float((y[found] == y[:, None]).mean())


def numbers(y, count, signal, rng):
    """Columns that move by ``signal`` standard deviations from class to class."""
    means = rng.normal(size=(y.max() + 1, count))
    return {f"n{i}": signal * means[y, i] + rng.normal(size=len(y)) for i in range(count)}


def main():
    sys.path.insert(0, "examples")
    from tickets import COLUMNS, tickets

    rows, truth = tickets(2000)
    frame = pl.DataFrame({c: [str(row[i]) for row in rows] for i, c in enumerate(COLUMNS)}).drop("label", "ticket")
    y = np.unique(truth, return_inverse=True)[1]
    rng = np.random.default_rng(0)
    body, words = frame.select("body"), frame.select("body", "subject")
    other = body.select(pl.col("body").gather(rng.permutation(body.height)))  # text that says nothing of the row
    tables = {
        "body": body,
        "body, subject": words,
        "the ticket file": frame,
        "body, 10 noise": body.with_columns(**numbers(y, 10, 0.0, rng)),
        "body, 3 weak": body.with_columns(**numbers(y, 3, 0.5, rng)),
        "body, 10 weak": body.with_columns(**numbers(y, 10, 0.5, rng)),
        "body, 10 strong": body.with_columns(**numbers(y, 10, 1.0, rng)),
        "body, 30 weak": body.with_columns(**numbers(y, 30, 0.5, rng)),
        "body, subject, 10 weak": words.with_columns(**numbers(y, 10, 0.5, rng)),
        "subject, 10 weak": frame.select("subject").with_columns(**numbers(y, 10, 0.5, rng)),
        "another's body, 3 strong": other.with_columns(**numbers(y, 3, 1.0, rng)),
        "another's body, 10 weak": other.with_columns(**numbers(y, 10, 0.5, rng)),
        "another's body, 10 strong": other.with_columns(**numbers(y, 10, 1.0, rng)),
        "another's body, 30 weak": other.with_columns(**numbers(y, 30, 0.5, rng)),
        "subject, 10 noise": frame.select("subject").with_columns(**numbers(y, 10, 0.0, rng)),
    }
    print(f"{'agreement of 10 neighbors':28}" + "".join(f"w={w:<6}" for w in WEIGHTS) + "numbers alone")
    regret = np.zeros(len(WEIGHTS))
    for name, table in tables.items():
        encoder = TableEncoder()
        X = encoder.fit_transform(table)
        text = np.zeros(X.shape[1], bool)
        for fitted in encoder.columns_:
            own = encoder.slices_[fitted.name]
            text[own] = fitted.kind == "text"
            X[:, own] /= np.sqrt(X[:, own].var(axis=0).sum())
        found = [agreement(np.where(text, np.sqrt(w) * X, X), y) for w in WEIGHTS]
        alone = agreement(X[:, ~text], y) if not text.all() else float("nan")
        regret += np.max(found) - found
        print(f"{name:28}" + "".join(f"{value:<8.3f}" for value in found) + f"{alone:.3f}", flush=True)
    print(f"{'mean loss against the best w':28}" + "".join(f"{value / len(tables):<8.3f}" for value in regret))


if __name__ == "__main__":
    main()
