"""The data sets of `benchmarks.suite` as npz files: 20 ordinary tables through the table encoding, and six others.

    SOBGNN_DATA=FOLDER python -m benchmarks.suite_sets OUT

FOLDER/tables holds the tables as CSV, the label in the last column or in one called class; the others come from
`sobgnn data list`. Classes with fewer than 10 rows are left out, and sets are cut to 5,000 rows (4,000 for isolet, har,
20news and mnist).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from sobgnn import datasets
from sobgnn.tables import read_table

OTHERS = {"isolet": 4000, "har": 4000, "cancer": 5000, "digits": 2000, "20news": 4000, "mnist": 4000}
LEAST, MOST = 10, 5000


def table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    names = path.open(encoding="utf-8").readline().strip().replace('"', "").split(",")
    label = next((name for name in names if name.lower() == "class"), names[-1])
    read = read_table(path, label)
    X = read.X.toarray() if hasattr(read.X, "toarray") else read.X
    kept = read.codes >= 0
    return X[kept], read.codes[kept]


def write(path: Path, X: np.ndarray, y: np.ndarray, most: int) -> None:
    kept = np.isin(y, np.flatnonzero(np.bincount(y) >= LEAST))
    X, y = X[kept], y[kept]
    rows = np.random.default_rng(0).permutation(len(y))[:most] if len(y) > most else np.arange(len(y))
    _, codes = np.unique(y[rows], return_inverse=True)
    np.savez_compressed(path, X=X[rows].astype(np.float32), y=codes)
    print(path.stem, X[rows].shape, np.bincount(codes).tolist())


def main() -> None:
    if len(sys.argv) != 2 or "SOBGNN_DATA" not in os.environ:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted((Path(os.environ["SOBGNN_DATA"]) / "tables").glob("*.csv")):
        write(out / f"{path.stem}.npz", *table(path), MOST)
    for name, most in OTHERS.items():
        data = datasets.load(name)
        X = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
        write(out / f"{name}.npz", X, np.asarray(data.y), most)


if __name__ == "__main__":
    main()
