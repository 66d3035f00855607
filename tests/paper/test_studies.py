from __future__ import annotations

from collections import Counter

import pytest

from sobgnn.paper.studies import (
    ABLATIONS,
    FEW_LABELS,
    FEW_MODELS,
    Cell,
    ablations,
    few_labels,
    search_batches,
    shard,
    table1,
)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shards_cover_each_training_once(count: int) -> None:
    cells = table1(("S-SobGNN", "GCN", "SGC"), ("isolet", "har"), trials=12, seeds=7, heads=("plain", "paper"))

    def trainings(part: list[Cell]) -> Counter[object]:
        return Counter(key for cell in part for batch in search_batches(cell, 5000) for key in batch.keys)

    together = sum((trainings(shard(cells, index + 1, count)) for index in range(count)), Counter())
    assert together == trainings(cells)
    assert set(together.values()) == {1}
    assert len(together) == 6 * 2 * 12 * 5  # three plain and three headed models, data sets, trials, seeds


def test_a_batch_shares_what_fixes_shapes_and_holds_all_seeds_of_a_trial() -> None:
    batches = search_batches(Cell("table1", "isolet", "GCN", trials=60), 8000)
    assert len(batches) < 60
    for batch in batches:
        assert len({(m.setting["hidden"], m.setting["layers"]) for m in batch.members}) == 1
        assert set(Counter(m.trial for m in batch.members).values()) == {5}


def test_the_few_label_study_has_every_model_at_every_number_of_labels() -> None:
    cells = few_labels(datasets=("toy",))
    assert {(cell.model, cell.labels) for cell in cells} == {(m, x) for m in FEW_MODELS for x in FEW_LABELS}
    ours = [cell for cell in cells if cell.model == "S-SobGNN"]
    assert {setting["combine"] for cell in ours for setting in cell.settings()} == {"linear"}


@pytest.mark.parametrize("model", list(ABLATIONS))
def test_an_ablation_changes_one_thing(model: str) -> None:
    cells = ablations(datasets=("toy",), model=model)
    base = next(cell.setting for cell in cells if cell.variant == "alpha=3") or {}
    for cell in cells:
        kind = cell.variant.partition("=")[0]
        assert {name for name, value in (cell.setting or {}).items() if base.get(name) != value} <= {kind}
        assert cell.k == 30 or kind == "k"


def test_the_estimator_takes_part_in_table_1_without_a_search() -> None:
    estimator, searched = table1(models=["SobolevClassifier", "GCN"], datasets=["isolet"])
    assert (estimator.setting, searched.setting) == ({}, None)
    assert list(estimator.seeds) == list(searched.seeds) == list(range(1000, 1050))


def test_what_is_not_there_is_one_line() -> None:
    for wrong, message in [
        (lambda: shard([], 3, 2), "1 <= i <= n"),
        (lambda: ablations(("depth",)), "no ablation 'depth'"),
        (lambda: ablations(model="GCN"), "ablations of S-SobGNN and D-SobGNN, but got 'GCN'"),
        (lambda: few_labels(labels=("0/class",)), "--labels must be like 5/class"),
        (lambda: table1(heads=("own",)), '"plain" or "paper", but got \'own\''),
        (lambda: table1(trials=0), "--trials must be at least 1, but got 0"),
        (lambda: table1(seeds=0), "--seeds must be at least 1, but got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()
