"""Claims about tables: what the estimator and its encoding bring beside what one would use without them.

    SOBGNN_DATA=FOLDER python -m benchmarks.tables beside|skrub|dropped|weights|speed|stray

FOLDER/tables holds 20 ordinary tables as CSV, their column ``label`` last or not.

beside: with few labels SobolevClassifier is ahead of scikit-learn alone. Tables as pandas reads them, at most 1,500
rows, 10 % of the labels at random, accuracy in % on the other rows. The peers fit the labeled rows: one-hot categories
and imputed numbers before a forest of 300 trees or histogram boosting, and skrub's ``tabular_pipeline`` of both; the
estimator is given all rows. Seconds are wall time of fit and prediction.

skrub: TableEncoder is level with skrub.TableVectorizer before the same classifier. At most 1,500 rows are split in
halves three times; both encoders see the whole table without labels. Seconds are processor time.

dropped: no column that the encoding leaves out would help a forest by a point. Each of them, and each id, is added
again as the numbers of its sorted values, and a forest of 200 trees cross-validated with and without it (5 folds, at
most 2,000 rows, 3 seeds). A column that is the same in every row cannot help; it is counted, and not measured.

weights: with TableEncoder's weights neighbors agree nearly as well as with the best weights of each table. A text
column's block has total variance w, a number's 1. Tables are newsgroup posts of six groups with invented columns, or
with another row's text. Printed: the share of a row's 10 nearest neighbors of its group, for each w.

speed: encoding 100,000 rows with two text columns of 200 words takes at most 60 s on 2 cores and 2 GB. stray: so does
streaming CSV files of 20 and 40 MB with a quote that nothing closes, in a constant memory.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sobgnn import SobolevClassifier, TableEncoder
from sobgnn.tables import read_table
from sobgnn.tables.reading.readers import open_reader

ROWS = 1500
WEIGHTS = (1, 2, 4, 6, 8, 12, 16, 32)


def files() -> list[Path]:
    return sorted((Path(os.environ["SOBGNN_DATA"]) / "tables").glob("*.csv"))


def tables() -> Iterator[tuple[str, pd.DataFrame, np.ndarray]]:
    """Name, columns and labels of at most 1,500 rows."""
    for path in files():
        frame = pd.read_csv(path)
        frame = frame.sample(min(ROWS, len(frame)), random_state=0).reset_index(drop=True)
        yield path.stem, frame, frame.pop("label").astype(str).to_numpy(dtype=object)


def row(*cells: object) -> None:
    """A row of a Markdown table."""
    print("| " + " | ".join(f"{v:.1f}" if isinstance(v, float) else str(v) for v in cells) + " |", flush=True)


def beside() -> None:
    forest, boosting = RandomForestClassifier(300, random_state=0), HistGradientBoostingClassifier(random_state=0)
    columns = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude="number")),
    )
    peers: dict[str, Any] = {"forest": make_pipeline(columns, forest), "boosting": make_pipeline(columns, boosting)}
    try:
        from skrub import tabular_pipeline
    except ImportError:
        print("skrub is not installed: its pipelines are left out")
    else:
        peers |= {"skrub, forest": tabular_pipeline(forest), "skrub, boosting": tabular_pipeline(boosting)}
    row("table", "labels", "SobolevClassifier", *peers)
    row(*["---"] * (len(peers) + 3))
    found = []
    for name, frame, y in tables():
        given = np.random.default_rng(0).permutation(len(y))[: max(10, round(0.1 * len(y)))]
        hidden = np.setdiff1d(np.arange(len(y)), given)
        shown = np.full(len(y), None, dtype=object)
        shown[given] = y[given]
        ways: dict[str, Callable[[], np.ndarray]] = {
            "ours": lambda f=frame, s=shown, h=hidden: SobolevClassifier(random_state=0).fit(f, s).transduction_[h]
        }
        for title, peer in peers.items():
            ways[title] = lambda p=peer, f=frame, g=given, h=hidden, y=y: p.fit(f.iloc[g], y[g]).predict(f.iloc[h])
        times, right = [], []
        for way in ways.values():
            start = time.perf_counter()
            right.append(100 * float(np.mean(way() == y[hidden])))
            times.append(time.perf_counter() - start)
        found.append((right, times))
        row(name, len(given), *right)
    accuracy, seconds = np.mean(found, axis=0).tolist()
    row("mean", "", *accuracy)
    row("seconds", "", *(f"{value:.2f}" for value in seconds))
    lead, ahead = accuracy[0] - max(accuracy[1:]), sum(right[0] >= max(right[1:]) for right, _ in found)
    print(f"\n{lead:+.1f} points against the best peer by mean, first on {ahead} of {len(found)} tables: ", end="")
    print("holds" if lead > 0 else "MISSES")


def skrub() -> None:
    from skrub import TableVectorizer

    row("table", "forest", "forest, skrub", "5-nn", "5-nn, skrub", "s", "s, skrub", "left out")
    row(*["---"] * 8)
    total = []
    for name, frame, labels in tables():
        y = np.unique(labels, return_inverse=True)[1]
        kept = np.isin(y, np.flatnonzero(np.bincount(y) > 1))
        frame, y = frame[kept].reset_index(drop=True), y[kept]
        splits = list(StratifiedShuffleSplit(3, train_size=0.5, random_state=0).split(frame, y))
        spent, encoder = [time.process_time()], TableEncoder()
        own = encoder.fit_transform(frame)
        spent.append(time.process_time())
        theirs = np.nan_to_num(TableVectorizer().fit_transform(frame).fillna(-1).to_numpy(dtype=np.float64))
        spent.append(time.process_time())
        total.append(
            [
                100
                * float(np.mean([model().fit(X[train], y[train]).score(X[test], y[test]) for train, test in splits]))
                for model, pair in (
                    (lambda: RandomForestClassifier(100, random_state=0), (own, theirs)),
                    # skrub's output is standardized for the nearest neighbors, as is usual.
                    (lambda: KNeighborsClassifier(5), (own, StandardScaler().fit_transform(theirs))),
                )
                for X in pair
            ]
        )
        left = [
            f"{column} ({what})" for column, what in encoder.outcomes_.items() if what in ("id", "constant", "empty")
        ]
        row(name, *total[-1], *(f"{value:.2f}" for value in np.diff(spent)), ", ".join(left))
    row("mean", *np.mean(total, axis=0).tolist(), "", "", "")


def dropped() -> None:
    columns = same = 0
    gains: list[float] = []
    for path in files():
        table = read_table(path, "label")
        frame = table.frame
        columns += frame.width - 1
        left = [name for name in frame.columns if name not in (*table.encoding.encoder.slices_, table.encoding.label)]
        differing = [name for name in left if frame[name].n_unique() > 1]
        same += len(left) - len(differing)
        if differing:
            gains += [float(gain) for gain in gains_of(table, frame, differing)]
    worst, every = max(gains, default=0.0), same + len(gains)
    print(f"{len(files())} tables, {columns} columns: {every} left out, {same} of them the same in every row; ", end="")
    print(f"largest gain of another {worst:+.2f} points {'holds' if worst < 1 else 'misses'}")


def gains_of(table: Any, frame: pl.DataFrame, names: list[str]) -> Iterator[float]:
    """What each column adds to a forest's cross-validated accuracy, in points."""
    rows = np.random.default_rng(0).permutation(np.flatnonzero(table.codes >= 0))[:2000]
    rows = rows[np.bincount(table.codes[rows])[table.codes[rows]] >= 5]
    X, y = table.X[rows], table.codes[rows]
    X = X.toarray() if sp.issparse(X) else X

    def accuracy(X: np.ndarray) -> float:
        scores = []
        for seed in range(3):
            splits = StratifiedKFold(5, shuffle=True, random_state=seed)
            scores.append(cross_val_score(RandomForestClassifier(200, random_state=seed), X, y, cv=splits).mean())
        return 100 * float(np.mean(scores))

    without = accuracy(X)
    for name in names:
        codes = frame[name].cast(pl.String).rank("dense").fill_null(0).to_numpy()[rows].astype(np.float32)
        yield accuracy(np.column_stack([X, codes])) - without


