from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

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
    graph = sp.csr_array(np.eye(4))
    settings = {"k": 3}
    own = fingerprint(X, graph, settings)
    assert own == fingerprint(X.copy(), graph.copy(), dict(settings))
    others = [
        fingerprint(np.nextafter(X, np.inf), graph, settings),
        fingerprint(X.astype(np.float32), graph, settings),
        fingerprint(X.reshape(3, 4), graph, settings),
        fingerprint(sp.csr_array(X), graph, settings),
        fingerprint(X, None, settings),
        fingerprint(X, sp.csr_array(2 * np.eye(4)), settings),
        fingerprint(X, (np.zeros((2, 1), int), np.ones(1)), settings),
        fingerprint(X, graph, {"k": 4}),
    ]
    assert len({own, *others}) == 1 + len(others)
