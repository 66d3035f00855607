from __future__ import annotations

import re

import matplotlib
import numpy as np

from sobgnn.paper import figure1


def test_both_files_show_two_labelled_panels_with_five_curves_each_and_are_always_the_same(graph30, tmp_path):
    before = dict(matplotlib.rcParams)
    png, svg = figure1.draw(graph30, tmp_path / "new" / "folder")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for label in ("Non-sparse", "Sparse", "Eigenvalue index, ascending", "Eigenvalue / largest eigenvalue"):
        assert label in text
    for color in figure1._COLORS:  # the curve of each panel, and its line in the legend
        assert len(re.findall(f"stroke: {color}", text)) == 3
    assert "<dc:date>" not in text
    again = figure1.draw(graph30, tmp_path)
    assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]
    assert dict(matplotlib.rcParams) == before


def test_the_default_graph_is_connected_and_always_the_same():
    graph = figure1.default_graph(n=100)
    assert (graph.num_nodes, graph.describe().components) == (100, 1)
    np.testing.assert_array_equal(graph.weight, figure1.default_graph(n=100).weight)