def agreement(X: np.ndarray, y: np.ndarray, k: int = 10) -> float:
    found = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(X).kneighbors(X, return_distance=False)[:, 1:]
    return float((y[found] == y[:, None]).mean())


def weights() -> None:
    sys.path.insert(0, "examples")
    from tickets import COLUMNS, tickets

    rows, truth = tickets(2000)
    frame = pl.DataFrame({c: [str(one[i]) for one in rows] for i, c in enumerate(COLUMNS)}).drop("label", "ticket")
    y, rng = np.unique(truth, return_inverse=True)[1], np.random.default_rng(0)

    def numbers(count: int, signal: float) -> dict[str, np.ndarray]:
        """Columns that move by ``signal`` standard deviations from class to class."""
        means = rng.normal(size=(y.max() + 1, count))
        return {f"n{i}": signal * means[y, i] + rng.normal(size=len(y)) for i in range(count)}

    body, words, subject = frame.select("body"), frame.select("body", "subject"), frame.select("subject")
    other = body.select(pl.col("body").gather(rng.permutation(body.height)))  # text that says nothing of the row
    noise, weak, strong = 0.0, 0.5, 1.0
    mixtures = {
        "body": body, "body, subject": words, "the ticket file": frame,
        "body, 10 noise": body.with_columns(**numbers(10, noise)),
        "body, 3 weak": body.with_columns(**numbers(3, weak)),
        "body, 10 weak": body.with_columns(**numbers(10, weak)),
        "body, 10 strong": body.with_columns(**numbers(10, strong)),
        "body, 30 weak": body.with_columns(**numbers(30, weak)),
        "body, subject, 10 weak": words.with_columns(**numbers(10, weak)),
        "subject, 10 weak": subject.with_columns(**numbers(10, weak)),
        "another's body, 3 strong": other.with_columns(**numbers(3, strong)),
        "another's body, 10 weak": other.with_columns(**numbers(10, weak)),
        "another's body, 10 strong": other.with_columns(**numbers(10, strong)),
        "another's body, 30 weak": other.with_columns(**numbers(30, weak)),
        "subject, 10 noise": subject.with_columns(**numbers(10, noise)),
    }  # fmt: skip
    print(f"{'agreement of 10 neighbors':28}" + "".join(f"w={w:<6}" for w in WEIGHTS) + "numbers alone")
    regret = np.zeros(len(WEIGHTS))
    for name, table in mixtures.items():
        encoder = TableEncoder(text_model="none")
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
    print(f"{'mean loss against the best w':28}" + "".join(f"{value / len(mixtures):<8.3f}" for value in regret))


