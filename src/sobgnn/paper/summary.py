"""Lines of results -> one summary for each cell: which setting won, and its results with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sobgnn.paper.results import Record, best_trial, exact_mean

CellKey = tuple[str, str, str, str, str]

RESAMPLES = 1000
_SEED = 20221


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


@dataclass
class Summary:
    """One cell.

    Attributes:
        variant: What differs from the plain model.
        trial: The setting that won, -1 if none was searched.
        trials: Number of settings searched with all their seeds.
        search_seeds: Number of seeds of each.
        accuracies: Seed -> test accuracy of the winning setting.
        validation: Its mean validation accuracy in the search, or over the final seeds if none was searched.
        overtaken: Whether the search has since found a better setting that was not tested.
        trainings: Number of lines in the cell, search and test.
        seconds: Their total time.
        measures: What else was measured in the final stage, averaged.
        most_epochs: Number of steps that every training could have made.
        data: How the data of its final seeds deviates from the protocol's, in words.
    """

    study: str
    dataset: str
    labels: str
    model: str
    variant: str
    trial: int
    setting: dict[str, Any]
    trials: int
    search_seeds: int
    accuracies: dict[int, float]
    validation: float
    overtaken: bool
    trainings: int
    seconds: float
    most_epochs: int
    data: str
    measures: dict[str, float] = field(default_factory=dict)

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


def summarize(records: Iterable[Record]) -> list[Summary]:
    """One summary for each cell that has final seeds, in the order of the lines."""
    cells: dict[CellKey, list[Record]] = {}
    for record in records:
        key = (record.study, record.dataset, record.labels, record.model, record.variant)
        cells.setdefault(key, []).append(record)
    return [_summary(key, lines) for key, lines in cells.items() if any(_tested(line) for line in lines)]


def _tested(line: Record) -> bool:
    return line.stage != "search" and line.test_accuracy is not None


def _summary(key: CellKey, lines: list[Record]) -> Summary:
    search: dict[int, dict[int, float]] = {}
    test: dict[int, dict[int, Record]] = {}
    for line in lines:
        if line.stage == "search":
            search.setdefault(line.trial, {})[line.seed] = line.validation_accuracy or 0.0
        elif _tested(line):
            test.setdefault(line.trial, {})[line.seed] = line
    seeds = {seed for scores in search.values() for seed in scores}
    means = {t: exact_mean(scores.values()) for t, scores in sorted(search.items()) if len(scores) == len(seeds)}
    best = best_trial(means) if means else next(iter(test))
    trial = best if best in test else best_trial({t: means.get(t, 0.0) for t in test})
    chosen = list(test[trial].values())
    names = sorted({name for line in chosen for name in line.measures})
    measures = {name: [line.measures[name] for line in chosen if name in line.measures] for name in names}
    final = [line.validation_accuracy or 0.0 for line in chosen]
    return Summary(
        *key,
        trial=trial,
        setting=dict(chosen[0].setting),
        trials=len(means),
        search_seeds=len(seeds),
        accuracies={line.seed: float(line.test_accuracy or 0.0) for line in chosen},
        validation=means.get(trial, sum(final) / len(final)),
        overtaken=trial != best,
        trainings=len(lines),
        seconds=sum(line.seconds for line in lines),
        most_epochs=min(line.most_epochs for line in lines),
        data="; ".join(sorted({line.data for line in chosen} - {""})),
        measures={name: sum(values) / len(values) for name, values in measures.items()},
    )
