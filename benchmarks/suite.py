"""Claim: the default estimator is ahead of tuned peers in mean and rank, at 5 and 20 labels per class and at 10 %.

    python -m benchmarks.suite --sets FOLDER --lines results/suite.jsonl.gz    # measures; resumes where it was stopped
    python -m benchmarks.suite --lines results/suite.jsonl.gz,results/suite_classic.jsonl.gz --report results/suite.md
    python -m benchmarks.suite --sets FOLDER --lines FILE --labels rare --methods SobolevClassifier,balanced

FOLDER holds one npz per data set, X [N, F] and y [N], made by ``python -m benchmarks.suite_sets``: the 26 development
sets, classic tables, or surveys that had no part in any choice. Every method gets the same labels and predicts all
other points; the peers choose their parameters by cross-validation on the labels they are given. Of a report, each file
of lines is a section. ``--labels rare``: every class in turn, at most 6 of a set, has 20, 3 or 2 labels while the
others have 20; recall of that class and mean recall of the others.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import append_cases, read_lines

HOW = ("5", "20", "10%")
OURS = "SobolevClassifier"
PEERS = ("LabelSpreading", "forest", "SVM", "logistic", "MLP", "boosting", "k-NN", "self-training")
# Too wide for boosting in reasonable time; it is never the best there.
WIDE = ("isolet", "har", "20news", "mnist", "cylinder-bands")
INTRODUCTION = """# The estimator against tuned peers

Every method gets the same labels and predicts all other points; the peers choose their parameters by cross-validation
on these labels. Means over data sets, accuracy in %; the rank is among all methods. What was chosen on which sets, and
the version that was measured: [the estimator](estimator.md). `--by-set` adds a row for each data set.
"""
MEASURES = ("accuracy", "balanced", "log_loss", "ece", "seconds")
TITLES = {"suite": "Development sets", "suite_classic": "Classic tables", "suite_unseen": "Surveys, unseen"}
RARE, FEW, MOST_CLASSES = ("digits", "cancer", "isolet", "har", "segment", "mnist"), (20, 3, 2), 6


def draw_labels(y: np.ndarray, how: str, draw: int) -> np.ndarray:
    """Labels [N] with all but some set to -1.

    Args:
        y: Classes [N], from 0.
        how: A number per class; a share of all points, with 2 of each class; or "3 of class 5", of the others 20.
        draw: Another one chooses other points.
    """
    given = np.full(len(y), -1)
    few, _, rare = how.partition(" of class ")
    if rare:
        generator = np.random.default_rng(500 + draw)
        for code in np.unique(y):
            rows = generator.permutation(np.flatnonzero(y == code))
            given[rows[: int(few) if code == int(rare) else 20]] = code
        return given
    order = np.random.default_rng(1000 + draw).permutation(len(y))
    if how.endswith("%"):
        rows = order[: round(len(y) * float(how[:-1]) / 100)]
        given[rows] = y[rows]
        how = "2"
    for code in np.unique(y):
        lacking = max(0, int(how) - int((given == code).sum()))
        # At least a fifth of a class stays hidden, or there would be nothing to measure.
        rows = order[(y[order] == code) & (given[order] == -1)]
        given[rows[: min(lacking, int(0.8 * len(rows)))]] = code
    return given


def peer(name: str, labels: np.ndarray) -> tuple[Any, dict[str, list[Any]]]:
    """A peer and the grid it is tuned over."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    boosting = HistGradientBoostingClassifier(max_iter=100, random_state=0, early_stopping=False)
    mlp = MLPClassifier(random_state=0, max_iter=300)
    neighbors = [1, 5] if np.bincount(labels).min() < 5 else [1, 5, 15]
    return {
        "forest": (RandomForestClassifier(300, random_state=0), {"max_features": ["sqrt", 0.5]}),
        "SVM": (SVC(probability=False, random_state=0), {"C": [1.0, 10.0, 100.0], "gamma": ["scale", 0.01]}),
        "logistic": (LogisticRegression(max_iter=1000), {"C": [0.01, 0.1, 1.0, 10.0]}),
        "balanced": (LogisticRegression(max_iter=1000, class_weight="balanced"), {}),
        "MLP": (mlp, {"hidden_layer_sizes": [(64,), (256,)], "alpha": [1e-4, 0.1]}),
        "boosting": (boosting, {"min_samples_leaf": [5, 20]}),
        "k-NN": (KNeighborsClassifier(), {"n_neighbors": neighbors, "weights": ["distance"]}),
    }[name]