def memory() -> float:
    """GB at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def texts(rows: int, length: int, seed: int) -> Iterator[str]:
    """Words drawn by Zipf's law from 50,000."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.array(["".join(rng.choice(letters, 3 + i % 7)) for i in range(50_000)])
    edges = np.cumsum(1 / np.arange(1, 50_001))
    for _ in range(rows):
        yield " ".join(vocabulary[np.searchsorted(edges / edges[-1], rng.random(length))])


def speed(rows: int = 100_000) -> None:
    columns = {name: pl.Series(texts(rows, 200, seed), dtype=pl.String) for seed, name in enumerate(("body", "answer"))}
    table = pl.DataFrame({**columns, "channel": np.arange(rows) % 5})
    before, started, spent = memory(), time.perf_counter(), time.process_time()
    X = TableEncoder(text_model="none").fit_transform(table)
    wall, spent = time.perf_counter() - started, time.process_time() - spent
    print(f"rows {rows:,}  features {X.shape[1]}  wall {wall:.1f} s  processor {spent:.1f} s", end="  ")
    print(f"memory {memory():.2f} GB (table alone {before:.2f})  {'holds' if wall < 60 and memory() < 2 else 'misses'}")


def stray() -> None:
    line = "0.1234,5.678,abc def,u\n"
    for size in (20, 40):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "stray.csv"
            path.write_text("a,b,c,label\n" + 10 * line + '1,2,"open,u\n' + (size * 10**6 // len(line)) * line)
            spent = time.process_time()
            rows = sum(frame.height for frame in open_reader(path).frames())
            spent = time.process_time() - spent
        print(f"{size} MB  rows {rows:,}  processor {spent:.1f} s  memory {memory():.2f} GB")


CLAIMS = {claim.__name__: claim for claim in (beside, skrub, dropped, weights, speed, stray)}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in CLAIMS:
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    CLAIMS[sys.argv[1]]()
