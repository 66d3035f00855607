"""The few-label study and the ablations as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from sobgnn.protocol.results import Record
from sobgnn.report.summary import Summary
from sobgnn.report.tables import OURS, datasets_of, difference, entry, how_made, in_order, markdown_table, models_of

STUDY_SEEDS = 20
_LABELS = ("1/class", "5/class", "20/class", "10%")


def few_labels_markdown(
    cells: Sequence[Summary], records: Sequence[Record], device_minutes: float | None = None
) -> str:
    """A table for each data set: models by number of labels."""
    labels = in_order((cell.labels for cell in cells), _LABELS)
    lines = [
        "# Few labels",
        "",
        f"Test accuracy in percent over {STUDY_SEEDS} seeds, mean ± the larger distance to a bound of the 95 % "
        "bootstrap interval. Each model is searched at each number of labels; with n labels per class, n further ones "
        "of each class choose setting and step. SobolevClassifier is the estimator with its default arguments: it is "
        "given the training labels alone and searches nothing.",
        "",
    ]
    for dataset in datasets_of(cells):
        find = {(cell.model, cell.labels): cell for cell in cells if cell.dataset == dataset}
        rows = [[m, *(entry(find.get((m, x)), STUDY_SEEDS) for x in labels)] for m in models_of(cells)]
        gaps = [
            [m, *(difference(find.get((OURS, x)), find.get((m, x)), STUDY_SEEDS) for x in labels)]
            for m in models_of(cells)
            if m != OURS
        ]
        lines += [f"## {dataset}", "", *markdown_table(["", *labels], rows), ""]
        lines += [f"{OURS} minus each, over the same seeds:", "", *markdown_table(["", *labels], gaps), ""]
    return (
        "\n".join([*lines, *how_made(cells, records, ["python -m sobgnn.protocol few-labels"], device_minutes)]) + "\n"
    )


def ablations_markdown(cells: Sequence[Summary], records: Sequence[Record], device_minutes: float | None = None) -> str:
    """A table for each thing that is varied: its values by data set."""
    lines = [
        "# Ablations",
        "",
        "S-SobGNN with one thing changed at a time, all else as in docs/protocol.md. Test accuracy in percent over "
        f"{STUDY_SEEDS} seeds, mean ± the larger distance to a bound of the 95 % bootstrap interval; seconds are a "
        "training's share of its batch.",
        "",
    ]
    kinds = list(dict.fromkeys(cell.variant.partition("=")[0] for cell in cells))
    for kind in kinds:
        own = [cell for cell in cells if cell.variant.partition("=")[0] == kind]
        datasets = datasets_of(own)
        find = {(cell.variant, cell.dataset): cell for cell in own}
        variants = list(dict.fromkeys(cell.variant for cell in own))
        names = [f"{measure}, {d}" for measure in _measures(own) for d in datasets]
        rows = []
        for variant in variants:
            row = [variant, *(entry(find.get((variant, d)), STUDY_SEEDS) for d in datasets)]
            for measure in _measures(own):
                row += [_measure(find.get((variant, d)), measure) for d in datasets]
            rows.append([*row, *(_seconds(find.get((variant, d))) for d in datasets)])
        head = ["", *datasets, *names, *(f"s, {d}" for d in datasets)]
        lines += [f"## {kind}", "", *markdown_table(head, rows), ""]
    return (
        "\n".join([*lines, *how_made(cells, records, ["python -m sobgnn.protocol ablations"], device_minutes)]) + "\n"
    )


def _measures(cells: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell.measures))


def _measure(cell: Summary | None, name: str) -> str:
    return "–" if cell is None or name not in cell.measures else f"{cell.measures[name]:,.1f}"


def _seconds(cell: Summary | None) -> str:
    return "–" if cell is None else f"{cell.seconds / max(1, cell.trainings):.3f}"
