from __future__ import annotations

import numpy as np
import pytest

from sobgnn.app.runs.run import hide_labels


@pytest.mark.parametrize(("labels", "kept"), [(0.1, [10, 2, 1]), (5, [5, 5, 3]), (1, [1, 1, 1]), (0.999, [100, 20, 3])])
def test_each_class_keeps_its_share_or_number_of_labels_and_at_least_one(labels, kept):
    codes = np.repeat([0, 1, 2, -1], [100, 20, 3, 50])
    given = hide_labels(codes, labels, seed=0)
    assert np.bincount(given[given >= 0], minlength=3).tolist() == kept
    assert (given[given >= 0] == codes[given >= 0]).all()
    np.testing.assert_array_equal(given, hide_labels(codes, labels, seed=0))


def test_other_seeds_hide_other_labels_and_none_asked_hides_none():
    codes = np.repeat([0, 1], 50)
    assert (hide_labels(codes, 0.2, seed=0) != hide_labels(codes, 0.2, seed=1)).any()
    np.testing.assert_array_equal(hide_labels(codes, None, seed=0), codes)


def test_hiding_nothing_is_refused():
    with pytest.raises(ValueError, match="would hide nothing"):
        hide_labels(np.array([0, 0, 1, -1]), 2, 0)
    np.testing.assert_array_equal(np.bincount(hide_labels(np.array([0, 0, 1, -1]), 1, 0) + 1), [2, 1, 1])
