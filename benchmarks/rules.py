"""Claim: every rule pays for itself, the estimated accuracy is neither too high nor too sure, and promises are kept.

    python -m benchmarks.rules --sets FOLDER[,FOLDER] --keep CELLS [--cells suite,seeds] [--draws 5] [--rows 1500]
    python -m benchmarks.rules --keep CELLS [--left-out]

FOLDER holds one npz per data set (``benchmarks.suite_sets``). Each cell is one fit; it
keeps what every family predicts for the labeled rows out of fold and for at most 800 hidden rows, so that shares,
temperatures, class frequencies and scores can be decided again in seconds: the second command does so with the rules as
they are now, and prints the tables of results/honesty.md. A stopped run resumes. Cells:

    suite      5 and 20 labels per class and 10 % of the rows, as in ``benchmarks.suite``
    few        1, 2 and 3 labels per class, likewise
    seeds      5 labels per class under five seeds
    random     60 labels, and 10 % of the rows, drawn at random
    shuffled   60 and 150 labels at random, shuffled
    flipped    300 labels at random, none or 5 % of which are of another class instead
    rare       20 labels of each class but one, which has 3
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from benchmarks.cases import load_set, run_cases
from benchmarks.suite import draw_labels
from sobgnn.estimator.blend import PRIOR_COUNTS, Blend, cross_fit, fit_blend, result_temperature, sharpen
from sobgnn.estimator.frequencies import Frequencies, class_frequencies, much_fewer, shift_priors
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.trust import compare_with_chance, estimate_accuracy, find_acceptance, suspect_labels

TARGETS = (0.9, 0.95)
# A model knows something if it is better than the largest class by this share of the hidden rows.
_CLEAR = 0.1
HIDDEN_ROWS = 800
RARE = ("digits", "cancer", "isolet", "har", "segment", "mnist")


class Cell(NamedTuple):
    """One fit: a data set's file, which labels it gets, the draw of these labels, and the estimator's seed."""

    path: str
    labels: str
    draw: int
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{Path(self.path).stem}.{self.labels.replace(' ', '_')}.{self.draw}.{self.seed}"


def cells_of(kinds: Sequence[str], paths: Sequence[Path], draws: int, first: int = 0) -> Iterator[Cell]:
    """All cells of some kinds, those of the first draw first."""
    for draw in range(first, first + draws):
        for kind in kinds:
            for path in map(str, paths):
                if kind == "suite":
                    yield from (Cell(path, how, draw) for how in ("5", "20", "10%"))
                elif kind == "few":
                    yield from (Cell(path, how, draw) for how in ("1", "2", "3"))
                elif kind == "seeds":
                    yield from (Cell(path, "5", draw, seed) for seed in range(5))
                elif kind == "random":
                    yield from (Cell(path, how, draw) for how in ("60 random", "10% random"))
                elif kind == "shuffled":
                    yield from (Cell(path, how, draw) for how in ("60 shuffled", "150 shuffled"))
                elif kind == "flipped":
                    yield from (Cell(path, how, draw) for how in ("300 flipped", "300 random"))
                elif kind == "rare" and Path(path).stem in RARE:
                    yield from (Cell(path, f"rare {place}", draw) for place in range(6))


def labels_of(y: np.ndarray, how: str, draw: int) -> np.ndarray | None:
    """Labels [N] with -1 where unknown; ``None`` if there are too few rows for them."""
    number, _, kind = how.partition(" ")
    if not kind:
        return draw_labels(y, how, draw)
    generator = np.random.default_rng([500 + draw, len(y)])
    given = np.full(len(y), -1)
    if number == "rare":
        few = generator.permutation(np.unique(y))[int(kind)]
        for code in np.unique(y):
            rows = generator.permutation(np.flatnonzero(y == code))
            given[rows[: 3 if code == few else 20]] = code
        return given
    count = round(len(y) * float(number[:-1]) / 100) if number.endswith("%") else int(number)
    if not 20 <= count <= 0.6 * len(y):
        return None
    rows = generator.permutation(len(y))[:count]
    given[rows] = generator.permutation(y[rows]) if kind == "shuffled" else y[rows]
    if kind == "flipped":
        wrong = rows[: round(0.05 * count)]
        given[wrong] = (y[wrong] + generator.integers(1, y.max() + 1, len(wrong))) % (y.max() + 1)
    return given if len(np.unique(given[rows])) > 1 else None


def keep_cell(cell: Cell, folder: Path, rows: int) -> str:
    """Fit one cell of at most some rows and keep it; what could be said of it in a few words."""
    X, y = load_set(cell.path, rows)
    given = labels_of(y, cell.labels, cell.draw)
    if given is None:
        return "too few rows"
    started = time.process_time()
    kept = families_of(X, y, given, cell.seed)
    kept["seconds"] = np.array(time.process_time() - started)
    unfinished = folder / f"{cell.name}.part"
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **kept)
    unfinished.replace(folder / f"{cell.name}.npz")
    return "kept"


def families_of(X: np.ndarray, y: np.ndarray, given: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """What every family says, from one fit: ``out`` [F, J, C] of the labels held out, ``whole`` [F, H, C] of some rows.

    Codes are the estimator's; a hidden row whose class has no label is -1 in ``truth`` [H].
    """
    from sobgnn import SobolevClassifier
    from sobgnn.estimator import classifier, fit

    seen: list[Any] = []

    def blend_rule(points: Any, labels: Any, members: Any, learned: Any, whole: Any) -> Any:
        seen[:] = [points, labels, list(members), list(learned), list(whole)]
        return rule(points, labels, members, learned, whole)

    rule = fit.blend_rule
    with (
        mock.patch.object(fit, "blend_rule", blend_rule),
        mock.patch.object(classifier, "copies_together", return_value=None),
    ):
        fitted = SobolevClassifier(random_state=seed, device="cpu").fit(X, given)
    points, labels, members, learned, whole = seen
    hidden = np.flatnonzero(given == -1)
    rows = np.random.default_rng(0).permutation(hidden)[:HIDDEN_ROWS]
    weights = fit.expected_of(points, labels)
    return {
        "names": np.array([member.title for member in members]),
        "prior": np.array([weights.get(m.name, 1.0) for m in members]) * [part.prior_factor for part in learned],
        "out": np.stack([part.out_of_fold for part in learned]).astype(np.float32),
        "whole": np.stack([coarse(part[rows].double().numpy()) for part in whole]),
        "truth": np.searchsorted(fitted.classes_, np.where(np.isin(y[rows], fitted.classes_), y[rows], -1))
        - (~np.isin(y[rows], fitted.classes_)),
        "codes": labels.codes,
        "wrong": fitted.classes_[labels.codes] != y[labels.index],
        "weight": labels.weight,
        "fold": labels.fold,
        "judged": labels.judged,
        "chosen": np.array(labels.chosen),
        "kind": np.array([points.mostly_categories, points.many_numbers]),
        "accuracy": np.array((fitted.transduction_ == y)[hidden].mean()),
    }


def coarse(p: np.ndarray) -> np.ndarray:
    """Probabilities in a byte each, within 2 % of 1/2 and 16 % of 1e-4."""
    return np.rint(255 * np.clip(p, 0, 1) ** 0.25).astype(np.uint8)


def fine(q: np.ndarray) -> np.ndarray:
    """The probabilities that :func:`coarse` was given, nearly; rows sum to 1."""
    p = (q.astype(np.float64) / 255) ** 4
    return p / p.sum(axis=-1, keepdims=True)


def read_cells(keep: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every cell that was kept, in a folder or in zip files of one, by name."""
    for file in sorted(keep.glob("*.npz")):
        with np.load(file) as kept:
            yield file.stem, dict(kept)
    for file in sorted(keep.glob("*.zip")):
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                with np.load(BytesIO(archive.read(name))) as kept:
                    yield name.removesuffix(".npz"), dict(kept)


