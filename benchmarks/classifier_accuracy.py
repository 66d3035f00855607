"""Claim: SobolevClassifier's default is first at 5 labels per class, and first or level with the first at 10 %.

Against logistic regression, RBF-SVM, random forest, k-NN, LabelSpreading, self-training and an MLP, each tuned by
cross-validation on its labels alone, scaling included; and against ensembles of MLPs, plain and smoothed over the
graph. Every method sees all points and the same labels; accuracy is on the other points. mnist is a sample of 10 000.

One JSON line per (data set, labels, draw, method) in --out; lines that are there are not computed again. The table
is printed from the file: means with 95 % bootstrap intervals, and paired differences to the default.

Run: SOBGNN_DATA=FOLDER python -m benchmarks.classifier_accuracy [--datasets isolet har] [--labels 5 0.1]
     [--draws 10] [--methods default svm] [--variant wide:hidden_channels=128] [--device cuda] [--jobs 12]
     [--fits 4] [--table]
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import time
import warnings
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

DATASETS = ("isolet", "har", "cancer", "20news", "mnist")
LABELS = (5.0, 0.1)
SAMPLE = {"mnist": 10_000, "pubmed": 10_000, "coauthor-cs": 10_000}
_ALONE = {"diffusion": 0.0, "weak_labels": 0.0}
OURS: dict[str, dict[str, Any]] = {
    "default": {},
    "no-students": {"weak_labels": 0.0},
    "mlp-8": {"mixing": 0.0, "smoothing": 0.0, **_ALONE},
    "mlp-8-smooth": {"mixing": 0.0, **_ALONE},
    "graph-8": {"mixing": 1.0, "smoothing": 0.0, **_ALONE},
    "paper": {"paper": True},
}
BASELINES = ("logreg", "svm", "forest", "knn", "spreading", "selftraining", "mlp")


@functools.lru_cache(maxsize=8)
def points(name: str) -> tuple[Any, np.ndarray]:
    """X and y of a data set, or of its sample."""
    if folder := os.environ.get("CLASSIFIER_POINTS"):
        return read_points(Path(folder) / f"{name}.npz")
    from sobgnn.datasets import load

    data = load(name)
    X, y = data.X, data.y
    if name in SAMPLE:
        chosen = np.sort(np.random.default_rng(0).permutation(len(y))[: SAMPLE[name]])
        X, y = X[chosen], y[chosen]
    return X, y


def write_points(names: Iterable[str], folder: Path) -> None:
    """What :func:`points` gives, one compressed file each: for machines that the data sets themselves do not reach."""
    import scipy.sparse as sp

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        X, y = points(name)
        if sp.issparse(X):
            X = X.tocsr()
            parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        else:
            bytes_hold_it = X.min() >= 0 and X.max() < 256 and (np.mod(X, 1) == 0).all()
            parts = {"X": X.astype(np.uint8) if bytes_hold_it else X}
        np.savez_compressed(folder / f"{name}.npz", y=y, **parts)


def read_points(path: Path) -> tuple[Any, np.ndarray]:
    """What :func:`write_points` wrote."""
    import scipy.sparse as sp

    with np.load(path) as file:
        if "X" in file:
            return file["X"].astype(np.float32), file["y"]
        parts = tuple(file[name] for name in ("data", "indices", "indptr"))
        return sp.csr_array(parts, shape=tuple(file["shape"])), file["y"]


@functools.lru_cache(maxsize=4)
def dense_points(name: str) -> np.ndarray:
    """X for the baselines: as it is where it is dense, wide sparse X on its 256 singular vectors, as ours sees it."""
    import scipy.sparse as sp

    X, _ = points(name)
    return prepared(X, None, 256) if sp.issparse(X) else X


def draw_labels(y: np.ndarray, labels: float, draw: int) -> np.ndarray:
    """Labelled points: so many per class, or (below 1) a stratified share, at least one of each class."""
    generator = np.random.default_rng([draw, int(1000 * labels)])
    chosen = []
    for code in np.unique(y):
        members = generator.permutation(np.flatnonzero(y == code))
        chosen.append(members[: int(labels) if labels >= 1 else max(1, round(labels * len(members)))])
    return np.sort(np.concatenate(chosen))


def ours(X: Any, y: np.ndarray, labelled: np.ndarray, settings: dict[str, Any], draw: int, device: str) -> Any:
    from sobgnn import SobolevClassifier

    given = np.full(len(y), -1)
    given[labelled] = y[labelled]
    settings = dict(settings)
    make = SobolevClassifier.paper if settings.pop("paper", False) else SobolevClassifier
    classifier = make(random_state=draw, device=device, **settings).fit(X, given)
    chosen = {
        "scale": classifier.scale_, "mixing": round(classifier.mixing_, 3), "smoothing": classifier.smoothing_,
        "diffusion": round(classifier.diffusion_, 3), "weak_labels": round(classifier.weak_labels_, 3),
        "temperature": round(classifier.temperature_, 3), "steps": classifier.n_iter_,
    }  # fmt: skip
    return classifier.label_distributions_, chosen


def prepared(X: Any, scale: str | None, n_components: int | None = None) -> np.ndarray:
    """X scaled, with mean variance 1, so that one grid of C and γ fits all."""
    from sobgnn.estimator.features import FeatureMap

    return FeatureMap.fit(X, scale=scale, n_components=n_components, seed=0)(X)


def baseline(method: str, X: np.ndarray, y: np.ndarray, labelled: np.ndarray, draw: int) -> Any:
    """Probabilities (or votes) of all points, and the setting that cross-validation on the labels chose."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    width = X.shape[1]
    makers: dict[str, tuple[Any, dict[str, list[Any]]]] = {
        "logreg": (lambda **k: LogisticRegression(max_iter=300, **k), {"C": [0.003, 0.03, 0.3, 3.0]}),
        "svm": (
            lambda C, g: SVC(C=C, gamma=g / width, random_state=0),
            {"C": [1.0, 10.0], "g": [0.1, 0.3, 1.0]},
        ),
        "forest": (
            lambda **k: RandomForestClassifier(300, random_state=draw, **k),
            {"max_features": ["sqrt", 0.2]},
        ),
        "knn": (
            lambda **k: KNeighborsClassifier(**k, algorithm="brute"),
            {"n_neighbors": [1, 3, 5, 10], "weights": ["uniform", "distance"]},
        ),
        "mlp": (
            lambda **k: MLPClassifier((128,), max_iter=200, random_state=draw, **k),
            {"alpha": [0.01, 1.0], "learning_rate_init": [0.001, 0.01]},
        ),
    }
    if method == "spreading":
        return spreading(X, y, labelled, draw)
    if method == "selftraining":
        return self_training(X, y, labelled, draw, makers)
    make, grid = makers[method]
    scales = ["standard"] if method == "forest" else ["standard", "range", "unit"]
    best, setting = tuned({scale: prepared(X, scale) for scale in scales}, y, labelled, make, grid, draw)
    Z = prepared(X, best)
    model = make(**setting).fit(Z[labelled], y[labelled])
    if method != "svm":
        return model.predict_proba(Z), {"scale": best, **setting}
    return np.eye(int(y.max()) + 1)[model.predict(Z)], {"scale": best, **setting}


