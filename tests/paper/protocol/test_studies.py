from __future__ import annotations

from pathlib import Path

import pytest

from sobgnn.paper.__main__ import main
from sobgnn.paper.protocol.results import read
from sobgnn.paper.protocol.studies import ABLATIONS, FEW_LABELS, FEW_MODELS, ablations, few_labels, table1


def test_the_few_label_study_has_every_model_at_every_number_of_labels() -> None:
    cells = few_labels(datasets=("toy",))
    assert {(cell.model, cell.labels) for cell in cells} == {(m, x) for m in FEW_MODELS for x in FEW_LABELS}
    ours = [cell for cell in cells if cell.model == "S-SobGNN"]
    assert {setting["combine"] for cell in ours for setting in cell.settings()} == {"linear"}


@pytest.mark.parametrize("model", ["S-SobGNN", "D-SobGNN"])
def test_an_ablation_changes_one_thing(model: str) -> None:
    for cell in ablations(datasets=("toy",), model=model):
        assert cell.model == model
        kind = cell.variant.partition("=")[0]
        others = [c for c in ablations(("alpha",), ("toy",), model=model) if c.variant == "alpha=3"]
        changed = {name for name, value in (cell.setting or {}).items() if (others[0].setting or {}).get(name) != value}
        assert changed <= {kind}
        assert cell.k == 30 or kind == "k"
    with pytest.raises(ValueError, match="no ablation 'depth'"):
        ablations(("depth",))
    with pytest.raises(ValueError, match="ablations of S-SobGNN and D-SobGNN, but got 'GCN'"):
        ablations(model="GCN")
    assert set(ABLATIONS["alpha"]) == {1, 2, 3, 4, 5, 6}


def test_both_studies_run_and_are_reported(folder: Path, tmp_path: Path) -> None:
    common = ["--datasets", "toy", "--data", str(folder), "--out", str(tmp_path / "lines"), "--seeds", "2"]
    common += ["--epochs", "5", "--device", "cpu"]
    few = ["few-labels", *common, "--trials", "1", "--labels", "5/class"]
    assert main([*few, "--models", "S-SobGNN,LabelSpreading,SobolevClassifier"]) == 0
    assert main(["ablations", *common, "--kinds", "self_branch,k,powers"]) == 0
    assert main(["ablations", *common, "--model", "D-SobGNN", "--kinds", "hops"]) == 0
    lines = list(read(tmp_path / "lines"))
    assert len(lines) == 2 * (2 + 2) + 2 + (2 + 5 + 2) * 2 + 4 * 2
    matrix, sparse = (
        next(x.measures["operator MB"] for x in lines if x.variant == f"powers={kind}")
        for kind in ("matrix", "hadamard")
    )
    assert matrix > 2 * sparse
    assert main(["report", "--lines", str(tmp_path / "lines"), "--out", str(tmp_path)]) == 0
    assert "| LabelSpreading |" in (tmp_path / "few_labels.md").read_text()
    told = (tmp_path / "ablations.md").read_text()
    assert "| powers=matrix |" in told
    assert "## D-SobGNN: hops" in told


def test_the_estimator_takes_part_in_table_1_without_a_search() -> None:
    (cell,) = table1(models=["SobolevClassifier"], datasets=["isolet"])
    assert cell.setting == {}
    assert len(cell.seeds) == 50
    (searched,) = table1(models=["GCN"], datasets=["isolet"])
    assert searched.setting is None
    assert searched.seeds == cell.seeds
