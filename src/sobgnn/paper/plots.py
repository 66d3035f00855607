"""Plots of results: accuracies with intervals, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sobgnn.paper.studies import FEW_LABELS
from sobgnn.paper.summary import Summary
from sobgnn.paper.tables import datasets_of, models_of, published

HEAD = "head=paper"


def draw_table1(cells: Sequence[Summary], folder: Path) -> Path:
    """``table1.png``: a panel for each data set, a row for each model."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    datasets, models = datasets_of(cells), models_of(cells)[::-1]
    figure = Figure(figsize=(3.1 * len(datasets) + 1.2, 0.36 * len(models) + 1.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for panel, dataset in zip(panels, datasets, strict=True):
        for variant, color, label, shift in (("", "#1b6ca8", "plain logits", 0.0), (HEAD, "#d5793a", HEAD, -0.22)):
            own = [c for c in cells if c.dataset == dataset and c.variant == variant]
            _points(panel, [(models.index(c.model) + shift, c.accuracy.mean, _bars(c)) for c in own], color, label, "o")
        paper = [(models.index(m) + 0.22, *p) for m in models if (p := published(m, dataset)) is not None]
        _points(panel, [(y, mean, (margin, margin)) for y, mean, margin in paper], "#999999", "the paper's", "s")
        panel.set_title(dataset)
        panel.set_xlabel("test accuracy, %")
        panel.grid(axis="x", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
    panels[0].set_yticks(range(len(models)), models)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return _save(figure, folder, "table1")


def draw_few_labels(cells: Sequence[Summary], folder: Path) -> Path:
    """``few_labels.png``: accuracy over the number of labels, a line for each model."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    datasets, models = datasets_of(cells), models_of(cells)
    labels = [x for x in FEW_LABELS if any(c.labels == x for c in cells)]
    figure = Figure(figsize=(3.2 * len(datasets) + 0.6, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, len(datasets), squeeze=False)[0]
    for panel, dataset in zip(panels, datasets, strict=True):
        for model, color in zip(models, colormaps["tab20"](range(20)), strict=False):
            own = {c.labels: c for c in cells if c.dataset == dataset and c.model == model and c.labels in labels}
            at = [x for x in labels if x in own]
            means = [own[x].accuracy.mean for x in at]
            errors = [[_bars(own[x])[side] for x in at] for side in (0, 1)]
            places = [labels.index(x) for x in at]
            panel.errorbar(places, means, errors, color=color, label=model, marker="o", markersize=3, linewidth=1.2)
        panel.set_xticks(range(len(labels)), labels)
        panel.set_title(dataset)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panels[0].set_ylabel("test accuracy, %")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(models), frameon=False)
    return _save(figure, folder, "few_labels")


def _bars(cell: Summary) -> tuple[float, float]:
    interval = cell.accuracy
    return interval.mean - interval.low, interval.high - interval.mean


def _points(
    panel: Any, points: Sequence[tuple[float, float, tuple[float, float]]], color: str, label: str, marker: str
) -> None:
    if points:
        y, x, bars = zip(*points, strict=True)
        sides = [[bar[side] for bar in bars] for side in (0, 1)]
        panel.errorbar(x, y, xerr=sides, color=color, label=label, marker=marker, markersize=4, linestyle="none")


def _save(figure: Any, folder: Path, name: str) -> Path:
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=85)
    return path
