"""A folder of JSON lines -> tables, Markdown and CSV, and plots in another folder; trains nothing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from sobgnn._system.files import write_text
from sobgnn._system.packages import installed
from sobgnn.paper import plots
from sobgnn.paper.results import Record, Summary, datasets_of, in_order, models_of, published, read, summarize
from sobgnn.paper.studies import ABLATIONS, DECOUPLED, FEW_LABELS, HEADS, OURS

TRIALS, SEARCH_SEEDS, SEEDS, EPOCHS = 100, 5, 50, 500  # a cell with others says so
STUDY_SEEDS, STUDY_TRIALS = 20, 10  # of the few labels and the ablations


def write(lines: Path, out: Path) -> list[Path]:
    """Write Markdown, CSV and a plot of every study in the lines; returns the paths, in order.

    Args:
        lines: Folder of JSON lines.
        out: Where the files go.
    """
    if not lines.exists():
        raise FileNotFoundError(f"No results at {lines}. Create some with `sobgnn reproduce table1`.")
    records = list(read(lines))
    cells = summarize(records)
    if not cells:
        raise ValueError(f"{lines} holds {len(records)} lines, but none of a final stage. Let a cell finish first.")
    out.mkdir(parents=True, exist_ok=True)
    studies = (
        ("table1", table1_markdown, plots.draw_table1),
        ("few-labels", few_labels_markdown, plots.draw_few_labels),
        ("ablations", ablations_markdown, None),
    )
    paths = []
    for study, markdown, draw in studies:
        own = [cell for cell in cells if cell.study == study]
        if not own:
            continue
        name = study.replace("-", "_")
        text = markdown(own) + _how_made([record for record in records if record.study == study], own)
        paths += [draw(own, out / f"{name}.png")] if draw is not None and installed("matplotlib") else []
        paths += [write_text(out / f"{name}.md", "\n".join(text) + "\n"), write_text(out / f"{name}.csv", to_csv(own))]
    return paths


def table1_markdown(cells: Sequence[Summary]) -> list[str]:
    """The paper's table with ours beside it, column by column."""
    datasets, models = datasets_of(cells), models_of(cells)
    plain = {(cell.model, cell.dataset): cell for cell in cells if cell.variant == ""}
    headed = {(cell.model, cell.dataset): entry(cell) for cell in cells if cell.variant == HEADS["paper"]}
    beside = {}
    for place in product(models, datasets):
        paper = published(*place)
        theirs = f"<br>*{paper[0]:.2f} ± {paper[1]:.2f}*" if paper else ""
        beside[place] = (entry(plain[place]) if place in plain else "–") + theirs
    lines = [
        "# Table 1, measured",
        "",
        "Test accuracy in percent, mean ± the larger distance to a bound of the 95 % bootstrap interval "
        "(1 000 resamples). "
        f"The protocol is {TRIALS} settings × {SEARCH_SEEDS} seeds of random search and {SEEDS} final seeds, at most "
        f"{EPOCHS} steps each, on full-precision features and the graph of 30 neighbors; a cell that deviates says so. "
        "Every choice is in docs/paper.md.",
        "",
        "## Ours, plain logits, beside the paper's (in italics)",
        "",
        *_grid(models, datasets, beside),
    ]
    if headed:
        lines += [
            "## The paper's form (head=paper): ReLU and dropout on the logits; S-SobGNN: ReLU on its last filters",
            "",
            *_grid(models_of([cell for cell in cells if cell.variant == HEADS["paper"]]), datasets, headed),
        ]
    if OURS in models:
        minus = {place: difference(plain.get((OURS, place[1])), cell) for place, cell in plain.items()}
        lines += [
            f"## {OURS} minus each, over the same seeds, with 95 % intervals",
            "",
            *_grid([model for model in models if model != OURS], datasets, minus),
        ]
    return [*lines, f"The settings chosen are in table1.csv, and what {DECOUPLED} is above each.", ""]


def few_labels_markdown(cells: Sequence[Summary]) -> list[str]:
    """A table for each data set: models by number of labels."""
    lines = [
        "# Few labels",
        "",
        f"Test accuracy in percent over {STUDY_SEEDS} seeds, mean ± the larger distance to a bound of the 95 % "
        f"bootstrap interval. Each model has {STUDY_TRIALS} settings searched at each number of labels; with n labels "
        "per class, n further ones of each class choose setting and step. SobolevClassifier is the estimator with its "
        "default arguments: it is given the training labels alone and searches nothing. The best mean is bold.",
        "",
    ]
    for dataset in datasets_of(cells):
        own = [cell for cell in cells if cell.dataset == dataset]
        labels = in_order((cell.labels for cell in own), FEW_LABELS)
        means = {(cell.model, cell.labels): cell.accuracy.mean for cell in own}
        best = {label: max(mean for (_, known), mean in means.items() if known == label) for label in labels}
        told = {
            (model, label): entry(cell, STUDY_SEEDS, STUDY_TRIALS, best=means[model, label] == best[label])
            for cell in own
            for model, label in [(cell.model, cell.labels)]
        }
        lines += [f"## {dataset}", "", *_grid(models_of(own), labels, told)]
    return [*lines, f"few_labels.csv has the difference of {OURS} and each, over the same seeds.", ""]


