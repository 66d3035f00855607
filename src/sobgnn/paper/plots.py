"""Plots: accuracies with their intervals, ours beside the paper's, and Figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn.graphs.graph import Graph
from sobgnn.paper.results import Summary, datasets_of, models_of, published
from sobgnn.paper.studies import FEW_LABELS, HEADS
from sobgnn.spectrum import eigenvalue_penalization

RHOS = (1, 2, 3, 4, 5)
# One color per power, light to dark; distinguishable in print and by color-blind readers.
_COLORS = ("#fdae61", "#f46d43", "#c2375b", "#7b2382", "#2d1160")


def draw_table1(cells: Sequence[Summary], path: Path) -> Path:
    """A panel for each data set, a row for each model."""
    datasets, models = datasets_of(cells), models_of(cells)[::-1]
    figure, panels = _panels(len(datasets), 3.1 * len(datasets) + 1.2, 0.36 * len(models) + 1.5, sharey=True)
    head = HEADS["paper"]
    for panel, dataset in zip(panels, datasets, strict=True):
        for variant, color, label, shift in (("", "#1b6ca8", "plain logits", 0.0), (head, "#d5793a", head, -0.22)):
            own = [c for c in cells if c.dataset == dataset and c.variant == variant]
            _points(panel, [(models.index(c.model) + shift, c.accuracy.mean, _bars(c)) for c in own], color, label, "o")
        paper = [(models.index(m) + 0.22, *p) for m in models if (p := published(m, dataset)) is not None]
        _points(panel, [(y, mean, (margin, margin)) for y, mean, margin in paper], "#999999", "the paper's", "s")
        panel.set_title(dataset)
        panel.set_xlabel("test accuracy, %")
        panel.grid(axis="x", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
    panels[0].set_yticks(range(len(models)), models)
    return _save(figure, panels[0], 3, path)


def draw_few_labels(cells: Sequence[Summary], path: Path) -> Path:
    """Accuracy over the number of labels, a panel for each data set, a line for each model."""
    from matplotlib import colormaps

    datasets, models = datasets_of(cells), models_of(cells)
    labels = [x for x in FEW_LABELS if any(c.labels == x for c in cells)]
    figure, panels = _panels(len(datasets), 3.2 * len(datasets) + 0.6, 3.6)
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
    return _save(figure, panels[0], len(models), path)


def default_graph(n: int = 400, k: int = 10, seed: int = 0) -> Graph:
    """The k-nearest-neighbor graph, with Gaussian weights, of n points drawn uniformly from the unit square."""
    from sobgnn.graphs.knn import knn_graph

    points = np.random.default_rng(seed).random((n, 2))
    return knn_graph(points, k=k, method="exact")


def draw_figure1(graph: Graph, folder: str | Path) -> tuple[Path, Path]:
    """Figure 1 of the paper: how powers of the Laplacian, matrix and Hadamard, penalize the frequencies of a graph.

    Writes ``figure1.png`` and ``figure1.svg`` in ``folder``, and returns the two paths. The same graph gives the same
    SVG, byte for byte. matplotlib's global state is not changed.
    """
    import matplotlib

    curves = eigenvalue_penalization(graph, RHOS)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / "figure1.png", folder / "figure1.svg"
    titles = (r"Non-sparse, $\mathbf{L}^{\rho}$", r"Sparse, $\mathbf{L}^{(\rho)}$")
    # The salt determines the names of SVG elements, and text stays text: no random names, no fonts converted to paths.
    with matplotlib.rc_context({"svg.hashsalt": "sobgnn figure 1", "svg.fonttype": "none"}):
        figure, axes = _panels(2, 9.0, 3.6, sharex=True, sharey=True)
        for axis, title, values in zip(axes, titles, (curves.non_sparse, curves.sparse), strict=True):
            for rho, curve, color in zip(curves.rhos, values, _COLORS, strict=True):
                axis.plot(np.arange(1, len(curve) + 1), curve, color=color, linewidth=1.6, label=rf"$\rho = {rho}$")
            axis.set_title(title)
            axis.set_xlabel("Eigenvalue index, ascending")
            axis.grid(alpha=0.25, linewidth=0.6)
            axis.spines[["top", "right"]].set_visible(False)
            axis.margins(x=0.01)
        axes[0].set_ylabel("Eigenvalue / largest eigenvalue")
        axes[0].legend(frameon=False, loc="upper left")
        figure.savefig(png, dpi=200, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg


def _panels(count: int, width: float, height: float, *, sharex: bool = False, sharey: bool = False) -> tuple[Any, Any]:
    """A figure of this size in inches, and its panels side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, squeeze=False, sharex=sharex, sharey=sharey)[0]


def _points(
    panel: Any, points: Sequence[tuple[float, float, tuple[float, float]]], color: str, label: str, marker: str
) -> None:
    if points:
        y, x, bars = zip(*points, strict=True)
        sides = [[bar[side] for bar in bars] for side in (0, 1)]
        panel.errorbar(x, y, xerr=sides, color=color, label=label, marker=marker, markersize=4, linestyle="none")


def _bars(cell: Summary) -> tuple[float, float]:
    interval = cell.accuracy
    return interval.mean - interval.low, interval.high - interval.mean


def _save(figure: Any, panel: Any, columns: int, path: Path) -> Path:
    """With the legend of a panel below all."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    figure.savefig(path, dpi=85)
    return path
