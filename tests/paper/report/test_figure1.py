from __future__ import annotations

import re

import matplotlib
import numpy as np

from sobgnn.paper.report import figure1


def test_both_files_show_two_labelled_panels_with_five_curves_each(graph30, tmp_path):
    png, svg = figure1.draw(graph30, tmp_path / "new" / "folder")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for label in ("Non-sparse", "Sparse", "Eigenvalue index, ascending", "Eigenvalue / largest eigenvalue"):
        assert label in text
    for color in figure1._COLORS:  # the curve of each panel, and its line in the legend
        assert len(re.findall(f"stroke: {color}", text)) == 3


def test_the_same_graph_gives_the_same_bytes_and_leaves_matplotlib_as_it_was(graph30, tmp_path):
    before = dict(matplotlib.rcParams)
    first = [path.read_bytes() for path in figure1.draw(graph30, tmp_path / "a")]
    second = [path.read_bytes() for path in figure1.draw(graph30, tmp_path / "b")]
    assert first == second
    assert b"<dc:date>" not in first[1]
    assert dict(matplotlib.rcParams) == before


def test_the_default_graph_is_connected_weighted_and_always_the_same():
    graph = figure1.default_graph(n=100)
    assert graph.num_nodes == 100
    assert graph.describe().components == 1
    assert len(np.unique(graph.weight.numpy())) > 100
    np.testing.assert_array_equal(graph.weight, figure1.default_graph(n=100).weight)
