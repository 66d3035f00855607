"""Results: JSON lines, one for each training; their summary, a winner and intervals for each cell; the paper's own."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sobgnn.paper.models import MODELS

RESAMPLES = 1000
_SEED = 20221
# The data sets in the order of the tables, with their columns of the paper's. It does not state which classes its first
# one, Cancer, has; it is shown beside both versions of the data set here.
_COLUMNS = {"cancer": 0, "cancer-binary": 0, "20news": 1, "20news-stripped": 1, "har": 2, "isolet": 3}
# Accuracy in percent and the ± after it, as published, on Cancer, 20News, HAR and Isolet.
_PUBLISHED = {
    "Cheby": ((87.55, 3.91), (70.36, 1.14), (73.14, 7.01), (69.70, 1.47)),
    "GCN": ((76.71, 4.47), (51.76, 2.11), (66.26, 4.91), (55.55, 2.72)),
    "GAT": ((73.51, 4.87), (48.72, 2.21), (59.13, 6.30), (60.00, 2.21)),
    "SIGN": ((89.55, 0.38), (71.79, 0.25), (90.98, 0.25), (84.02, 0.30)),
    "SGC": ((72.80, 4.71), (54.68, 1.99), (42.19, 3.44), (41.55, 1.91)),
    "ClusterGCN": ((74.45, 5.37), (60.56, 2.18), (57.70, 5.48), (63.99, 2.24)),
    "SuperGAT": ((70.56, 5.14), (57.52, 1.93), (56.04, 5.32), (58.49, 2.27)),
    "Transformer": ((71.10, 5.45), (57.48, 2.29), (66.01, 6.10), (66.24, 2.39)),
    "S-SobGNN": ((93.11, 0.45), (72.18, 0.32), (92.85, 0.58), (86.17, 0.34)),
}


class CellKey(NamedTuple):
    """What the trainings of one cell have in common."""

    study: str
    dataset: str
    labels: str
    model: str
    variant: str


Key = tuple[CellKey, str, int, int]  # cell, stage, trial, seed


@dataclass(frozen=True)
class Record:
    """One training.

    Args:
        study: ``"table1"``, ``"few-labels"`` or ``"ablations"``.
        stage: ``"search"``, or ``"test"`` for the final seeds.
        labels: What was trained on: ``"10%"`` or, for example, ``"5/class"``.
        variant: ``""``, or what an experiment changed: ``"head=paper"``, ``"alpha=3"``.
        trial: Number of the setting in the model's published list; -1 for settings that are not from it.
        seed: Draws the training points and the initial weights.
        test_accuracy: That of the same weights as ``validation_accuracy``; ``None`` in the search.
        best_epoch: Step of the kept weights.
        epochs: Number of steps of its batch.
        members: Number of trainings in its batch.
        seconds: Its share of the batch's time.
        measures: What else a study measures, for example bytes.
        most_epochs: Number of steps that it could have made.
        data: How its data deviates from the protocol's, in words (``Prepared.deviation``).
    """

    study: str
    stage: str
    dataset: str
    labels: str
    model: str
    variant: str
    trial: int
    setting: dict[str, Any]
    seed: int
    validation_accuracy: float | None
    test_accuracy: float | None
    best_epoch: int
    epochs: int
    members: int
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"
    measures: dict[str, float] = field(default_factory=dict)
    most_epochs: int = 500
    data: str = ""

    @property
    def cell(self) -> CellKey:
        """Which cell it belongs to."""
        return CellKey(self.study, self.dataset, self.labels, self.model, self.variant)

    @property
    def key(self) -> Key:
        """The unique key of a line in a results file."""
        return self.cell, self.stage, self.trial, self.seed


def read(path: Path) -> Iterator[Record]:
    """The records of a file, or of all ``*.jsonl`` and ``*.jsonl.gz`` of a folder; a truncated last line is ignored.

    If a key occurs twice, the first one counts.
    """
    if path.is_dir():
        files = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
    else:
        files = [path] if path.exists() else []
    seen: set[Key] = set()
    for file in files:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        # A line counts only with its newline: what follows the last newline was truncated during a write.
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].decode().splitlines(), 1):
            try:
                record = Record(**json.loads(line))
            except (json.JSONDecodeError, TypeError) as error:
                raise ValueError(f"{file}, line {number} is not a result: {error}. Remove the line.") from error
            if record.key not in seen:
                seen.add(record.key)
                yield record


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a file, after removing a truncated last line, and wait until they are on disk.

    A killed run loses nothing that it has written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(asdict(record), separators=(",", ":")) + "\n" for record in records)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """The larger distance from the mean to a bound: what a table prints after ±."""
        return max(self.mean - self.low, self.high - self.mean)


def bootstrap(values: Sequence[float], resamples: int = RESAMPLES) -> Interval:
    """The percentile interval of the mean: 2.5 % and 97.5 % of the means of ``resamples`` draws with replacement.

    The same values in the same order give the same interval.
    """
    array = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(_SEED).integers(len(array), size=(resamples, len(array)))
    low, high = np.percentile(array[draws].mean(axis=1), [2.5, 97.5])
    return Interval(float(array.mean()), float(low), float(high))


def exact_mean(values: Collection[float]) -> float:
    """The mean, rounded once: equal settings stay equal for any order of their seeds and any version of Python."""
    return math.fsum(values) / len(values)


def best_trial(scores: Mapping[int, Collection[float]]) -> int:
    """The setting with the highest mean score; ties go to the lower number."""
    return max(scores, key=lambda trial: (exact_mean(scores[trial]), -trial))


class Summary:
    """One cell: the final trainings of the setting that won, and how it won.

    Args:
        lines: All of the cell's, of which some are final.

    Attributes:
        variant: What differs from the plain model.
        trial: The setting that won, -1 if none was searched.
        trials: Number of settings searched with all their seeds.
        search_seeds: Number of seeds of each.
        overtaken: Whether the search has since found a better setting that was not tested.
        accuracies: Seed -> test accuracy of the winning setting.
        validation: Its mean validation accuracy in the search, or over the final seeds if none was searched.
        trainings: Number of lines, search and test.
        seconds: Their total time.
        most_epochs: Number of steps that every training could have made.
        data: How the data of the final seeds deviates from the protocol's, in words.
        measures: What else was measured in the final stage, averaged.
    """

    def __init__(self, lines: Sequence[Record]) -> None:
        self.study, self.dataset, self.labels, self.model, self.variant = lines[0].cell
        search: dict[int, dict[int, float]] = {}
        test: dict[int, dict[int, Record]] = {}
        for line in lines:
            if line.stage == "search":
                search.setdefault(line.trial, {})[line.seed] = line.validation_accuracy or 0.0
            elif line.test_accuracy is not None:
                test.setdefault(line.trial, {})[line.seed] = line
        seeds = {seed for scores in search.values() for seed in scores}
        searched: dict[int, Collection[float]] = {
            trial: each.values() for trial, each in sorted(search.items()) if len(each) == len(seeds)
        }
        best = best_trial(searched) if searched else next(iter(test))
        self.trial = best if best in test else best_trial({t: searched.get(t, [0.0]) for t in test})
        self.trials, self.search_seeds, self.overtaken = len(searched), len(seeds), self.trial != best
        chosen = list(test[self.trial].values())
        self.setting = dict(chosen[0].setting)
        self.accuracies = {line.seed: float(line.test_accuracy or 0.0) for line in chosen}
        final = [line.validation_accuracy or 0.0 for line in chosen]
        tried = self.trial in searched
        self.validation = exact_mean(searched[self.trial]) if tried else sum(final) / len(final)
        self.trainings, self.seconds = len(lines), sum(line.seconds for line in lines)
        self.most_epochs = min(line.most_epochs for line in lines)
        self.data = "; ".join(sorted({line.data for line in chosen} - {""}))
        measured = {
            name: [line.measures[name] for line in chosen if name in line.measures]
            for name in sorted({name for line in chosen for name in line.measures})
        }
        self.measures = {name: exact_mean(values) for name, values in measured.items()}

    @property
    def accuracy(self) -> Interval:
        """Test accuracy in percent over the final seeds."""
        return bootstrap([100 * self.accuracies[seed] for seed in sorted(self.accuracies)])

    def minus(self, other: Summary) -> tuple[Interval, int] | None:
        """This one's accuracy minus another's in points, seed by seed, over the seeds of both; and their number.

        A seed draws the same training points for every model, so what all models gain or lose from it cancels.
        """
        shared = sorted(set(self.accuracies) & set(other.accuracies))
        if not shared or self is other:
            return None
        interval = bootstrap([self.accuracies[seed] - other.accuracies[seed] for seed in shared])
        return Interval(*(100 * value for value in interval)), len(shared)


def summarize(records: Sequence[Record]) -> list[Summary]:
    """One summary for each cell that has final seeds, in the order of the lines."""
    cells: dict[CellKey, list[Record]] = {}
    for record in records:
        cells.setdefault(record.cell, []).append(record)
    tested = {record.cell for record in records if record.stage != "search" and record.test_accuracy is not None}
    return [Summary(lines) for cell, lines in cells.items() if cell in tested]


def published(model: str, dataset: str) -> tuple[float, float] | None:
    """Mean and ± of a cell of the paper's table, if it has one."""
    known = model in _PUBLISHED and dataset in _COLUMNS
    return _PUBLISHED[model][_COLUMNS[dataset]] if known else None


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Distinct names, the known ones first and in their order."""
    place = {name: number for number, name in enumerate(known)}
    return sorted(dict.fromkeys(names), key=lambda name: place.get(name, len(place)))


def models_of(cells: Sequence[Summary]) -> list[str]:
    """The models of some cells, in the paper's order, others after them."""
    return in_order((cell.model for cell in cells), MODELS)


def datasets_of(cells: Sequence[Summary]) -> list[str]:
    """The data sets of some cells, in the paper's order, others after them."""
    return in_order((cell.dataset for cell in cells), _COLUMNS)