def tuned(
    versions: dict[str, np.ndarray],
    y: np.ndarray,
    labelled: np.ndarray,
    make: Any,
    grid: dict[str, list[Any]],
    draw: int,
) -> tuple[str, dict[str, Any]]:
    from sklearn.model_selection import cross_val_score

    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    folds = splits(y[labelled], draw)
    scored = []
    for scale, Z in versions.items():
        for setting in settings:
            if setting.get("n_neighbors", 0) > min(len(train) for train, _ in folds):
                continue
            score = cross_val_score(make(**setting), Z[labelled], y[labelled], cv=folds).mean()
            scored.append((score, scale, setting))
    return max(scored, key=lambda entry: entry[0])[1:]


def splits(codes: np.ndarray, draw: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold

    count = min(3 if len(codes) > 400 else 5, int(np.bincount(codes).min()))
    return list(StratifiedKFold(count, shuffle=True, random_state=draw).split(codes, codes))


def spreading(X: np.ndarray, y: np.ndarray, labelled: np.ndarray, draw: int) -> Any:
    """scikit-learn's LabelSpreading on k-NN graphs, tuned by hiding some labels in turn."""
    from sklearn.neighbors import kneighbors_graph
    from sklearn.semi_supervised import LabelSpreading

    def spread(graph: Any, alpha: float, rows: np.ndarray) -> np.ndarray:
        given = np.full(len(y), -1)
        given[rows] = y[rows]
        model = LabelSpreading(kernel=lambda a, b=None: graph, alpha=alpha, max_iter=100, tol=1e-3).fit(X, given)
        out = np.zeros((len(y), int(y.max()) + 1))
        out[:, model.classes_] = np.nan_to_num(model.label_distributions_)
        return out

    folds = splits(y[labelled], draw)
    scored = []
    graphs = {}
    for scale in ("standard", "range", "unit"):
        widest = kneighbors_graph(prepared(X, scale), 20, mode="distance")
        for k in (5, 10, 20):
            graph = nearest_of(widest, k)
            graphs[scale, k] = graph
            for alpha in (0.2, 0.8, 0.99):
                right = [
                    (spread(graph, alpha, labelled[train])[labelled[test]].argmax(1) == y[labelled[test]]).mean()
                    for train, test in folds
                ]
                scored.append((np.mean(right), scale, k, alpha))
    _, scale, k, alpha = max(scored, key=lambda entry: entry[0])
    return spread(graphs[scale, k], alpha, labelled), {"scale": scale, "k": k, "alpha": alpha}


def nearest_of(widest: Any, k: int) -> Any:
    """The symmetric 0/1 graph of the k nearest, from one of more neighbours by distance."""
    import scipy.sparse as sp

    n = widest.shape[0]
    order = np.argsort(widest.data.reshape(n, -1), axis=1)[:, :k]
    columns = np.take_along_axis(widest.indices.reshape(n, -1), order, axis=1)
    graph = sp.csr_matrix((np.ones(n * k), columns.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    return graph.maximum(graph.T).tocsr()


def self_training(X: np.ndarray, y: np.ndarray, labelled: np.ndarray, draw: int, makers: Any) -> Any:
    """Self-training over the tuned logistic regression; the threshold by hiding some labels in turn."""
    from sklearn.semi_supervised import SelfTrainingClassifier

    make, grid = makers["logreg"]
    scale, setting = tuned({s: prepared(X, s) for s in ("standard", "range", "unit")}, y, labelled, make, grid, draw)
    Z = prepared(X, scale)

    def train(rows: np.ndarray, threshold: float) -> np.ndarray:
        given = np.full(len(y), -1)
        given[rows] = y[rows]
        out = np.zeros((len(y), int(y.max()) + 1))
        model = SelfTrainingClassifier(make(**setting), threshold=threshold, max_iter=5).fit(Z, given)
        out[:, model.classes_] = model.predict_proba(Z)
        return out

    folds = splits(y[labelled], draw)[:2]
    scored = [
        (np.mean([(train(labelled[a], t)[labelled[b]].argmax(1) == y[labelled[b]]).mean() for a, b in folds]), t)
        for t in (0.75, 0.95)
    ]
    threshold = max(scored)[1]
    return train(labelled, threshold), {"scale": scale, "threshold": threshold, **setting}


def measure(
    name: str, labels: float, draw: int, method: str, settings: dict[str, Any] | None, device: str
) -> dict[str, Any]:
    """One line of results."""
    from sobgnn.estimator.temperature import expected_calibration_error

    warnings.filterwarnings("ignore")
    X, y = points(name)
    labelled = draw_labels(y, labels, draw)
    hidden = np.setdiff1d(np.arange(len(y)), labelled)
    start = time.perf_counter()
    if settings is None:
        probability, setting = baseline(method, dense_points(name), y, labelled, draw)
    else:
        probability, setting = ours(X, y, labelled, settings, draw, device)
    seconds = time.perf_counter() - start
    right = probability[hidden].argmax(1) == y[hidden]
    return {
        "dataset": name, "labels": labels, "draw": draw, "method": method, "accuracy": float(right.mean()),
        "ece": expected_calibration_error(probability[hidden], y[hidden]), "seconds": round(seconds, 2),
        "setting": setting,
    }  # fmt: skip


def interval(values: np.ndarray, resamples: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of the mean."""
    generator = np.random.default_rng(0)
    means = values[generator.integers(0, len(values), (resamples, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


Cell = dict[str, dict[int, dict[str, Any]]]  # method -> draw -> line
NAMES = {
    "default": "**default**", "no-students": "default, `weak_labels=0`", "mlp-8": "8 MLPs",
    "mlp-8-smooth": "8 MLPs, smoothed", "graph-8": "8 S-SobGNNs", "paper": "the paper's form",
    "logreg": "logistic regression", "svm": "RBF-SVM", "forest": "random forest", "knn": "k-NN",
    "spreading": "LabelSpreading", "selftraining": "SelfTraining", "mlp": "MLP",
}  # fmt: skip


def cells_of(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, float], Cell]:
    """By data set and labels: 5 per class first, data sets in the order they are known by."""
    cells: dict[tuple[str, float], Cell] = {}
    for line in lines:
        cells.setdefault((line["dataset"], line["labels"]), {}).setdefault(line["method"], {})[line["draw"]] = line
    known = {name: place for place, name in enumerate(DATASETS)}
    return dict(sorted(cells.items(), key=lambda item: (-item[0][1], known.get(item[0][0], len(known)))))


def mean(cell: Cell, method: str) -> float:
    """Accuracy in %, over the draws that the method has."""
    return 100 * float(np.mean([line["accuracy"] for line in cell[method].values()]))


def gap(cell: Cell, method: str, reference: str = "default") -> str:
    """The reference minus a method over the draws that both have: mean, interval, verdict; two columns."""
    shared = sorted(set(cell[method]) & set(cell.get(reference, {})))
    if method == reference or not shared:
        return " | "
    values = 100 * np.array([cell[reference][d]["accuracy"] - cell[method][d]["accuracy"] for d in shared])
    low, high = interval(values)
    verdict = "ahead" if low > 0 else "behind" if high < 0 else "level"
    return f"{values.mean():+.2f} ({low:+.2f} to {high:+.2f}) | {verdict}"


def print_tables(lines: Iterable[dict[str, Any]], reference: str = "default") -> None:
    """Markdown: the reference beside the best other method, then every method of every data set."""
    cells = cells_of(lines)
    own = (reference, "no-students")
    print("| data | labels | draws | default | best other method | default minus it, paired | |")
    print("|---|---|---|---|---|---|---|")
    for (name, labels), cell in cells.items():
        others = [method for method in cell if method not in own]
        if reference not in cell or not others:
            continue
        best = max(others, key=lambda method: mean(cell, method))
        told = f"{mean(cell, reference):.2f} | {NAMES.get(best, best)} {mean(cell, best):.2f} | {gap(cell, best)}"
        print(f"| {name} | {amount(labels)} | {len(cell[reference])} | {told} |")
    for (name, labels), cell in cells.items():
        print(f"\n### {name}, {amount(labels)}\n")
        print("| method | draws | accuracy % (95 %) | default minus it, paired | | ECE | seconds |")
        print("|---|---|---|---|---|---|---|")
        for method in sorted(cell, key=lambda method: -mean(cell, method)):
            found = list(cell[method].values())
            low, high = interval(100 * np.array([line["accuracy"] for line in found]))
            error, seconds = (np.mean([line[key] for line in found]) for key in ("ece", "seconds"))
            print(
                f"| {NAMES.get(method, method)} | {len(found)} | {mean(cell, method):.2f} ({low:.2f} to {high:.2f}) | "
                f"{gap(cell, method)} | {error:.3f} | {seconds:.1f} |"
            )


def amount(labels: float) -> str:
    """Labels, for people."""
    return f"{labels:g} per class" if labels >= 1 else f"{100 * labels:g} %"


def read(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole; a killed run leaves at most one torn line, the last."""
    lines = []
    if path.exists():
        for text in path.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                continue
    return lines


def variant(text: str) -> tuple[str, dict[str, Any]]:
    """``name:key=value,key=value`` as a name and settings."""
    name, _, pairs = text.partition(":")
    settings = {}
    for pair in filter(None, pairs.split(",")):
        key, _, value = pair.partition("=")
        try:
            settings[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[key] = value
    return name, settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--labels", nargs="+", type=float, default=list(LABELS))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--methods", nargs="+", default=[*OURS, *BASELINES])
    parser.add_argument("--variant", nargs="+", type=variant, default=[], metavar="NAME:KEY=VALUE,...")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes for the baselines")
    parser.add_argument("--fits", type=int, default=1, help="processes for our own")
    parser.add_argument("--out", type=Path, default=Path("results/classifier_accuracy.jsonl"))
    parser.add_argument("--write-points", type=Path, metavar="FOLDER", help="write the points, compute nothing")
    parser.add_argument("--points", type=Path, metavar="FOLDER", help="read points that were written so")
    parser.add_argument("--table", action="store_true", help="print what there is, compute nothing")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing after this long")
    arguments = parser.parse_args()
    if arguments.table:
        print_tables(read(arguments.out))
        return
    if arguments.write_points:
        write_points(arguments.datasets, arguments.write_points)
        return
    if arguments.points:
        os.environ["CLASSIFIER_POINTS"] = str(arguments.points)  # for the processes that measure
    settings = {**OURS, **dict(arguments.variant)}
    methods = [*arguments.methods, *(name for name, _ in arguments.variant)]
    done = {(r["dataset"], r["labels"], r["draw"], r["method"]) for r in read(arguments.out)}
    # Labels, then draws outermost: a run that is cut short has whole draws of what comes first.
    wanted = list(product(arguments.labels, range(arguments.draws), arguments.datasets, methods))
    wanted = [(d, labels, draw, m) for labels, draw, d, m in wanted if (d, labels, draw, m) not in done]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    run(wanted, settings, arguments)
    print_tables(read(arguments.out))


def run(wanted: list[tuple[str, float, int, str]], settings: dict[str, Any], arguments: argparse.Namespace) -> None:
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
    from multiprocessing import get_context

    deadline = time.monotonic() + 60 * arguments.minutes

    def keep(line: dict[str, Any]) -> None:
        with arguments.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(
            f"{line['dataset']:8} {line['labels']:<5g} draw {line['draw']} {line['method']:16} "
            f"{100 * line['accuracy']:.2f} %  {line['seconds']:.1f} s  {line['setting']}",
            flush=True,
        )

    # One thread for each process: there are as many as cores.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    context = get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, context) as theirs, ProcessPoolExecutor(arguments.fits, context) as ours:
        lanes = [
            (theirs, arguments.jobs, "cpu", iter([job for job in wanted if job[3] not in settings])),
            (ours, arguments.fits, arguments.device, iter([job for job in wanted if job[3] in settings])),
        ]
        pending: dict[Future[dict[str, Any]], int] = {}
        while True:
            for number, (pool, most, device, queue) in enumerate(lanes):
                while sum(lane == number for lane in pending.values()) < most and time.monotonic() < deadline:
                    job = next(queue, None)
                    if job is None:
                        break
                    pending[pool.submit(measure, *job, settings.get(job[3]), device)] = number
            if not pending:
                break
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                del pending[future]
                keep(future.result())


if __name__ == "__main__":
    main()
