from __future__ import annotations

import numpy as np
import pytest

from sobgnn._system.unknown import label_values, unknown_labels


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", "b", np.nan, ""]),  # numpy writes "nan"
        np.array(["a", "b", "nan", ""], dtype=object),
        ["a", "b", None, float("nan")],
        np.array([10**30, True, -1, np.float32("nan")], dtype=object),
        [3, 4, -1, -1],
        np.array([3.0, 4.0, np.nan, -1.0]),
        np.ma.array([3, 4, 5, 6], mask=[False, False, True, True]),
    ],
    ids=str,
)
def test_labels_that_are_none_are_unknown(y):
    assert unknown_labels(label_values(y)).tolist() == [False, False, True, True]


def test_a_text_that_looks_like_a_number_is_a_class():
    assert not unknown_labels(label_values(np.array(["-1", "1", "none"]))).any()


@pytest.mark.parametrize("kind", ["U", object, np.dtypes.StringDType()], ids=str)
def test_minus_one_among_names_is_unknown(kind):
    values = label_values(np.array(["cat", "-1", "dog", "-1"]).astype(kind))
    assert unknown_labels(values).tolist() == [False, True, False, True]
    assert not unknown_labels(label_values(np.array(["-1", "-1"]).astype(kind))).any()
