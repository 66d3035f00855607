"""Claim: on 20 ordinary tables, TableEncoder is level with skrub.TableVectorizer before the same classifier.

At most 1,500 rows of each table are split in halves three times. Both encoders see the whole table without labels.
skrub's output is standardized for the nearest neighbors, as is usual; the encoder's own is taken as it is. Seconds are
processor time.

    python -m benchmarks.tables_skrub FOLDER [kind=weight ...]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from sobgnn.tables import TableEncoder


def scores(X, y, splits):
    forest, near = [], []
    for train, test in splits:
        model = RandomForestClassifier(100, random_state=0).fit(X[train], y[train])
        forest.append(np.mean(model.predict(X[test]) == y[test]))
        near.append(np.mean(KNeighborsClassifier(5).fit(X[train], y[train]).predict(X[test]) == y[test]))
    return 100 * np.mean(forest), 100 * np.mean(near)


def main(folder, weights):
    from skrub import TableVectorizer

    warnings.simplefilter("ignore")
    total = []
    print(f"{'table':16}{'forest':>8}{'skrub':>8}{'5-nn':>8}{'skrub':>8}{'s':>7}{'skrub':>7}  left out")
    for path in sorted(Path(folder).glob("*.csv")):
        frame = pd.read_csv(path)
        frame = frame.sample(min(1500, len(frame)), random_state=0).reset_index(drop=True)
        _codes, y = np.unique(frame.pop("label").astype(str), return_inverse=True)
        keep = np.isin(y, np.flatnonzero(np.bincount(y) > 1))
        frame, y = frame[keep].reset_index(drop=True), y[keep]
        splits = list(StratifiedShuffleSplit(3, train_size=0.5, random_state=0).split(frame, y))
        started, encoder = time.process_time(), TableEncoder()
        X = encoder.fit_transform(frame)
        own = time.process_time() - started
        for name, columns in encoder.slices_.items():
            X[:, columns] *= np.sqrt(weights.get(encoder.outcomes_[name], 1.0))
        started = time.process_time()
        theirs = TableVectorizer().fit_transform(frame).fillna(-1).to_numpy(dtype=np.float64)
        spent = time.process_time() - started
        theirs = np.nan_to_num(theirs)
        forest, near = scores(X, y, splits)
        row = (forest, scores(theirs, y, splits)[0], near, scores(StandardScaler().fit_transform(theirs), y, splits)[1])
        total.append(row)
        left = [f"{name} ({what})" for name, what in encoder.outcomes_.items() if what in ("id", "constant", "empty")]
        print(
            f"{path.stem:16}" + "".join(f"{v:8.1f}" for v in row) + f"{own:7.2f}{spent:7.2f}  {', '.join(left)}",
            flush=True,
        )
    print(f"{'mean':16}" + "".join(f"{v:8.1f}" for v in np.mean(total, axis=0)))


if __name__ == "__main__":
    main(sys.argv[1], {k: float(v) for k, v in (pair.split("=") for pair in sys.argv[2:])})
