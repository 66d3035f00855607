from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from sobgnn.paper.run import Run
from sobgnn.paper.studies import ABLATIONS, FEW_MODELS, Cell, ablations, few_labels, search_batches, table1


@pytest.mark.parametrize("count", [1, 2, 7])
def test_parts_cover_each_training_once(count: int) -> None:
    cells = table1(("S-SobGNN", "GCN", "SGC"), ("isolet", "har"), trials=12, seeds=7, heads=("plain", "paper"))

    def trainings(part: list[Cell]) -> Counter[object]:
        return Counter(key for cell in part for batch in search_batches(cell, 5000) for key in batch.keys)

    parts = (Run(Path(), torch.device("cpu"), part=(i + 1, count)).cells(cells) for i in range(count))
    together = sum(map(trainings, parts), Counter())
    assert together == trainings(cells)
    assert set(together.values()) == {1}
    assert len(together) == 6 * 2 * 12 * 5  # three plain and three headed models, data sets, trials, seeds


def test_a_batch_shares_what_fixes_shapes_and_holds_all_seeds_of_a_trial() -> None:
    batches = search_batches(Cell("table1", "isolet", "GCN", trials=60), 8000)
    assert len(batches) < 60
    for batch in batches:
        assert len({(m.setting["hidden"], m.setting["layers"]) for m in batch.members}) == 1
        assert set(Counter(m.trial for m in batch.members).values()) == {5}


@pytest.mark.parametrize("model", list(ABLATIONS))
def test_an_ablation_changes_one_thing(model: str) -> None:
    cells = ablations(datasets=("toy",), model=model)
    base = next(cell.setting for cell in cells if cell.variant == "alpha=3") or {}
    for cell in cells:
        kind = cell.variant.partition("=")[0]
        assert {name for name, value in (cell.setting or {}).items() if base.get(name) != value} <= {kind}
        assert cell.k == 30 or kind == "k"


def test_what_has_nothing_to_search_is_not_searched_and_final_seeds_are_those_of_all() -> None:
    estimator, searched = table1(models=["SobolevClassifier", "GCN"], datasets=["isolet"])
    assert (estimator.setting, searched.setting) == ({}, None)
    assert list(estimator.seeds) == list(searched.seeds) == list(range(1000, 1050))
    few = few_labels(datasets=("toy",))
    assert {cell.model for cell in few if cell.setting is None} == {*FEW_MODELS} - {"SobolevClassifier"}
    assert {s["combine"] for cell in few if cell.model == "S-SobGNN" for s in cell.settings()} == {"linear"}
