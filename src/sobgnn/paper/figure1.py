"""Figure 1 of the paper: how powers of the Laplacian, matrix and Hadamard, penalize the frequencies of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sobgnn.graphs.graph import Graph
from sobgnn.spectrum import EigenvaluePenalization, eigenvalue_penalization

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RHOS = (1, 2, 3, 4, 5)
# One color per power, light to dark; distinguishable in print and by color-blind readers.
_COLORS = ("#fdae61", "#f46d43", "#c2375b", "#7b2382", "#2d1160")


def default_graph(n: int = 400, k: int = 10, seed: int = 0) -> Graph:
    """The k-nearest-neighbor graph, with Gaussian weights, of n points drawn uniformly from the unit square."""
    from sobgnn.graphs.knn import knn_graph

    points = np.random.default_rng(seed).random((n, 2))
    return knn_graph(points, k=k, method="exact")


def draw(graph: Graph, folder: str | Path) -> tuple[Path, Path]:
    """Draw both panels to ``figure1.png`` and ``figure1.svg`` in ``folder``, and return the two paths.

    The same graph gives the same SVG, byte for byte. matplotlib's global state is not changed.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = eigenvalue_penalization(graph, RHOS)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / "figure1.png", folder / "figure1.svg"
    # The salt determines the names of SVG elements, and text stays text: no random names, no fonts converted to paths.
    with matplotlib.rc_context({"svg.hashsalt": "sobgnn figure 1", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        _panels(figure, curves)
        figure.savefig(png, dpi=200, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg


def _panels(figure: Figure, curves: EigenvaluePenalization) -> None:
    panels = (
        (r"Non-sparse, $\mathbf{L}^{\rho}$", curves.non_sparse),
        (r"Sparse, $\mathbf{L}^{(\rho)}$", curves.sparse),
    )
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, (title, values) in zip(axes, panels, strict=True):
        for rho, curve, color in zip(curves.rhos, values, _COLORS, strict=True):
            axis.plot(np.arange(1, len(curve) + 1), curve, color=color, linewidth=1.6, label=rf"$\rho = {rho}$")
        axis.set_title(title)
        axis.set_xlabel("Eigenvalue index, ascending")
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    axes[0].set_ylabel("Eigenvalue / largest eigenvalue")
    axes[0].legend(frameon=False, loc="upper left")
