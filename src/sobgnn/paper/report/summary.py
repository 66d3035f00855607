"""Lines of results -> one summary for each cell: which setting won, and its results on the final seeds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sobgnn.paper.protocol.results import Record
from sobgnn.paper.protocol.statistics import Interval, bootstrap, exact_mean

CellKey = tuple[str, str, str, str, str]


@dataclass
class Summary:
    """One cell.

    Attributes:
        study: Which study.
        dataset: Its name.
        labels: Number of labels for training.
        model: Its name.
        variant: What differs from the plain model.
        trial: The setting that won, -1 if none was searched.
        setting: Its hyperparameters.
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
    trial: int = -1
    setting: dict[str, Any] = field(default_factory=dict)
    trials: int = 0
    search_seeds: int = 0
    accuracies: dict[int, float] = field(default_factory=dict)
    validation: float = float("nan")
    overtaken: bool = False
    trainings: int = 0
    seconds: float = 0.0
    measures: dict[str, float] = field(default_factory=dict)
    most_epochs: int = 500
    data: str = ""

    @property
    def accuracy(self) -> Interval:
        """Test accuracy in percent over the final seeds."""
        return bootstrap([100 * self.accuracies[seed] for seed in sorted(self.accuracies)])


def summarize(records: Iterable[Record]) -> list[Summary]:
    """One summary for each cell that has final seeds, in the order of the lines."""
    cells: dict[CellKey, list[Record]] = {}
    for record in records:
        key = (record.study, record.dataset, record.labels, record.model, record.variant)
        cells.setdefault(key, []).append(record)
    return [summary for key, lines in cells.items() if (summary := _summary(key, lines)).accuracies]


def _summary(key: CellKey, lines: list[Record]) -> Summary:
    search: dict[int, dict[int, float]] = {}
    test: dict[int, dict[int, Record]] = {}
    for line in lines:
        if line.stage == "search":
            search.setdefault(line.trial, {})[line.seed] = line.validation_accuracy or 0.0
        elif line.test_accuracy is not None:
            test.setdefault(line.trial, {})[line.seed] = line
    seeds = {seed for scores in search.values() for seed in scores}
    means = {t: exact_mean(scores.values()) for t, scores in sorted(search.items()) if len(scores) == len(seeds)}
    summary = Summary(
        *key,
        trials=len(means),
        search_seeds=len(seeds),
        trainings=len(lines),
        seconds=sum(line.seconds for line in lines),
        most_epochs=min(line.most_epochs for line in lines),
    )
    if not test:
        return summary
    best = max(means, key=lambda trial: (means[trial], -trial)) if means else next(iter(test))
    trial = best if best in test else max(test, key=lambda t: (means.get(t, 0.0), -t))
    chosen = test[trial]
    summary.trial, summary.overtaken = trial, trial != best
    summary.setting = dict(next(iter(chosen.values())).setting)
    summary.data = "; ".join(sorted({line.data for line in chosen.values()} - {""}))
    summary.accuracies = {seed: float(line.test_accuracy or 0.0) for seed, line in chosen.items()}
    final = [line.validation_accuracy or 0.0 for line in chosen.values()]
    summary.validation = means.get(trial, sum(final) / len(final))
    for name in sorted({name for line in chosen.values() for name in line.measures}):
        values = [line.measures[name] for line in chosen.values() if name in line.measures]
        summary.measures[name] = sum(values) / len(values)
    return summary