def fitted_model(name: str, X: np.ndarray, given: np.ndarray) -> Any:
    """A method's model, tuned and fitted; a graph's has ``transduction_``."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.semi_supervised import SelfTrainingClassifier

    if name == OURS:
        from sobgnn import SobolevClassifier

        return SobolevClassifier(random_state=0, device="cpu").fit(X, given)
    known = given >= 0
    folds = min(3, int(np.bincount(given[known]).min()))
    if name == "LabelSpreading":
        grid = [(k, alpha) for k in (7, 15) for alpha in (0.2, 0.8, 0.99)]
        scores = [spreading_score(X, given, *setting, folds) for setting in grid]
        return spreading(X, *grid[int(np.argmax(scores))]).fit(X, given)
    if name == "self-training":
        return SelfTrainingClassifier(LogisticRegression(max_iter=500), threshold=0.8).fit(X, given)
    model, grid = peer(name, given[known])
    if folds >= 2 and grid:
        splits = StratifiedKFold(folds, shuffle=True, random_state=0)
        model = GridSearchCV(model, grid, cv=splits, n_jobs=1)
    return model.fit(X[known], given[known])


def spreading(X: np.ndarray, k: int, alpha: float) -> Any:
    from sklearn.semi_supervised import LabelSpreading

    return LabelSpreading(kernel="knn", n_neighbors=min(k, len(X) - 1), alpha=alpha, max_iter=100)


def spreading_score(X: np.ndarray, given: np.ndarray, k: int, alpha: float, folds: int) -> float:
    """The share of labels that it predicts from the other folds' labels."""
    from sklearn.model_selection import StratifiedKFold

    rows = np.flatnonzero(given >= 0)
    right = 0
    for _, out in StratifiedKFold(folds, shuffle=True, random_state=0).split(rows, given[rows]) if folds > 1 else ():
        seen = given.copy()
        seen[rows[out]] = -1
        right += int((spreading(X, k, alpha).fit(X, seen).transduction_[rows[out]] == given[rows[out]]).sum())
    return right / len(rows)


def measure(case: tuple[str, str, str, int]) -> dict[str, Any]:
    """One method on one draw of one data set."""
    from sklearn.metrics import balanced_accuracy_score, log_loss
    from sklearn.preprocessing import StandardScaler

    path, how, name, draw = case
    with np.load(path) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    given = draw_labels(y, how, draw)
    started = time.process_time()
    X = X if name == OURS else StandardScaler().fit_transform(X)
    fitted = fitted_model(name, X, given)
    whole = name in (OURS, "LabelSpreading")
    found = fitted.transduction_ if whole else fitted.predict(X)
    probabilities = fitted.label_distributions_ if whole else getattr(fitted, "predict_proba", lambda _: None)(X)
    spent = time.process_time() - started
    hidden = given == -1
    line: dict[str, Any] = {
        "set": Path(path).stem, "labels": how, "method": name, "draw": draw,
        "accuracy": float((found == y)[hidden].mean()),
        "balanced": float(balanced_accuracy_score(y[hidden], found[hidden])),
        "seconds": round(spent, 2),
    }  # fmt: skip
    if probabilities is not None:
        own = np.asarray(probabilities[hidden], dtype=float).clip(1e-12)
        own /= own.sum(axis=1, keepdims=True)
        line["log_loss"] = float(log_loss(y[hidden], own, labels=np.arange(own.shape[1])))
        line["ece"] = expected_calibration_error(own, y[hidden])
    if " of class " in how:
        recalls = [float((found == code)[hidden & (y == code)].mean()) for code in np.unique(y)]
        rare = int(how.rpartition(" ")[2])
        line |= {"recall": recalls[rare], "others": float(np.mean(np.delete(recalls, rare)))}
        line["out_of_fold"] = float(getattr(fitted, "out_of_fold_accuracy_", np.nan))
    return line


