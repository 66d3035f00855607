"""The studies: which cells each one fills."""

from __future__ import annotations

from collections.abc import Sequence

from sobgnn.baselines import MODELS
from sobgnn.baselines.classical import CLASSICAL
from sobgnn.protocol.plan import FIRST_TEST_SEED, GRAPH_MODELS, HEADED, SEARCH_SEEDS, Cell

DATASETS = ("isolet", "har", "20news", "cancer")
EXTRA_DATASETS = ("cancer-binary", "20news-stripped")
_ORDER = ("S-SobGNN", "GCN", "SIGN", "SGC", "Cheby", "MLP", "ClusterGCN", "GAT", "SuperGAT", "Transformer")
TABLE1_MODELS = tuple(name for name in _ORDER if name in MODELS)


def table1(
    models: Sequence[str] = TABLE1_MODELS,
    datasets: Sequence[str] = DATASETS,
    trials: int = 100,
    seeds: int = 50,
    heads: Sequence[str] = ("plain",),
) -> list[Cell]:
    """The paper's table: each model on each data set, with plain logits or the ``"paper"`` head or both."""
    check_names(models)
    for head in heads:
        if head not in ("plain", "paper"):
            raise ValueError(f'`heads` must be "plain" or "paper", but got {head!r}.')
    cells = []
    for model in models:
        for head in heads:
            if head == "paper" and model not in HEADED:
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
                        trials=trials,
                        search_seeds=tuple(range(min(SEARCH_SEEDS, seeds))),
                        seeds=final_seeds(seeds),
                    )
                )
    return cells


def final_seeds(count: int) -> tuple[int, ...]:
    """The seeds of the final stage."""
    return tuple(range(FIRST_TEST_SEED, FIRST_TEST_SEED + count))


def check_names(models: Sequence[str]) -> None:
    """Raise unless all models are in the tables."""
    for model in models:
        if model not in MODELS and model not in CLASSICAL:
            known = ", ".join([*MODELS, *CLASSICAL])
            raise ValueError(f"There is no model {model!r}. The models are: {known}.")


__all__ = ["DATASETS", "EXTRA_DATASETS", "GRAPH_MODELS", "TABLE1_MODELS", "check_names", "table1"]
