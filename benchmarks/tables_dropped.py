"""Claim: no column that the table encoding leaves out would help a forest by a point.

    python -m benchmarks.tables_dropped FOLDER

Each table of FOLDER (CSV) is read as `sobgnn fit` reads it. Each column that is left out, or names the rows, is added
again as the numbers of its sorted values; a forest of 200 trees is cross-validated with and without it (5 folds, at
most 2,000 rows, 3 seeds). A column that differs in no row cannot help; it is counted, and not measured.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import scipy.sparse as sp

from sobgnn.tables import read_table

ROWS, SEEDS = 2000, 3


def accuracies(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Accuracy in points of each seed, by cross-validation."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    return 100 * np.array(
        [
            cross_val_score(
                RandomForestClassifier(200, random_state=seed),
                X,
                y,
                cv=StratifiedKFold(5, shuffle=True, random_state=seed),
            ).mean()
            for seed in range(SEEDS)
        ]
    )


def label_of(path: Path) -> str:
    """The column called label or class, or else the last."""
    names = path.open(encoding="utf-8").readline().strip().replace('"', "").split(",")
    return next((name for name in names if name.lower() in ("label", "class")), names[-1])


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    gains, same, columns, tables = [], 0, 0, sorted(folder.glob("*.csv"))
    for path in tables:
        table = read_table(path, label_of(path))
        frame, encoder = table.frame, table.encoding.encoder
        used = set(encoder.slices_)
        columns += frame.width - 1
        left_out = [name for name in frame.columns if name not in used and name != table.encoding.label]
        differing = [name for name in left_out if frame[name].n_unique() > 1]
        same += len(left_out) - len(differing)
        if not differing:
            continue
        rows = np.random.default_rng(0).permutation(np.flatnonzero(table.codes >= 0))[:ROWS]
        counts = np.bincount(table.codes[rows])
        rows = rows[counts[table.codes[rows]] >= 5]
        X, y = table.X[rows], table.codes[rows]
        X = X.toarray() if sp.issparse(X) else X
        without = accuracies(X, y)
        for name in differing:
            codes = frame[name].cast(pl.String).rank("dense").fill_null(0).to_numpy()[rows].astype(np.float32)
            gain = accuracies(np.column_stack([X, codes]), y) - without
            gains.append((float(gain.mean()), path.stem, name))
            outcome = encoder.outcomes_.get(name, "names the rows")
            print(f"{path.stem:16} {name:20} {outcome:10} {without.mean():6.2f}  gain {gain.mean():+.2f}", flush=True)
    worst = max(gains, default=(0.0, "", ""))
    print(
        f"{len(tables)} tables, {columns} columns: {same + len(gains)} left out, {same} of them the same in every row; "
        f"largest gain of another {worst[0]:+.2f} points {'holds' if worst[0] < 1 else 'misses'}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
