from __future__ import annotations

from collections import Counter

import pytest

from sobgnn.paper.protocol.plan import Cell, search_batches, shard
from sobgnn.paper.protocol.studies import table1


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_cover_each_training_once(count: int) -> None:
    cells = table1(("S-SobGNN", "GCN", "SGC"), ("isolet", "har"), trials=12, seeds=7, heads=("plain", "paper"))

    def trainings(part: list[Cell]) -> Counter[object]:
        return Counter(batch.key(m) for cell in part for batch in search_batches(cell, 5000) for m in batch.members)

    parts = [shard(cells, index + 1, count) for index in range(count)]
    together = sum((trainings(part) for part in parts), Counter())
    assert together == trainings(cells)
    assert set(together.values()) == {1}
    assert len(together) == 6 * 2 * 12 * 5  # three plain and three headed models, data sets, trials, seeds


def test_a_batch_shares_what_fixes_shapes_and_holds_all_seeds_of_a_trial() -> None:
    cell = Cell("table1", "isolet", "GCN", trials=60)
    batches = search_batches(cell, 8000)
    assert len(batches) < 60
    for batch in batches:
        assert len({(m.setting["hidden"], m.setting["layers"]) for m in batch.members}) == 1
        assert set(Counter(m.trial for m in batch.members).values()) == {5}


def test_a_shard_outside_its_count_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 <= i <= n"):
        shard([], 3, 2)
