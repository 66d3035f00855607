"""Claim: a class with 3 labels among classes with 20 is still found: recall 60 % on digits, 45 % on cancer.

    python -m benchmarks.rare_class --sets FOLDER --lines FILE [--names digits,cancer] [--draws 5] [--jobs 2]
    python -m benchmarks.rare_class --lines FILE --report

FOLDER holds one npz per data set (``benchmarks.suite_sets``). Every class in turn, at most 6 of them drawn, has 20, 3
or 2 labels while the others have 20. Recall of that class, mean recall of the others, and out-of-fold accuracy; beside
logistic regression with balanced weights, and the blend made again without each family in turn. Goals: at least its
recall + 5 with 3 labels; the others lose at most 2 points against 20 labels; accuracy is still reported with 2.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.left_out import LeftOut, table
from benchmarks.suite import read

NAMES = ("digits", "cancer", "isolet", "har", "segment", "mnist")
FULL, FEW = 20, (20, 3, 2)
MOST_CLASSES = 6


def labels_of(y: np.ndarray, rare: int, few: int, draw: int) -> np.ndarray:
    """Labels with -1 where unknown, [N]: 20 of each class, of one of them fewer."""
    generator = np.random.default_rng(500 + draw)
    given = np.full(len(y), -1)
    for code in np.unique(y):
        rows = generator.permutation(np.flatnonzero(y == code))
        given[rows[: few if code == rare else FULL]] = code
    return given


def measure(case: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    """Both methods on one draw."""
    import torch
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    from sobgnn import SobolevClassifier

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path, rare, few, draw = case
    with np.load(path) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    given = labels_of(y, rare, few, draw)
    hidden, known = given == -1, given >= 0
    fitted = SobolevClassifier(random_state=0, device="cpu").fit(X, given)
    Z = StandardScaler().fit_transform(X)
    linear = LogisticRegression(max_iter=1000, class_weight="balanced").fit(Z[known], given[known])

    def recalls(found: np.ndarray) -> list[float]:
        """Of the rare class, and the mean of the others."""
        each = [float((found == code)[hidden & (y == code)].mean()) for code in np.unique(y)]
        return [each[rare], float(np.mean(np.delete(each, rare)))]

    case_of = {"set": Path(path).stem, "rare": rare, "labels": few, "draw": draw}
    ours, peer = recalls(fitted.transduction_), recalls(linear.predict(Z))
    held_out = float(fitted.out_of_fold_accuracy_)
    return [
        {
            **case_of, "method": "ours", "recall": ours[0], "others": ours[1], "out_of_fold": held_out,
            **LeftOut(fitted).scores(recalls),
        },
        {**case_of, "method": "logistic", "recall": peer[0], "others": peer[1]},
    ]  # fmt: skip


def report(lines: Path) -> str:
    """Means over classes and draws, in %, and the same without each family."""
    found = defaultdict(list)
    for line in read(lines):
        found[line["set"], line["labels"], line["method"]].append(line)
    text = [
        "| | labels of the rare class | recall | others | balanced logistic: recall | others | out-of-fold accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted({key[0] for key in found}):
        for few in FEW:
            ours, linear = found[name, few, "ours"], found[name, few, "logistic"]
            if ours:
                values = [
                    np.mean([line[key] for line in part]) for part in (ours, linear) for key in ("recall", "others")
                ]
                values.append(np.mean([line["out_of_fold"] for line in ours]))
                text.append(f"| {name} | {few} | " + " | ".join(f"{100 * value:.1f}" for value in values) + " |")
    columns = {
        f"{few} labels: {what}": [
            (line["set"], line["all"][place], {family: pair[place] for family, pair in line["without"].items()})
            for line in read(lines)
            if line["labels"] == few and "without" in line
        ]
        for few in FEW
        for place, what in enumerate(("recall", "others"))
    }
    return "\n".join([*text, "", table(columns)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--names", default=",".join(NAMES))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        print(report(options.lines))
        return
    done = {(line["set"], line["rare"], line["labels"], line["draw"]) for line in read(options.lines)}
    cases = []
    for name in options.names.split(","):
        path = options.sets / f"{name}.npz"
        with np.load(path) as data:
            codes = np.unique(data["y"])
        chosen = np.sort(np.random.default_rng(0).permutation(codes)[:MOST_CLASSES])
        cases += [
            (str(path), int(rare), few, draw)
            for draw in range(options.draws)
            for rare in chosen
            for few in FEW
            if (name, int(rare), few, draw) not in done
        ]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool, options.lines.open("a") as file:
        for number, lines in enumerate(pool.imap_unordered(measure, cases)):
            for line in lines:
                file.write(json.dumps(line) + "\n")
            file.flush()
            print(number + 1, "of", len(cases), lines, flush=True)


if __name__ == "__main__":
    main()
