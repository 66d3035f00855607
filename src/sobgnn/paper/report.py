"""A folder of JSON lines -> tables and plots in another folder; trains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sobgnn._system.files import write_text
from sobgnn._system.packages import installed
from sobgnn.paper import plots
from sobgnn.paper.results import Record, read
from sobgnn.paper.studies import ABLATIONS, DECOUPLED, FEW_LABELS, OURS
from sobgnn.paper.summary import Summary, summarize
from sobgnn.paper.tables import (
    EPOCHS,
    SEARCH_SEEDS,
    SEEDS,
    TRIALS,
    datasets_of,
    difference,
    entry,
    in_order,
    markdown_table,
    models_of,
    published,
    to_csv,
)

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
        paths += [draw(own, out)] if draw is not None and installed("matplotlib") else []
        paths += [write_text(out / f"{name}.md", "\n".join(text) + "\n"), write_text(out / f"{name}.csv", to_csv(own))]
    return paths


def table1_markdown(cells: Sequence[Summary]) -> list[str]:
    """The paper's table with ours beside it, column by column."""
    find = {(cell.model, cell.variant, cell.dataset): cell for cell in cells}
    datasets, models = datasets_of(cells), models_of(cells)

    def beside(model: str, dataset: str) -> str:
        paper = published(model, dataset)
        theirs = f"<br>*{paper[0]:.2f} ± {paper[1]:.2f}*" if paper else ""
        return entry(find.get((model, "", dataset))) + theirs

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
        *markdown_table(["", *datasets], [[model, *(beside(model, d) for d in datasets)] for model in models]),
    ]
    headed = [model for model in models if any((model, plots.HEAD, d) in find for d in datasets)]
    if headed:
        rows = [[model, *(entry(find.get((model, plots.HEAD, d))) for d in datasets)] for model in headed]
        lines += [
            "## The paper's form (head=paper): ReLU and dropout on the logits; S-SobGNN: ReLU on its last filters",
            "",
            *markdown_table(["", *datasets], rows),
        ]
    if OURS in models:
        own = {d: find.get((OURS, "", d)) for d in datasets}
        others = [model for model in models if model != OURS]
        rows = [[model, *(difference(own[d], find.get((model, "", d))) for d in datasets)] for model in others]
        title = f"## {OURS} minus each, over the same seeds, with 95 % intervals"
        lines += [title, "", *markdown_table(["", *datasets], rows)]
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
        labels, find = in_order((cell.labels for cell in own), FEW_LABELS), {(c.model, c.labels): c for c in own}
        means = [(cell.labels, cell.accuracy.mean) for cell in own]
        best = {label: max(mean for known, mean in means if known == label) for label in labels}
        rows = []
        for model in models_of(own):
            row = [find.get((model, label)) for label in labels]
            firsts = [c is not None and c.accuracy.mean == best[c.labels] for c in row]
            told = [entry(c, STUDY_SEEDS, STUDY_TRIALS, best=first) for c, first in zip(row, firsts, strict=True)]
            rows.append([model, *told])
        lines += [f"## {dataset}", "", *markdown_table(["", *labels], rows)]
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
        find = {(cell.variant, cell.dataset): cell for cell in own}
        variants = in_order((cell.variant for cell in own), [f"{kind}={value}" for value in known])
        rows = [[variant, *(entry(find.get((variant, d)), STUDY_SEEDS) for d in datasets)] for variant in variants]
        title = kind if model == OURS else f"{model}: {kind}"
        lines += [f"## {title}", "", *markdown_table(["", *datasets], rows)]
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
    return markdown_table(["data set", "", *measures, "s of a training, as its share of the batch"], rows)


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
    return [*lines, *markdown_table(["machine", "trainings", "process minutes", "software"], rows)[:-1]]


def commands(cells: Sequence[Summary]) -> list[str]:
    """The commands that fill these cells of one study."""
    study = cells[0].study
    if study != "table1":
        models = sorted({cell.model for cell in cells} & {DECOUPLED}) if study == "ablations" else []
        return [f"sobgnn reproduce {study}", *(f"sobgnn reproduce {study} --model {model}" for model in models)]
    groups: dict[tuple[str, str], list[str]] = {}
    for model in models_of(cells):
        for headed in (False, True):
            own = [cell for cell in cells if cell.model == model and (cell.variant == plots.HEAD) == headed]
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
        + (" --heads paper" if cell.variant == plots.HEAD else "")
        + (f" --epochs {cell.most_epochs}" if cell.most_epochs != EPOCHS else "")
        + (" --data FOLDER" if "features in" in cell.data else "")
    )
