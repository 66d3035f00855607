"""Summaries of results as tables: Markdown beside the paper's numbers, and CSV. Trains nothing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from sobgnn.paper.models import MODELS
from sobgnn.paper.protocol.results import Record
from sobgnn.paper.protocol.statistics import Interval, paired_difference
from sobgnn.paper.protocol.studies import DECOUPLED, OURS
from sobgnn.paper.report.published import published
from sobgnn.paper.report.summary import Summary

TRIALS, SEARCH_SEEDS, SEEDS, EPOCHS = 100, 5, 50, 500  # a cell with fewer says so
_DATASETS = ("cancer", "cancer-binary", "20news", "20news-stripped", "har", "isolet")
HEAD = "head=paper"


def in_order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Distinct names, the known ones first and in their order."""
    distinct = list(dict.fromkeys(names))
    return [name for name in known if name in distinct] + [name for name in distinct if name not in known]


def models_of(cells: Sequence[Summary]) -> list[str]:
    """The models of some cells, in the paper's order, others after them."""
    return in_order((cell.model for cell in cells), list(MODELS))


def datasets_of(cells: Sequence[Summary]) -> list[str]:
    """The data sets of some cells, in the paper's order, others after them."""
    return in_order((cell.dataset for cell in cells), _DATASETS)


def shown(interval: Interval) -> str:
    """Mean ± margin, to two decimals."""
    return f"{interval.mean:.2f} ± {interval.margin:.2f}"


def shortfall(cell: Summary, seeds: int = SEEDS, trials: int = TRIALS) -> str:
    """How a cell deviates from the protocol, in words; empty if it does not."""
    parts = []
    if cell.trial >= 0 and cell.trials < trials:
        parts.append(f"{cell.trials} trial{'s' * (cell.trials != 1)}")
    if cell.trial >= 0 and cell.search_seeds < SEARCH_SEEDS:
        parts.append(f"{cell.search_seeds} search seed{'s' * (cell.search_seeds != 1)}")
    if len(cell.accuracies) < seeds:
        parts.append(f"{len(cell.accuracies)} seed{'s' * (len(cell.accuracies) != 1)}")
    if cell.most_epochs < EPOCHS:
        parts.append(f"{cell.most_epochs} steps")
    if cell.overtaken:
        parts.append("search went on")
    if cell.data:
        parts.append(cell.data)
    return ", ".join(parts)


def entry(cell: Summary | None, seeds: int = SEEDS, trials: int = TRIALS) -> str:
    """A readable cell: mean ± margin and, in parentheses, how it falls short of the protocol."""
    if cell is None:
        return "–"
    short = shortfall(cell, seeds, trials)
    return shown(cell.accuracy) + (f" ({short})" if short else "")


def table1_markdown(cells: Sequence[Summary], records: Sequence[Record]) -> str:
    """The paper's table with ours beside it, column by column, and how it was computed."""
    find = {(cell.model, cell.variant, cell.dataset): cell for cell in cells}
    datasets, models = datasets_of(cells), models_of(cells)
    lines = [
        "# Table 1, measured",
        "",
        "Test accuracy in percent, mean ± the larger distance to a bound of the 95 % bootstrap interval "
        "(1 000 resamples). "
        f"The protocol is {TRIALS} settings × {SEARCH_SEEDS} seeds of random search and {SEEDS} final seeds, at most "
        f"{EPOCHS} steps each, on full-precision features and the graph of 30 neighbors; a cell that deviates says so. "
        "Every choice is in docs/protocol.md.",
        "",
        "## Ours, plain logits, beside the paper's (in italics)",
        "",
        *markdown_table(
            ["", *datasets],
            [[model, *(_beside(find.get((model, "", d)), published(model, d)) for d in datasets)] for model in models],
        ),
        "",
    ]
    headed = [model for model in models if any((model, HEAD, d) in find for d in datasets)]
    if headed:
        rows = [[model, *(entry(find.get((model, HEAD, d))) for d in datasets)] for model in headed]
        lines += ["## With ReLU and dropout on the logits (head=paper)", "", *markdown_table(["", *datasets], rows), ""]
    for name in (OURS, DECOUPLED):
        own = {d: find.get((name, "", d)) for d in datasets}
        rows = [
            [model, *(difference(own[d], find.get((model, "", d))) for d in datasets)]
            for model in models
            if model != name and any(own.values())
        ]
        if rows:
            title = f"## {name} minus each, over the same seeds, with 95 % intervals"
            lines += [title, "", *markdown_table(["", *datasets], rows), ""]
    lines += ["The settings chosen are in table1.csv.", ""]
    return "\n".join([*lines, *how_made(records, commands(cells))]) + "\n"


