from __future__ import annotations

import pytest

from sobgnn.estimator.families.linear import pool_size


@pytest.mark.parametrize(
    ("points", "labels_per_class", "read"),
    [(500, 20, 3_000), (5_000, 5, 6_000), (18_846, 20, 6_282), (18_846, 5, 12_000), (10_000_000, 20, 12_000)],
)
def test_a_third_of_many_points_is_read_and_twice_as_many_with_few_labels(points, labels_per_class, read):
    assert pool_size(points, labels_per_class) == read
