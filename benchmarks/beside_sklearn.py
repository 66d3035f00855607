"""Claim: on raw tables with few labels, SobolevClassifier is ahead of what one would build with scikit-learn alone.

    SOBGNN_DATA=FOLDER python -m benchmarks.beside_sklearn [--draws 2] [--limit SECONDS]

FOLDER/tables holds 20 tables as CSV, read by pandas and given as they are, at most 1,500 rows each: 10 % of the labels
at random, accuracy in % on the other rows. The peers are scikit-learn's: one-hot categories and imputed numbers before
a forest of 300 trees or histogram boosting; with skrub installed, ``tabular_pipeline`` of both too. These fit the
labeled rows; the estimator is given all rows. Seconds are wall time of fit and prediction.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sobgnn import SobolevClassifier

ROWS, SHARE = 1500, 0.1
OURS = "SobolevClassifier"


def peers() -> dict[str, Callable[[], Any]]:
    forest = lambda: RandomForestClassifier(300, random_state=0)  # noqa: E731
    boosting = lambda: HistGradientBoostingClassifier(random_state=0)  # noqa: E731
    columns = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude="number")),
    )
    found: dict[str, Callable[[], Any]] = {
        "forest": lambda: make_pipeline(columns, forest()),
        "boosting": lambda: make_pipeline(columns, boosting()),
    }
    if importlib.util.find_spec("skrub"):
        from skrub import tabular_pipeline

        found |= {
            "skrub, forest": lambda: tabular_pipeline(forest()),
            "skrub, boosting": lambda: tabular_pipeline(boosting()),
        }
    return found


def read_table(path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    frame = pd.read_csv(path)
    frame = frame.sample(min(ROWS, len(frame)), random_state=0).reset_index(drop=True)
    return frame, frame.pop("label").astype(str).to_numpy(dtype=object)


def measure(frame: pd.DataFrame, y: np.ndarray, draw: int) -> dict[str, tuple[float, float]]:
    """Accuracy and seconds of each model, on one draw of the labels."""
    given = np.random.default_rng(draw).permutation(len(y))[: max(10, round(SHARE * len(y)))]
    hidden = np.setdiff1d(np.arange(len(y)), given)
    found = {}
    start = time.perf_counter()
    shown = np.full(len(y), None, dtype=object)
    shown[given] = y[given]
    model = SobolevClassifier(random_state=0).fit(frame, shown)
    found[OURS] = (np.mean(model.transduction_[hidden] == y[hidden]), time.perf_counter() - start)
    for name, build in peers().items():
        start = time.perf_counter()
        predicted = build().fit(frame.iloc[given], y[given]).predict(frame.iloc[hidden])
        found[name] = (np.mean(predicted == y[hidden]), time.perf_counter() - start)
    return {name: (100 * float(accuracy), seconds) for name, (accuracy, seconds) in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no table starts")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    names, end, rows = [OURS, *peers()], time.monotonic() + asked.limit, []
    print("| table | labels | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names), flush=True)
    for path in sorted((Path(os.environ["SOBGNN_DATA"]) / "tables").glob("*.csv")):
        if time.monotonic() > end:
            break
        frame, y = read_table(path)
        draws = [measure(frame, y, draw) for draw in range(asked.draws)]
        rows.append(
            np.array([[[draw[name][part] for name in names] for part in (0, 1)] for draw in draws]).mean(axis=0)
        )
        cells = " | ".join(f"{value:.1f}" for value in rows[-1][0])
        print(f"| {path.stem} | {max(10, round(SHARE * len(y)))} | {cells} |", flush=True)
    accuracy, seconds = np.mean(rows, axis=0)
    print("| mean | | " + " | ".join(f"{value:.1f}" for value in accuracy) + " |")
    print("| seconds | | " + " | ".join(f"{value:.2f}" for value in seconds) + " |")
    lead = accuracy[0] - accuracy[1:].max()
    ahead = sum(row[0][0] >= row[0][1:].max() for row in rows)
    print(
        f"\n{lead:+.1f} points against the best peer by mean, first on {ahead} of {len(rows)} tables: "
        f"{'holds' if lead > 0 else 'MISSES'}"
    )


if __name__ == "__main__":
    main()
