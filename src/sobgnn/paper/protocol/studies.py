"""The studies: which cells each one fills."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sobgnn.paper.models import find_model
from sobgnn.paper.models.contract import Network
from sobgnn.paper.protocol.data import K
from sobgnn.paper.protocol.plan import FIRST_TEST_SEED, SEARCH_SEEDS, Cell

DATASETS = ("isolet", "har", "20news", "cancer")
EXTRA_DATASETS = ("cancer-binary", "20news-stripped")
OURS = "S-SobGNN"
ATTENTION = ("GAT", "SuperGAT", "Transformer")
DECOUPLED = "D-SobGNN"
TABLE1_MODELS = (OURS, DECOUPLED, "GCN", "SIGN", "SGC", "Cheby", "MLP", "ClusterGCN", *ATTENTION)


def table1(
    models: Sequence[str] = TABLE1_MODELS,
    datasets: Sequence[str] = DATASETS,
    trials: int = 100,
    seeds: int = 50,
    heads: Sequence[str] = ("plain",),
) -> list[Cell]:
    """The paper's table: each model on each data set, with plain logits or the ``"paper"`` head or both."""
    for head in heads:
        if head not in ("plain", "paper"):
            raise ValueError(f'`heads` must be "plain" or "paper", but got {head!r}.')
    cells = []
    for model in models:
        row = find_model(model)
        for head in heads:
            if head == "paper" and not (isinstance(row, Network) and row.headed):
                continue
            for dataset in datasets:
                override = {"head": "paper"} if head == "paper" else {}
                variant = "head=paper" if override else ""
                cells.append(
                    Cell(
                        "table1",
                        dataset,
                        model,
                        variant=variant,
                        override=override,
                        setting=None if row.space else {},
                        trials=trials,
                        search_seeds=tuple(range(min(SEARCH_SEEDS, seeds))),
                        seeds=final_seeds(seeds),
                    )
                )
    return cells


FEW_MODELS = (
    "S-SobGNN", "GCN", "SIGN", "MLP", "SVM", "LabelSpreading", "Laplace", "ShiftedLaplace", "Poisson", "PoissonMBO",
    "SobolevClassifier",
)  # fmt: skip
FEW_LABELS = ("1/class", "2/class", "5/class", "20/class", "10%")


def few_labels(
    models: Sequence[str] = FEW_MODELS,
    datasets: Sequence[str] = DATASETS,
    labels: Sequence[str] = FEW_LABELS,
    trials: int = 10,
    seeds: int = 20,
) -> list[Cell]:
    """Each model, searched at each number of labels; S-SobGNN with its filters summed, as in the paper."""
    for count in labels:
        if not re.fullmatch(r"10%|[1-9]\d*/class", count):
            raise ValueError(f"--labels must be like 5/class or 10%, but got {count!r}.")
    return [
        Cell(
            "few-labels",
            dataset,
            model,
            labels=count,
            override={"combine": "linear"} if model == "S-SobGNN" else {},
            setting=None if find_model(model).space else {},
            trials=trials,
            search_seeds=tuple(range(min(SEARCH_SEEDS, seeds))),
            seeds=final_seeds(seeds),
        )
        for dataset in datasets
        for model in models
        for count in labels
    ]


# What the ablations start from: the middle of the search space, filters summed, no graph-free branch.
BASE: dict[str, Any] = {
    "lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5, "hidden": 64, "layers": 2, "alpha": 3, "epsilon": 1.0,
    "combine": "linear", "self_branch": False,
}  # fmt: skip
ABLATIONS: dict[str, tuple[Any, ...]] = {
    "alpha": (1, 2, 3, 4, 5, 6),
    "epsilon": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0),
    "self_branch": (False, True),
    "combine": ("linear", "concat"),
    "k": (5, 10, 20, 30, 50),
    "powers": ("hadamard", "matrix"),
    "head": ("plain", "paper"),
}


DECOUPLED_BASE: dict[str, Any] = {
    "lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5, "hidden": 64, "alpha": 3, "epsilon": 1.0, "hops": 2,
    "norm": "layer", "drop_input": False, "smooth": 0.0,
}  # fmt: skip
DECOUPLED_ABLATIONS: dict[str, tuple[Any, ...]] = {
    "alpha": (1, 2, 3, 6),
    "hops": (0, 1, 2, 3),
    "norm": ("none", "layer"),
    "drop_input": (False, True),
    "smooth": (0.0, 0.25, 0.5),
}


def ablations(
    kinds: Sequence[str] | None = None, datasets: Sequence[str] = DATASETS, seeds: int = 20, model: str = "S-SobGNN"
) -> list[Cell]:
    """S-SobGNN or D-SobGNN with one thing changed at a time; nothing is searched.

    Args:
        kinds: What to change; ``None`` for everything that is known for the model.
        datasets: Their names.
        seeds: Number of final seeds.
        model: Which of the two. D-SobGNN without hops is an MLP of the features.
    """
    if model not in (OURS, DECOUPLED):
        raise ValueError(f"There are ablations of S-SobGNN and {DECOUPLED}, but got {model!r}.")
    base, known = (DECOUPLED_BASE, DECOUPLED_ABLATIONS) if model == DECOUPLED else (BASE, ABLATIONS)
    kinds = tuple(known) if kinds is None else kinds
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"There is no ablation {kind!r} of {model}. The ablations are: {', '.join(known)}.")
    cells = []
    for dataset in datasets:
        for kind in kinds:
            for value in known[kind]:
                setting = base if kind == "k" else {**base, kind: value}
                cells.append(
                    Cell(
                        "ablations",
                        dataset,
                        model,
                        variant=f"{kind}={value}",
                        setting=dict(setting),
                        seeds=final_seeds(seeds),
                        k=value if kind == "k" else K,
                    )
                )
    return cells


def final_seeds(count: int) -> tuple[int, ...]:
    """The seeds of the final stage."""
    if count < 1:
        raise ValueError(f"--seeds must be at least 1, but got {count}.")
    return tuple(range(FIRST_TEST_SEED, FIRST_TEST_SEED + count))
