"""Claim: every family and every rule pays for itself, and the estimated accuracy is neither too high nor too sure.

    python -m benchmarks.rules --sets FOLDER[,FOLDER] --keep CELLS [--cells suite,seeds] [--jobs 16] [--limit 480]
    python -m benchmarks.rules --keep CELLS [--left-out]

FOLDER holds one npz per data set (``benchmarks.suite_sets``, ``suite_more``, ``suite_keel``). Each cell is one fit; it
keeps what every family says of the labeled rows out of fold and of at most 800 hidden rows, so that shares,
temperatures, class frequencies and scores can be decided again in seconds: the second command does so with the rules as
they are now. A stopped run resumes. Cells:

    suite      5 and 20 labels per class and 10 % of the rows, as in ``benchmarks.suite``
    few        1, 2 and 3 labels per class, likewise
    seeds      the labels of the first draw at 5 per class under four further seeds
    random     60 labels, and 10 % of the rows, drawn at random
    shuffled   60 and 150 labels at random of 1,000 rows, shuffled
    flipped    300 labels at random, none or 5 % of which are of another class instead
    rare       20 labels of each class but one, which has 3
"""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.cases import load_set, run_cases
from benchmarks.suite import draw_labels

FAMILIES = ("sobolev", "diffusion", "poisson", "linear", "gaussian", "kernel", "forests")
HIDDEN_ROWS = 800
RARE = ("digits", "cancer", "isolet", "har", "segment", "mnist")
SHUFFLED_ROWS = 1000


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
                    yield from (Cell(path, "5", draw, seed) for seed in range(1, 5))
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


def keep_cell(cell: Cell, folder: Path) -> str:
    """Fit one cell and keep it; what could be said of it in a few words."""
    rows = SHUFFLED_ROWS if cell.labels.endswith("shuffled") else 10**9
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

    def blend_rule(problem: Any, labels: Any, members: Any, parts: Any) -> Any:
        seen[:] = [problem, labels, list(members), list(parts)]
        return rule(problem, labels, members, parts)

    rule, usual = fit.blend_rule, classifier.default_families
    with (
        mock.patch.object(fit, "blend_rule", blend_rule),
        mock.patch.object(classifier, "held_together", return_value=None),
        mock.patch.object(classifier, "default_families", lambda *of: [f for f in usual(*of) if f in FAMILIES]),
    ):
        fitted = SobolevClassifier(smoothing=0.0, random_state=seed, device="cpu").fit(X, given)
    problem, labels, members, parts = seen
    hidden = np.flatnonzero(given == -1)
    rows = np.random.default_rng(0).permutation(hidden)[:HIDDEN_ROWS]
    weights = fit.expected_of(problem, labels)
    return {
        "names": np.array([member.title for member in members]),
        "prior": np.array([weights.get(m.family.name, 1.0) * getattr(m.fitted, "trust", 1.0) for m in members]),
        "out": np.stack([labels.out_of_fold(part) for part in parts]).astype(np.float32),
        "whole": np.stack([coarse(part[-1][rows].double().numpy()) for part in parts]),
        "truth": np.searchsorted(fitted.classes_, np.where(np.isin(y[rows], fitted.classes_), y[rows], -1))
        - (~np.isin(y[rows], fitted.classes_)),
        "codes": labels.codes,
        "wrong": fitted.classes_[labels.codes] != y[labels.index],
        "weight": labels.weight,
        "fold": labels.fold,
        "judged": labels.judged,
        "chosen": np.array(labels.chosen),
        "kind": np.array([problem.mostly_categories, problem.many_numbers]),
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


def run(asked: argparse.Namespace) -> None:
    """Fit the cells that are not there yet, until the time is up."""
    paths = [path for folder in asked.sets.split(",") for path in sorted(Path(folder).glob("*.npz"))]
    names = set(asked.names.split(",")) if asked.names else {path.stem for path in paths}
    paths = [path for path in paths if path.stem in names]
    cells = list(cells_of(asked.cells.split(","), paths, asked.draws, asked.first))
    cells = [cell for cell in cells if not (asked.keep / f"{cell.name}.npz").exists()]
    print(len(cells), "cells to fit", flush=True)
    started = time.time()
    keep = partial(keep_cell, folder=asked.keep)
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
    parser.add_argument("--first", type=int, default=0, help="first draw")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    if asked.sets:
        run(asked)


if __name__ == "__main__":
    main()