def expected_calibration_error(probabilities: np.ndarray, codes: np.ndarray, bins: int = 15) -> float:
    """The mean distance between accuracy and confidence, over bins of confidence and weighted by their rows."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == codes
    which = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(which, right - confidence, minlength=bins)).sum() / max(1, len(codes)))


Means = dict[tuple[str, str], dict[str, float]]


def means(lines: list[dict[str, Any]], methods: list[str]) -> Means:
    """Mean measures of each set and method, over the draws that all methods of the set have."""
    by_case: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        by_case[line["set"], line["method"]][line["draw"]] = line
    found: Means = {}
    for s in sorted({line["set"] for line in lines}):
        cases = {method: by_case[s, method] for method in methods if (s, method) in by_case}
        draws = set.intersection(*(set(case) for case in cases.values()))
        for method, case in cases.items() if draws and OURS in cases else ():
            found[s, method] = {
                key: float(np.mean([case[draw].get(key, np.nan) for draw in draws])) for key in MEASURES
            }
    return found


class Table(NamedTuple):
    """One number of labels."""

    methods: dict[str, dict[str, float]]  # mean measures, and the mean rank
    summary: str  # our leads over the best peer of each set
    sets: dict[str, str]  # our accuracy and its lead


def table(how: str, cells: Means, methods: list[str]) -> Table:
    """Means over the data sets; a peer that was not measured on a set counts as last there."""
    sets = list(dict.fromkeys(s for s, _ in cells))
    nothing = dict.fromkeys(MEASURES, np.nan)
    every = [[cells.get((s, method), nothing) for method in methods] for s in sets]
    accuracy = 100 * np.array([[cell["accuracy"] for cell in row] for row in every])
    ranks = (-np.nan_to_num(accuracy, nan=-1.0)).argsort(axis=1).argsort(axis=1) + 1.0
    found = {}
    for j, method in enumerate(methods):
        own = {key: [row[j][key] for row in every] for key in MEASURES}
        mean = {key: np.nanmean(values) if np.isfinite(values).any() else np.nan for key, values in own.items()}
        found[method] = {**mean, "rank": ranks[:, j].mean()}
    lead = accuracy[:, 0] - np.nanmax(accuracy[:, 1:], axis=1, initial=-np.inf)
    worst = ", ".join(f"{sets[i]} {lead[i]:+.1f}" for i in lead.argsort()[:5])
    number = f"{how} labels{'' if how.endswith('%') else ' per class'}"
    own = f"balanced accuracy {100 * found[OURS]['balanced']:.1f}, calibration error {found[OURS]['ece']:.3f}"
    first = f"first on {(lead >= 0).sum()} of {len(sets)}, {own}"
    summary = f"{number}: {first}; against the best peer of each set {lead.mean():+.2f} in the mean, worst {worst}."
    leads = zip(sets, accuracy[:, 0], lead, strict=True)
    return Table(found, summary, {s: f"{own:.1f} ({gap:+.1f})" for s, own, gap in leads})


def report(title: str, lines: list[dict[str, Any]], by_set: bool) -> str:
    """A row for each method, the worst gaps, and a row for each data set; then classes with few labels."""
    tables, methods = {}, [method for method in (OURS, *PEERS) if any(line["method"] == method for line in lines)]
    for how in HOW:
        own = [line for line in lines if line["labels"] == how and "accuracy" in line]
        if any(line["method"] == OURS for line in own):
            tables[how] = table(how, means(own, methods), methods)
    if not tables:
        return "\n".join([f"## {title}\n", *rare_table(lines)])
    sets = list(dict.fromkeys(s for one in tables.values() for s in one.sets))
    columns = [f"{how}: {what}" for how in tables for what in ("accuracy (rank)", "log loss")]
    rows = []
    for method in methods:
        found = [one.methods[method] for one in tables.values()]
        values = [f"{100 * m['accuracy']:.2f} ({m['rank']:.2f}) | {m['log_loss']:.3f}" for m in found]
        rows.append([method, *values, f"{found[-1]['seconds']:.1f}"])
    head = ["", *columns, f"{list(tables)[-1]}: CPU s"]
    text = [f"## {title}, {len(sets)} data sets\n", *markdown(head, rows), ""]
    text += [f"- {one.summary}" for one in tables.values()]
    if by_set:
        text += ["\nAccuracy, and in brackets its lead over the best peer of the set:\n"]
        text += markdown(["", *tables], [[s, *(one.sets.get(s, "") for one in tables.values())] for s in sets])
    return "\n".join([*text, *rare_table(lines)])


def markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    text = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return [text[0], "|---" * len(head) + "|", *text[1:]]


def rare_table(lines: list[dict[str, Any]]) -> list[str]:
    """Recall of the class with few labels and of the others, means over classes and draws."""
    found = defaultdict(list)
    for line in lines:
        if "recall" in line:
            found[line["set"], int(line["labels"].split()[0]), line["method"]].append(line)
    rows = []
    for name, few in [(name, few) for name in sorted({key[0] for key in found}) for few in FEW]:
        parts = [(key, found[name, few, method]) for method in (OURS, "balanced") for key in ("recall", "others")]
        parts.append(("out_of_fold", found[name, few, OURS]))
        values = [np.mean([line[key] for line in part] or np.nan) for key, part in parts]
        rows.append([name, str(few), *(f"{100 * value:.1f}" for value in values)])
    head = ["", "labels of the rare class", "recall", "others", "balanced logistic: recall", "others", "out of fold"]
    return ["", *markdown(head, rows)] if rows else []


def cases_of(sets: Path, how: list[str], methods: list[str], draws: int) -> list[tuple[str, str, str, int]]:
    """All cases, those of the first draw first."""
    found = []
    for draw in range(draws):
        for path in sorted(sets.glob("*.npz")):
            wanted = [one for one in how if one != "rare"]
            if "rare" in how and path.stem in RARE:
                with np.load(path) as data:
                    codes = np.random.default_rng(0).permutation(np.unique(data["y"]))[:MOST_CLASSES]
                wanted += [f"{few} of class {code}" for code in sorted(codes) for few in FEW]
            found += [
                (str(path), labels, method, draw)
                for labels in wanted
                for method in methods
                if not (method == "boosting" and path.stem in WIDE)
            ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--lines", required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--by-set", action="store_true", help="a row for each data set, too")
    parser.add_argument("--methods", default=",".join((OURS, *PEERS)))
    parser.add_argument("--labels", default=",".join(HOW))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    options = parser.parse_args()
    files = [Path(name) for name in options.lines.split(",")]
    if options.sets:
        cases = cases_of(options.sets, options.labels.split(","), options.methods.split(","), options.draws)
        done = {(line["set"], line["labels"], line["method"], line["draw"]) for line in read_lines(files[0])}
        cases = [case for case in cases if (Path(case[0]).stem, *case[1:]) not in done]
        append_cases(files[0], measure, cases, options.jobs, options.limit)
    text = [
        INTRODUCTION,
        f"    python -m benchmarks.suite --lines {options.lines} --report {options.report or 'FILE'}\n",
    ]
    for file in files:
        name = file.name.partition(".")[0]
        text.append(report(TITLES.get(name, name), list(read_lines(file)), options.by_set) + "\n")
    print("\n".join(text))
    if options.report:
        options.report.write_text("\n".join(text))


if __name__ == "__main__":
    main()