def ablations_markdown(cells: Sequence[Summary]) -> list[str]:
    """A table for each thing that is varied: its values by data set."""
    lines = [
        "# Ablations",
        "",
        "S-SobGNN, and below it D-SobGNN, with one thing changed at a time, all else as in docs/paper.md. Test "
        f"accuracy in percent over {STUDY_SEEDS} seeds, mean ± the larger distance to a bound of the 95 % bootstrap "
        "interval.",
        "",
    ]
    kinds = dict.fromkeys((cell.model, cell.variant.partition("=")[0]) for cell in cells)
    for model, kind in sorted(kinds, key=lambda each: each[0] != OURS):
        own = [cell for cell in cells if cell.model == model and cell.variant.partition("=")[0] == kind]
        datasets, known = datasets_of(own), ABLATIONS[model].get(kind, ())
        variants = in_order((cell.variant for cell in own), [f"{kind}={value}" for value in known])
        told = {(cell.variant, cell.dataset): entry(cell, STUDY_SEEDS) for cell in own}
        title = kind if model == OURS else f"{model}: {kind}"
        lines += [f"## {title}", "", *_grid(variants, datasets, told)]
        if kind == "powers":
            lines += _cost(own, datasets)
    return lines


def _cost(cells: Sequence[Summary], datasets: Sequence[str]) -> list[str]:
    """Memory and time of each value, by data set."""
    measures = list(dict.fromkeys(name for cell in cells for name in cell.measures))
    rows = []
    for cell in sorted(cells, key=lambda cell: datasets.index(cell.dataset)):
        told = [f"{cell.measures[name]:,.1f}" if name in cell.measures else "–" for name in measures]
        rows.append([cell.dataset, cell.variant, *told, f"{cell.seconds / cell.trainings:.3f}"])
    return _markdown(["data set", "", *measures, "s of a training, as its share of the batch"], rows)


def _how_made(records: Sequence[Record], cells: Sequence[Summary]) -> list[str]:
    """Commands, machines, software and minutes."""
    lines = ["## How it was made", "", "Commands:"]
    lines += ["", "```", *commands(cells), "sobgnn reproduce report --lines FOLDER --out results", "```", ""]
    rows = []
    for device in dict.fromkeys(record.device for record in records):
        own = [record for record in records if record.device == device]
        versions = dict.fromkeys(", ".join(f"{k} {v}" for k, v in record.versions.items()) for record in own)
        minutes = sum(record.seconds for record in own) / 60
        rows.append([device, str(len(own)), f"{minutes:.1f}", "; ".join(versions)])
    # Lines record only their own process's time: shards that share a device each count theirs.
    return [*lines, *_markdown(["machine", "trainings", "process minutes", "software"], rows)[:-1]]


def commands(cells: Sequence[Summary]) -> list[str]:
    """The commands that fill these cells of one study."""
    study = cells[0].study
    if study != "table1":
        models = sorted({cell.model for cell in cells} & {DECOUPLED}) if study == "ablations" else []
        return [f"sobgnn reproduce {study}", *(f"sobgnn reproduce {study} --model {model}" for model in models)]
    groups: dict[tuple[str, str], list[str]] = {}
    for model in models_of(cells):
        for headed in (False, True):
            own = [cell for cell in cells if cell.model == model and (cell.variant == HEADS["paper"]) == headed]
            options = {_options(cell): (cell.trials, len(cell.accuracies)) for cell in own}
            for size in sorted(options, key=lambda each: options[each], reverse=True):
                names = ",".join(datasets_of([cell for cell in own if _options(cell) == size]))
                groups.setdefault((names, size), []).append(model)
    return [
        f"sobgnn reproduce table1 --models {','.join(models)} --datasets {names}{size}"
        for (names, size), models in groups.items()
    ]


def _options(cell: Summary) -> str:
    """The options of the command that fills a cell of the paper's table, beyond model and data set."""
    return (
        (f" --trials {cell.trials}" if cell.trials else "")
        + f" --seeds {len(cell.accuracies)}"
        + (" --heads paper" if cell.variant == HEADS["paper"] else "")
        + (f" --epochs {cell.most_epochs}" if cell.most_epochs != EPOCHS else "")
        + (" --data FOLDER" if "features in" in cell.data else "")
    )


def shortfall(cell: Summary, seeds: int = SEEDS, trials: int = TRIALS) -> str:
    """How a cell deviates from the protocol, in words; empty if it does not."""
    counts = [(len(cell.accuracies), seeds, "seed"), (cell.most_epochs, EPOCHS, "step")]
    if cell.trial >= 0:
        counts = [(cell.trials, trials, "trial"), (cell.search_seeds, SEARCH_SEEDS, "search seed"), *counts]
    parts = [f"{count} {what}{'s' * (count != 1)}" for count, usual, what in counts if count != usual]
    parts += ["search went on"] * cell.overtaken + [cell.data] * bool(cell.data)
    return ", ".join(parts)


def entry(cell: Summary, seeds: int = SEEDS, trials: int = TRIALS, *, best: bool = False) -> str:
    """A readable cell: mean ± margin, bold if it is the best, and how it deviates from the protocol in parentheses."""
    interval, short, bold = cell.accuracy, shortfall(cell, seeds, trials), "**" * best
    return f"{bold}{interval.mean:.2f} ± {interval.margin:.2f}{bold}" + (f" ({short})" if short else "")


def difference(ours: Summary | None, other: Summary) -> str:
    """Ours minus another over their common seeds: mean and interval in points."""
    found = ours.minus(other) if ours is not None else None
    if found is None:
        return "–"
    (mean, low, high), count = found
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" + (f" ({count} seeds)" if count < SEEDS else "")


def _grid(rows: Iterable[str], columns: Sequence[str], told: Mapping[tuple[str, str], str]) -> list[str]:
    """A Markdown table of what is told of each row and column."""
    return _markdown(["", *columns], [[row, *(told.get((row, column), "–") for column in columns)] for row in rows])


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
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