class Decided(NamedTuple):
    """One cell with the rules as they are now: probabilities of labels out of fold, and of hidden rows."""

    name: str
    how: str
    draw: int
    seed: int
    labels: Labels
    wrong: np.ndarray
    truth: np.ndarray
    learned: np.ndarray
    hidden: np.ndarray
    plain: np.ndarray
    shown: np.ndarray
    frequencies: Frequencies

    @property
    def codes(self) -> np.ndarray:
        return self.labels.codes[self.labels.judged]

    @property
    def right(self) -> np.ndarray:
        return self.hidden.argmax(axis=1) == self.truth


def decided(name: str, kept: dict[str, np.ndarray], without: str = "") -> Decided:
    """Blend a cell's families, but for one, and adjust the result to class frequencies."""
    used = kept["names"] != without
    parts, whole = list(kept["out"][used].astype(np.float64)), fine(kept["whole"][used])
    index = np.arange(len(kept["codes"]))
    counted = kept["judged"] | (kept["fold"] < 0)
    labels = Labels(index, kept["codes"], kept["weight"], kept["fold"], whole.shape[2], bool(kept["chosen"]), counted)
    counts = PRIOR_COUNTS * kept["prior"][used] / kept["prior"][used].sum()

    def decide(own: Any, judged: Labels) -> tuple[Blend, float]:
        blend = fit_blend(own, judged, counts)
        return blend, result_temperature(own, blend, judged)

    blend, temperature = decide(parts, labels)
    out = cross_fit(parts, labels, decide)
    plain = out
    if len(out):
        plain = sharpen(blend([torch.from_numpy(part) for part in parts]), temperature).numpy()
    learned = sharpen(blend([torch.from_numpy(part) for part in whole]), temperature).numpy()
    found = class_frequencies("auto", np.arange(labels.classes), learned, out, labels)
    data, how, draw, seed = name.rsplit(".", 3)
    return Decided(
        data, how.replace("_", " "), int(draw), int(seed), labels, kept["wrong"][labels.judged], kept["truth"], learned,
        shift_priors(learned, found.factor), shift_priors(plain, found.factor), shift_priors(out, found.factor), found,
    )  # fmt: skip


