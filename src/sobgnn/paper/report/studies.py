"""The few-label study and the ablations as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from sobgnn.paper.protocol.results import Record
from sobgnn.paper.protocol.studies import ABLATIONS, DECOUPLED_ABLATIONS, FEW_LABELS, OURS
from sobgnn.paper.report.summary import Summary
from sobgnn.paper.report.tables import (
    datasets_of,
    difference,
    entry,
    how_made,
    in_order,
    markdown_table,
    models_of,
)

STUDY_SEEDS, STUDY_TRIALS = 20, 10


def few_labels_markdown(cells: Sequence[Summary], records: Sequence[Record]) -> str:
    """A table for each data set: models by number of labels."""
    lines = [
        "# Few labels",
        "",
        f"Test accuracy in percent over {STUDY_SEEDS} seeds, mean ± the larger distance to a bound of the 95 % "
        f"bootstrap interval. Each model has {STUDY_TRIALS} settings searched at each number of labels; with n labels "
        "per class, n further ones of each class choose setting and step. SobolevClassifier is the estimator with its "
        "default arguments: it is given the training labels alone and searches nothing.",
        "",
    ]
    for dataset in datasets_of(cells):
        own = [cell for cell in cells if cell.dataset == dataset]
        labels, models = in_order((cell.labels for cell in own), FEW_LABELS), models_of(own)
        find = {(cell.model, cell.labels): cell for cell in own}
        rows = [[m, *(entry(find.get((m, x)), STUDY_SEEDS, STUDY_TRIALS) for x in labels)] for m in models]
        lines += [f"## {dataset}", "", *markdown_table(["", *labels], rows), ""]
        leaders = (_leader(x, [cell for cell in own if cell.labels == x]) for x in labels)
        lines += [" ".join(filter(None, leaders)), ""]
    lines += [f"few_labels.csv has the difference of {OURS} and each, over the same seeds.", ""]
    return "\n".join([*lines, *how_made(records, ["sobgnn reproduce few-labels"])]) + "\n"


def _leader(labels: str, cells: Sequence[Summary]) -> str:
    """The model with the highest mean for some labels, and its lead over the next one over their common seeds."""
    if not cells:
        return ""
    first, *others = sorted(cells, key=lambda cell: -cell.accuracy.mean)
    ahead = f", {difference(first, others[0], STUDY_SEEDS)} ahead of {others[0].model}" if others else ""
    return f"{labels}: {first.model}{ahead}."


def ablations_markdown(cells: Sequence[Summary], records: Sequence[Record]) -> str:
    """A table for each thing that is varied: its values by data set."""
    lines = [
        "# Ablations",
        "",
        "S-SobGNN, and below it D-SobGNN, with one thing changed at a time, all else as in docs/protocol.md. Test "
        f"accuracy in percent over {STUDY_SEEDS} seeds, mean ± the larger distance to a bound of the 95 % bootstrap "
        "interval.",
        "",
    ]
    kinds = list(dict.fromkeys((cell.model, cell.variant.partition("=")[0]) for cell in cells))
    for model, kind in sorted(kinds, key=lambda each: each[0] != OURS):
        known = ABLATIONS if model == OURS else DECOUPLED_ABLATIONS
        own = [cell for cell in cells if cell.model == model and cell.variant.partition("=")[0] == kind]
        datasets = datasets_of(own)
        find = {(cell.variant, cell.dataset): cell for cell in own}
        variants = in_order((cell.variant for cell in own), [f"{kind}={value}" for value in known.get(kind, ())])
        rows = [[variant, *(entry(find.get((variant, d)), STUDY_SEEDS) for d in datasets)] for variant in variants]
        title = kind if model == OURS else f"{model}: {kind}"
        lines += [f"## {title}", "", *markdown_table(["", *datasets], rows), ""]
        if kind == "powers":
            lines += [*_cost(own, datasets), ""]
    commands = ["sobgnn reproduce ablations"]
    if any(model != OURS for model, _ in kinds):
        commands.append("sobgnn reproduce ablations --model D-SobGNN")
    return "\n".join([*lines, *how_made(records, commands)]) + "\n"


def _cost(cells: Sequence[Summary], datasets: Sequence[str]) -> list[str]:
    """Memory and time of each value, by data set."""
    measures = list(dict.fromkeys(name for cell in cells for name in cell.measures))
    rows = []
    for dataset in datasets:
        for cell in (c for c in cells if c.dataset == dataset):
            seconds = cell.seconds / max(1, cell.trainings)
            told = [f"{cell.measures[name]:,.1f}" if name in cell.measures else "–" for name in measures]
            rows.append([dataset, cell.variant, *told, f"{seconds:.3f}"])
    head = ["data set", "", *measures, "s of a training, as its share of the batch"]
    return markdown_table(head, rows)