def _beside(cell: Summary | None, paper: tuple[float, float] | None) -> str:
    theirs = f"*{paper[0]:.2f} ± {paper[1]:.2f}*" if paper else ""
    return f"{entry(cell)}<br>{theirs}" if theirs else entry(cell)


def difference(ours: Summary | None, other: Summary | None, seeds: int = SEEDS) -> str:
    """Ours minus another over their common seeds: mean and interval in points."""
    if ours is None or other is None or ours is other or not set(ours.accuracies) & set(other.accuracies):
        return "–"
    interval, count = paired_difference(ours.accuracies, other.accuracies)
    low, mean, high = (100 * x for x in (interval.low, interval.mean, interval.high))
    short = "" if count >= seeds else f" ({count} seeds)"
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]{short}"


def how_made(records: Sequence[Record], made_by: Sequence[str]) -> list[str]:
    """Commands, machines, software and minutes."""
    lines = ["## How it was made", "", "Commands (they resume after an interruption; `--shard i/n` divides them):"]
    lines += ["", "```", *made_by, "sobgnn reproduce report --lines FOLDER --out results", "```", ""]
    rows = []
    for device in dict.fromkeys(record.device for record in records):
        own = [record for record in records if record.device == device]
        versions = dict.fromkeys(", ".join(f"{k} {v}" for k, v in record.versions.items()) for record in own)
        minutes = sum(record.seconds for record in own) / 60
        rows.append([device, str(len(own)), f"{minutes:.1f}", "; ".join(versions)])
    lines += markdown_table(["machine", "trainings", "process minutes", "software"], rows)
    total = sum(record.seconds for record in records) / 60
    # Lines record only their own process's time: shards that share a device each count theirs.
    said = f"In all {len(records)} trainings in {total:.1f} process minutes; processes on one device count each."
    return [*lines, "", said]


def commands(cells: Sequence[Summary]) -> list[str]:
    """The commands that fill these cells of the paper's table."""
    groups: dict[tuple[int, int, tuple[str, ...], bool], list[str]] = {}
    for model in models_of(cells):
        for headed in (False, True):
            own = [cell for cell in cells if cell.model == model and (cell.variant == HEAD) == headed]
            sizes = {(cell.trials, len(cell.accuracies)) for cell in own}
            for trials, seeds in sorted(sizes, reverse=True):
                names = tuple(datasets_of([c for c in own if (c.trials, len(c.accuracies)) == (trials, seeds)]))
                groups.setdefault((trials, seeds, names, headed), []).append(model)
    return [
        f"sobgnn reproduce table1 --models {','.join(models)} --datasets {','.join(names)}"
        f"{f' --trials {trials}' if trials else ''} --seeds {seeds}{' --heads paper' if headed else ''}"
        for (trials, seeds, names, headed), models in groups.items()
    ]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    body = ["| " + " | ".join(row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body]


def to_csv(cells: Sequence[Summary]) -> str:
    """One line for each cell, with everything that is in the Markdown table."""
    out = io.StringIO()
    head = [
        "study", "dataset", "labels", "model", "variant", "mean", "low", "high", "margin", "seeds", "trials",
        "search_seeds", "paper_mean", "paper_margin", "ours_minus_mean", "ours_minus_low", "ours_minus_high",
        "validation", "trial", "setting", "trainings", "seconds",
    ]  # fmt: skip
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    ours = {(c.study, c.dataset, c.labels): c for c in cells if c.model == OURS and c.variant == ""}
    for cell in cells:
        interval = cell.accuracy
        reference = ours.get((cell.study, cell.dataset, cell.labels))
        gap: list[str] = ["", "", ""]
        if reference is not None and reference is not cell and set(reference.accuracies) & set(cell.accuracies):
            paired, _ = paired_difference(reference.accuracies, cell.accuracies)
            gap = [f"{100 * x:.4f}" for x in paired]
        paper = (published(cell.model, cell.dataset) if cell.study == "table1" else None) or ("", "")
        writer.writerow(
            [cell.study, cell.dataset, cell.labels, cell.model, cell.variant]
            + [f"{x:.4f}" for x in (*interval, interval.margin)]
            + [len(cell.accuracies), cell.trials, cell.search_seeds, *paper, *gap, f"{100 * cell.validation:.4f}"]
            + [cell.trial, json.dumps(cell.setting), cell.trainings, f"{cell.seconds:.2f}"]
        )
    return out.getvalue()
