from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sobgnn.propagation.attention import EdgePattern
from sobgnn.propagation.attention.walks import Cut, Long


def pattern(row_degrees: list[int], node_degrees: list[int]) -> EdgePattern:
    """Edges of which only the pointers are read."""

    def pointers(degrees: list[int]) -> Tensor:
        return torch.tensor([0, *degrees]).cumsum(0)

    count = sum(row_degrees)
    assert count == sum(node_degrees)
    other, weight = torch.zeros(count, dtype=torch.int32), torch.ones(count)
    return EdgePattern(pointers(row_degrees), other, weight, pointers(node_degrees), other, weight)


ROWS, NODES = [7, 0, 4, 12, 5, 6], [20, 3, 11]


@pytest.mark.parametrize("segment", [1, 3, 4, 100])
def test_segments_are_the_edges_of_long_rows_once_and_in_order(segment: int) -> None:
    edges = pattern(ROWS, NODES)
    long = Long.of(edges, most=5, segment=segment)
    for cut, indptr, want in ((long.rows, edges.indptr, [0, 3, 5]), (long.nodes, edges.t_indptr, [0, 2])):
        assert isinstance(cut, Cut)
        assert cut.segments.dtype == cut.merged.dtype == torch.int32
        assert cut.merged[0].tolist() == want
        assert cut.merged[1].tolist() == [0, *cut.merged[2, :-1].tolist()]
        assert int(cut.merged[2, -1]) == cut.segments.shape[1]
        for row, begin, end in cut.merged.T.tolist():
            own = cut.segments[:, begin:end].T.tolist()
            assert {place for place, _, _ in own} == {row}
            assert all(0 < last - first <= segment for _, first, last in own)
            walked = [edge for _, first, last in own for edge in range(first, last)]
            assert walked == list(range(int(indptr[row]), int(indptr[row + 1])))


def test_rows_are_cut_where_one_has_over_twice_as_many_edges_as_are_walked_at_once() -> None:
    edges = pattern(ROWS, NODES)
    assert Long.of(edges, most=10) == (None, None, 10)
    only_nodes = Long.of(edges, most=6)  # the longest row has 12
    assert only_nodes.rows is None
    assert only_nodes.nodes is not None
    assert only_nodes.nodes.merged[0].tolist() == [0, 2]
    assert Long.of(pattern([512, 300], [512, 300])).rows is None
    assert Long.of(pattern([513, 300], [513, 300])).rows is not None
