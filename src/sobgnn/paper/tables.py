"""Summaries of results as tables: cells beside the paper's numbers, paired differences, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from sobgnn.paper.models import MODELS
from sobgnn.paper.studies import DECOUPLED, OURS
from sobgnn.paper.summary import Summary

TRIALS, SEARCH_SEEDS, SEEDS, EPOCHS = 100, 5, 50, 500  # a cell with others says so
_DATASETS = ("cancer", "cancer-binary", "20news", "20news-stripped", "har", "isolet")
# Accuracy in percent and the ± after it, as published.
_PUBLISHED = {
    "Cheby": {"Cancer": (87.55, 3.91), "20News": (70.36, 1.14), "HAR": (73.14, 7.01), "Isolet": (69.70, 1.47)},
    "GCN": {"Cancer": (76.71, 4.47), "20News": (51.76, 2.11), "HAR": (66.26, 4.91), "Isolet": (55.55, 2.72)},
    "GAT": {"Cancer": (73.51, 4.87), "20News": (48.72, 2.21), "HAR": (59.13, 6.30), "Isolet": (60.00, 2.21)},
    "SIGN": {"Cancer": (89.55, 0.38), "20News": (71.79, 0.25), "HAR": (90.98, 0.25), "Isolet": (84.02, 0.30)},
    "SGC": {"Cancer": (72.80, 4.71), "20News": (54.68, 1.99), "HAR": (42.19, 3.44), "Isolet": (41.55, 1.91)},
    "ClusterGCN": {"Cancer": (74.45, 5.37), "20News": (60.56, 2.18), "HAR": (57.70, 5.48), "Isolet": (63.99, 2.24)},
    "SuperGAT": {"Cancer": (70.56, 5.14), "20News": (57.52, 1.93), "HAR": (56.04, 5.32), "Isolet": (58.49, 2.27)},
    "Transformer": {"Cancer": (71.10, 5.45), "20News": (57.48, 2.29), "HAR": (66.01, 6.10), "Isolet": (66.24, 2.39)},
    "S-SobGNN": {"Cancer": (93.11, 0.45), "20News": (72.18, 0.32), "HAR": (92.85, 0.58), "Isolet": (86.17, 0.34)},
}
# The paper does not state which classes its Cancer column has; it is shown beside both versions of the data set here.
_COLUMNS = {
    "cancer": "Cancer",
    "cancer-binary": "Cancer",
    "20news": "20News",
    "20news-stripped": "20News",
    "har": "HAR",
    "isolet": "Isolet",
}


def published(model: str, dataset: str) -> tuple[float, float] | None:
    """Mean and ± of a cell of the paper's table, if it has one."""
    return _PUBLISHED.get(model, {}).get(_COLUMNS.get(dataset, ""))


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Distinct names, the known ones first and in their order."""
    place = {name: number for number, name in enumerate(known)}
    return sorted(dict.fromkeys(names), key=lambda name: place.get(name, len(place)))


def models_of(cells: Sequence[Summary]) -> list[str]:
    """The models of some cells, in the paper's order, others after them."""
    return in_order((cell.model for cell in cells), MODELS)


def datasets_of(cells: Sequence[Summary]) -> list[str]:
    """The data sets of some cells, in the paper's order, others after them."""
    return in_order((cell.dataset for cell in cells), _DATASETS)


def shortfall(cell: Summary, seeds: int = SEEDS, trials: int = TRIALS) -> str:
    """How a cell deviates from the protocol, in words; empty if it does not."""
    counts = [(len(cell.accuracies), seeds, "seed"), (cell.most_epochs, EPOCHS, "step")]
    if cell.trial >= 0:
        counts = [(cell.trials, trials, "trial"), (cell.search_seeds, SEARCH_SEEDS, "search seed"), *counts]
    parts = [f"{count} {what}{'s' * (count != 1)}" for count, usual, what in counts if count != usual]
    parts += ["search went on"] * cell.overtaken + [cell.data] * bool(cell.data)
    return ", ".join(parts)


def entry(cell: Summary | None, seeds: int = SEEDS, trials: int = TRIALS, *, best: bool = False) -> str:
    """A readable cell: mean ± margin, bold if it is the best, and how it deviates from the protocol in parentheses."""
    if cell is None:
        return "–"
    interval, short, bold = cell.accuracy, shortfall(cell, seeds, trials), "**" * best
    return f"{bold}{interval.mean:.2f} ± {interval.margin:.2f}{bold}" + (f" ({short})" if short else "")


def difference(ours: Summary | None, other: Summary | None) -> str:
    """Ours minus another over their common seeds: mean and interval in points."""
    found = ours.minus(other) if ours is not None and other is not None else None
    if found is None:
        return "–"
    (mean, low, high), count = found
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" + (f" ({count} seeds)" if count < SEEDS else "")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table, and an empty one."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:], ""]


def to_csv(cells: Sequence[Summary]) -> str:
    """One line for each cell, with everything that is in the Markdown tables, and what each of ours is above it."""
    out = io.StringIO()
    head = [
        "study", "dataset", "labels", "model", "variant", "mean", "low", "high", "margin", "seeds", "trials",
        "search_seeds", "paper_mean", "paper_margin", "ours_minus_mean", "ours_minus_low", "ours_minus_high",
        "decoupled_minus_mean", "decoupled_minus_low", "decoupled_minus_high", "validation", "trial", "setting",
        "trainings", "seconds",
    ]  # fmt: skip
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    plain = {(c.model, c.study, c.dataset, c.labels): c for c in cells if c.variant == ""}
    for cell in cells:
        interval, gaps = cell.accuracy, []
        for model in (OURS, DECOUPLED):
            reference = plain.get((model, cell.study, cell.dataset, cell.labels))
            paired = reference.minus(cell) if reference is not None else None
            gaps += [f"{x:.4f}" for x in paired[0]] if paired else [""] * 3
        paper = (published(cell.model, cell.dataset) if cell.study == "table1" else None) or ("", "")
        writer.writerow(
            [cell.study, cell.dataset, cell.labels, cell.model, cell.variant]
            + [f"{x:.4f}" for x in (*interval, interval.margin)]
            + [len(cell.accuracies), cell.trials, cell.search_seeds, *paper, *gaps, f"{100 * cell.validation:.4f}"]
            + [cell.trial, json.dumps(cell.setting), cell.trainings, f"{cell.seconds:.2f}"]
        )
    return out.getvalue()
