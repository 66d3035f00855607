from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn.graphs.given import as_edges


def test_edges_of_new_points_are_summed_and_sorted_in_a_copy():
    given = sp.csr_array((np.array([1.0, 2.0, 3.0], np.float32), [2, 0, 2], [0, 3]), shape=(1, 3))
    assert as_edges(given, 1, 3).toarray().tolist() == [[2.0, 0.0, 4.0]]
    assert given.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize("weight", [-1.0, np.nan, 1e-40, 1e38, 1e300])
def test_weights_of_new_points_have_the_range_of_a_graphs(weight):
    with pytest.raises(ValueError, match="Edge weights must be finite and at least"):
        as_edges(sp.csr_array([[weight, 1.0]]), 1, 2)
