from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from sobgnn import Graph
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.warm import Kept, fingerprint

X = np.arange(12.0).reshape(4, 3)


def labels(rows, codes, classes=3):
    return Labels(np.array(rows), np.array(codes), np.ones(len(rows)), np.full(len(rows), -1), classes)


def test_decisions_are_kept_until_a_fifth_of_the_labels_has_changed():
    before = labels(range(10), [0, 1] * 5)
    kept = Kept("", None, None, before, np.array(["a", "b", "c"]), None, before)

    def holds(rows, codes, classes="abc"):
        whole = np.full(20, -1)
        whole[list(rows)] = codes
        return kept.holds(whole, np.array(list(classes)))

    assert holds(range(10), [0, 1] * 5)
    assert holds(range(12), [0, 1] * 6)  # two more
    assert holds(range(8), [0, 1] * 4)  # two fewer
    assert holds(range(10), [1, 0] + [0, 1] * 4)  # two others
    assert not holds(range(13), [0, 1] * 6 + [0])
    assert not holds(range(1, 12), [1, 0] * 5 + [1])  # one gone, two more
    assert not holds(range(10), [0, 1] * 5, classes="abcd")
    assert not holds(range(10), [0, 1] * 5, classes="abd")  # one gone, another new


def test_the_fingerprint_tells_points_graphs_and_settings_apart():
    def graph_of(*ends, weight=1.0):
        edges = np.array(ends).reshape(-1, 2).T
        return Graph.from_edges(edges, np.full(edges.shape[1], weight), 4, symmetrize="union")

    graph = graph_of((0, 1), (2, 3))
    settings = {"k": 3}
    own = fingerprint(X, graph, settings)
    assert own == fingerprint(X.copy(), graph_of((0, 1), (2, 3)), dict(settings))
    others = [
        fingerprint(np.nextafter(X, np.inf), graph, settings),
        fingerprint(X.astype(np.float32), graph, settings),
        fingerprint(X.reshape(3, 4), graph, settings),
        fingerprint(sp.csr_array(X), graph, settings),
        fingerprint(X, None, settings),
        fingerprint(X, graph_of((0, 1), (2, 3), weight=2.0), settings),
        fingerprint(X, graph_of((0, 1), (1, 3)), settings),
        fingerprint(X, graph_of(), settings),
        fingerprint(X, graph, {"k": 4}),
    ]
    assert len({own, *others}) == 1 + len(others)
