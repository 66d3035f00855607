from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

from sobgnn import Graph
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.warm import Kept, fingerprint, out_of_fold_before

X = np.arange(12.0).reshape(4, 3)


def labels(rows, codes, classes=3):
    return Labels(np.array(rows), np.array(codes), np.ones(len(rows)), np.full(len(rows), -1), classes)


def test_decisions_are_kept_until_a_fifth_of_the_labels_has_changed():
    before = labels(range(10), [0, 1] * 5)
    kept = Kept("", None, None, before, np.array(["a", "b", "c"]), None)

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


def test_what_was_known_out_of_fold_is_kept_for_labels_that_have_not_changed():
    known = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
    estimator = SimpleNamespace(
        labelled_=np.array([2, 5]), labelled_codes_=np.array([0, 1]), out_of_fold_probabilities_=known
    )
    found = out_of_fold_before(estimator, labels([2, 5, 7], [0, 2, 1]))
    np.testing.assert_array_equal(found, [known[0], [np.nan] * 3, [np.nan] * 3])


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