def report(cells: Sequence[Decided]) -> None:
    """Print every table that there are cells for."""
    by_how: dict[str, list[Decided]] = defaultdict(list)
    for cell in cells:
        by_how["rare" if cell.how.startswith("rare") else cell.how].append(cell)
    held = {how: [cell for cell in of if cell.labels.folds] for how, of in by_how.items()}
    random = {how: of for how, of in held.items() if how.endswith("random")}
    show_accuracy(random)
    show_guessing({how: of for how, of in held.items() if how.endswith(("random", "shuffled"))})
    show_accepted(random)
    show_suspects({how: of for how, of in held.items() if how in ("300 flipped", "300 random")})
    show_frequencies({how: of for how, of in by_how.items() if not how.endswith(("shuffled", "flipped"))})
    show_seeds(by_how["5"])


def show(title: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    """A table in Markdown; numbers with one digit."""
    if rows:
        print(f"\n{title}\n\n| {columns} |", "|---" * (columns.count("|") + 1) + "|", sep="\n")
    for row in rows:
        print("| " + " | ".join(f"{v:.1f}" if isinstance(v, float) else str(v) for v in row) + " |")


def counted(of: Sequence[Decided]) -> tuple[int, int]:
    """The number of data sets, and of fits."""
    return len({cell.name for cell in of}), len(of)


def show_accuracy(by_how: dict[str, list[Decided]]) -> None:
    """Estimated accuracy minus that on hidden rows, and how often the 95 % interval holds the latter."""
    rows = []
    for how, of in sorted(by_how.items()):
        found = []
        for cell in of:
            shares = np.bincount(cell.labels.codes, minlength=cell.labels.classes) / len(cell.labels.codes)
            assumed = cell.frequencies.assumed if cell.labels.chosen else shares
            estimate, (low, high), _ = estimate_accuracy(cell.shown, cell.labels, assumed)
            truth = cell.right.mean()
            before = (cell.plain.argmax(axis=1) == cell.codes).mean()
            off = estimate - truth
            found.append((before - truth, off, abs(off), (high - low) / 2, low <= truth <= high))
        values = 100 * np.array(found)
        error = values[:, 1].std() / len(values) ** 0.5
        rows.append((how, *counted(of), *values.mean(axis=0)[:2], error, *values.mean(axis=0)[2:]))
    columns = (
        "labels | data sets | fits | of plain share | of estimate | its error | distance | half interval | covered %"
    )
    show("Estimated accuracy minus accuracy on hidden rows, in points", columns, rows)


def show_guessing(by_how: dict[str, list[Decided]]) -> None:
    """Verdicts by kind of labels, and the true ones that are called guessing."""
    rows: list[Any] = []
    claims, missed = [], dict.fromkeys([cell.name for of in by_how.values() for cell in of], 0)
    for how, of in sorted(by_how.items()):
        verdicts = [compare_with_chance(cell.codes, cell.shown) for cell in of]
        outcomes = [verdict.outcome for verdict in verdicts]
        below = [sum(verdict.p_value < level for verdict in verdicts) for level in (0.05, 0.01, 0.001)]
        rows.append((how, *counted(of), *(outcomes.count(one) for one in ("guessing", "unknown", "better")), *below))
        for cell, outcome in zip(of, outcomes, strict=True):
            if how.endswith("shuffled"):
                claims += [cell.name] * (outcome == "better")
            elif cell.right.mean() > np.bincount(cell.truth[cell.truth >= 0]).max() / len(cell.truth) + _CLEAR:
                missed[cell.name] += outcome == "guessing"
    show(
        "Better than guessing",
        "labels | data sets | fits | guessing | unknown | better | p < 0.05 | 0.01 | 0.001",
        rows,
    )
    print("\nShuffled but better:", ", ".join(claims) or "none")
    found = ", ".join(f"{name} {count}" for name, count in missed.items() if count)
    print(f"Guessing, though {_CLEAR:.0%} more hidden rows are right than are of the largest class:", found or "none")


def show_accepted(by_how: dict[str, list[Decided]]) -> None:
    """How many hidden rows are accepted, and how often at most as many of them are wrong as promised."""
    rows = []
    for how, of in sorted(by_how.items()):
        for target in TARGETS:
            shares, errors = [], []
            for cell in of:
                right, confidence = cell.shown.argmax(axis=1) == cell.codes, cell.hidden.max(axis=1)
                found = find_acceptance(cell.shown.max(axis=1), right, target, confidence)
                taken = found.accepts(confidence)
                shares.append(taken.mean())
                errors.append(1 - cell.right[taken].mean() if taken.any() else np.nan)
            some = np.isfinite(errors)
            kept = np.nan_to_num(errors) <= 1 - target + 1e-9
            of_some = 100 * float(kept[some].mean()) if some.any() else "none"
            share, promise = 100 * float(np.mean(shares)), 100 * float(kept.mean())
            rows.append((how, str(target), *counted(of), int(some.sum()), share, promise, of_some))
    columns = "labels | target | data sets | fits | accept any | share accepted % | kept % | of those that accept any %"
    show("Accepted predictions", columns, rows)


def show_suspects(by_how: dict[str, list[Decided]]) -> None:
    """Precision and recall of labels that look wrong; beside cleanlab on the same probabilities, if it is installed."""
    ways: dict[str, Callable[[Decided], np.ndarray]] = {"suspects()": flagged}
    if importlib.util.find_spec("cleanlab"):
        ways["cleanlab"] = flagged_by_cleanlab
    rows = []
    for how, of in sorted(by_how.items()):
        for way, flag in ways.items():
            found = [flag(cell) for cell in of]
            wrong = np.array([cell.wrong.sum() for cell in of])
            hits = np.array([cell.wrong[rows].sum() for cell, rows in zip(of, found, strict=True)])
            listed = np.array([len(rows) for rows in found])
            precision = 100 * float((hits[listed > 0] / listed[listed > 0]).mean()) if listed.any() else 100.0
            recall = 100 * float((hits / wrong.clip(min=1)).mean())
            f1 = 100 * float((2 * hits / (listed + wrong).clip(min=1)).mean())
            none = int((listed == 0).sum())
            rows.append((how, way, *counted(of), float(listed.mean()), none, precision, recall, f1))
    columns = "labels | | data sets | fits | labels listed | fits with none | precision % | recall % | F1 %"
    show("Labels that look wrong", columns, rows)


def flagged(cell: Decided) -> np.ndarray:
    """Suspects, as numbers of judged labels."""
    found = suspect_labels(np.arange(len(cell.codes)), cell.codes, cell.shown, np.arange(cell.labels.classes))
    return np.array([one.row for one in found], dtype=np.int64)


def flagged_by_cleanlab(cell: Decided) -> np.ndarray:
    """The issues that cleanlab finds; it needs a label of every class."""
    from cleanlab.filter import find_label_issues

    classes, codes = np.unique(cell.codes, return_inverse=True)
    p = cell.shown[:, classes] / cell.shown[:, classes].sum(axis=1, keepdims=True)
    return np.asarray(find_label_issues(codes, p, return_indices_ranked_by="self_confidence", n_jobs=1))


def show_frequencies(by_how: dict[str, list[Decided]]) -> None:
    """Accuracy on hidden rows with and without the rule for class frequencies; recall of the class with 3 labels."""
    rows = []
    for how, of in sorted(by_how.items()):
        firsts = [cell for cell in of if not cell.seed]
        values = [(cell.learned.argmax(axis=1) == cell.truth, cell.right) for cell in firsts]
        mean = 100 * np.mean([[right.mean() for right in pair] for pair in values], axis=0)
        recall = ""
        if how == "rare":
            few = [much_fewer(cell.labels.codes, cell.labels.classes).argmax() for cell in firsts]
            of_few = zip(values, firsts, few, strict=True)
            recalls = [[right[cell.truth == c].mean() for right in pair] for pair, cell, c in of_few]
            recall = " → ".join(f"{v:.1f}" for v in 100 * np.mean(recalls, axis=0))
        rows.append((how, *counted(firsts), *mean, recall))
    columns = "labels | data sets | fits | accuracy without % | with % | recall of the class with 3 labels %"
    show("Class frequencies", columns, rows)


def show_left_out(keep: Path) -> None:
    """What each family adds to the accuracy on hidden rows, or to the recall of the class with 3 labels, in points."""

    def score(cell: Decided) -> float:
        few = much_fewer(cell.labels.codes, cell.labels.classes)
        rows = cell.truth == few.argmax() if cell.how.startswith("rare") else slice(None)
        return 100 * float(cell.right[rows].mean())

    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, kept in read_cells(keep):
        whole = decided(name, kept)
        if not whole.how.endswith(("shuffled", "flipped")) and not whole.seed:
            for family in kept["names"].tolist():
                how = "rare, recall" if whole.how.startswith("rare") else whole.how
                gains[family, how].append(score(whole) - score(decided(name, kept, without=family)))
    rows = [
        (family, how, len(of), f"{np.mean(of):+.2f}", min(of), max(of)) for (family, how), of in sorted(gains.items())
    ]
    show("What a family adds, in points", "family | labels | fits | mean | least | most", rows)


def show_seeds(cells: Sequence[Decided]) -> None:
    """The difference between the best and the worst of five seeds, by data set and draw of labels."""
    by_labels: dict[tuple[str, int], list[Decided]] = defaultdict(list)
    for cell in cells:
        by_labels[cell.name, cell.draw].append(cell)
    rows = []
    for (name, draw), of in sorted(by_labels.items()):
        if len(of) > 1:
            pairs = [[(cell.learned.argmax(axis=1) == cell.truth).mean(), cell.right.mean()] for cell in of]
            values = 100 * np.array(pairs)
            rows.append((name, draw, len(of), float(values[:, 1].mean()), *np.ptp(values, axis=0)))
    columns = "data set | draw | seeds | mean accuracy % | spread without | spread with"
    show("The same labels, 5 per class, under several seeds", columns, rows)


def run(asked: argparse.Namespace) -> None:
    """Fit the cells that are not there yet, until the time is up."""
    paths = [path for folder in asked.sets.split(",") for path in sorted(Path(folder).glob("*.npz"))]
    names = set(asked.names.split(",")) if asked.names else {path.stem for path in paths}
    paths = [path for path in paths if path.stem in names]
    cells = list(cells_of(asked.cells.split(","), paths, asked.draws, asked.first))
    cells = [cell for cell in cells if not (asked.keep / f"{cell.name}.npz").exists()]
    print(len(cells), "cells to fit", flush=True)
    started = time.time()
    keep = partial(keep_cell, folder=asked.keep, rows=asked.rows)
    for done, (cell, said) in enumerate(run_cases(keep, cells, asked.jobs, asked.limit), 1):
        if said != "kept" or done % 50 == 0:
            print(f"{time.time() - started:.0f} s, {done}: {cell.name} {said!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="", help="folders of npz files, with commas; without one, nothing is fitted")
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--cells", default="suite")
    parser.add_argument("--names", default="", help="data sets, with commas; default: all")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--left-out", action="store_true", help="what each family adds")
    parser.add_argument("--rows", type=int, default=1500, help="most rows of a data set")
    parser.add_argument("--first", type=int, default=0, help="first draw")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    if asked.sets:
        run(asked)
    elif asked.left_out:
        show_left_out(asked.keep)
    else:
        report([decided(name, kept) for name, kept in read_cells(asked.keep)])


if __name__ == "__main__":
    main()
