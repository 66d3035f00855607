"""What to train: the cells of each study, and the batches that fill them, the same at every start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sobgnn.paper.data import K
from sobgnn.paper.models import MODELS
from sobgnn.paper.models.contract import Network, Predictor, draw_settings
from sobgnn.paper.results import CellKey, Key

SEARCH_SEEDS = 5
FIRST_TEST_SEED = 1000  # the final seeds differ from those of the search

DATASETS = ("isolet", "har", "20news", "cancer")
EXTRA_DATASETS = ("cancer-binary", "20news-stripped")
OURS, DECOUPLED = "S-SobGNN", "D-SobGNN"
ATTENTION = ("GAT", "SuperGAT", "Transformer")
TABLE1_MODELS = (OURS, DECOUPLED, "GCN", "SIGN", "SGC", "Cheby", "MLP", "ClusterGCN", *ATTENTION)
HEADS = {"plain": "", "paper": "head=paper"}  # and the variants that they are
FEW_MODELS = (
    "S-SobGNN", "GCN", "SIGN", "MLP", "SVM", "LabelSpreading", "Laplace", "ShiftedLaplace", "Poisson", "PoissonMBO",
    "SobolevClassifier",
)  # fmt: skip
FEW_LABELS = ("1/class", "2/class", "5/class", "20/class", "10%")

# What the ablations start from: the middle of the search space, filters summed, no graph-free branch.
_BASE: dict[str, Any] = {
    "lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5, "hidden": 64, "alpha": 3, "epsilon": 1.0,
}  # fmt: skip
BASES: dict[str, dict[str, Any]] = {
    OURS: {**_BASE, "layers": 2, "combine": "linear", "self_branch": False},
    DECOUPLED: {**_BASE, "hops": 2, "norm": "layer", "drop_input": False, "smooth": 0.0},
}
ABLATIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    OURS: {
        "alpha": (1, 2, 3, 4, 5, 6),
        "epsilon": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0),
        "self_branch": (False, True),
        "combine": ("linear", "concat"),
        "k": (5, 10, 20, 30, 50),
        "powers": ("hadamard", "matrix"),
        "head": tuple(HEADS),
    },
    DECOUPLED: {
        "alpha": (1, 2, 3, 6),
        "hops": (0, 1, 2, 3),
        "norm": ("none", "layer"),
        "drop_input": (False, True),
        "smooth": (0.0, 0.25, 0.5),
    },
}


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a model on a data set.

    Args:
        labels: ``"10%"`` or ``"n/class"``.
        variant: What differs from the plain model, ``""`` for nothing.
        override: Setting entries that replace drawn ones.
        setting: A setting to use instead of a search.
        trials: Number of settings to search.
        final: Number of final seeds.
        k: Number of neighbors in the graph.
    """

    study: str
    dataset: str
    model: str
    labels: str = "10%"
    variant: str = ""
    override: dict[str, Any] = field(default_factory=dict)
    setting: dict[str, Any] | None = None
    trials: int = 100
    final: int = 50
    k: int = K

    @property
    def name(self) -> str:
        """Readable name."""
        extras = [part for part in (self.variant, "" if self.labels == "10%" else self.labels) if part]
        return f"{self.model}{' (' + ', '.join(extras) + ')' if extras else ''} on {self.dataset}"

    @property
    def id(self) -> CellKey:
        """What the records of its trainings have in common."""
        return CellKey(self.study, self.dataset, self.labels, self.model, self.variant)

    @property
    def search_seeds(self) -> range:
        """Seeds of each setting of the search."""
        return range(min(SEARCH_SEEDS, self.final))

    @property
    def seeds(self) -> range:
        """Final seeds."""
        return range(FIRST_TEST_SEED, FIRST_TEST_SEED + self.final)

    @property
    def size(self) -> int:
        """Number of trainings."""
        return len(self.settings()) * len(self.search_seeds) + self.final

    def settings(self) -> list[dict[str, Any]]:
        """The settings to search, in the order of their published numbers; none if its setting is given."""
        if self.setting is not None:
            return []
        return [{**drawn, **self.override} for drawn in draw_settings(find_model(self.model).space, self.trials)]


class Member(NamedTuple):
    """One training of a batch."""

    trial: int
    setting: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Batch:
    """Trainings that run as one: same cell, same stage, same shapes."""

    cell: Cell
    stage: str
    members: tuple[Member, ...]

    @property
    def keys(self) -> list[Key]:
        """The keys of its records."""
        return [(self.cell.id, self.stage, member.trial, member.seed) for member in self.members]


def find_model(name: str) -> Network | Predictor:
    """The model of this name; an unknown one is an error that lists them."""
    if name not in MODELS:
        raise ValueError(f"There is no model {name!r}. The models are: {', '.join(MODELS)}.")
    return MODELS[name]


def search_batches(cell: Cell, num_nodes: int) -> list[Batch]:
    """All batches of a cell's search: settings of one shape together, all seeds of a setting together."""
    model, seeds = find_model(cell.model), cell.search_seeds
    groups: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
    for trial, setting in enumerate(cell.settings()):
        groups.setdefault(model.shape(trial, setting), []).append((trial, setting))
    batches = []
    for group in groups.values():
        at_once = max(1, model.at_once(group[0][1], num_nodes, len(seeds)) // len(seeds))
        for part in _chunks(group, at_once):
            members = tuple(Member(trial, setting, seed) for trial, setting in part for seed in seeds)
            batches.append(Batch(cell, "search", members))
    return batches


def test_batches(cell: Cell, trial: int, setting: dict[str, Any], num_nodes: int) -> list[Batch]:
    """The batches of a cell's final seeds."""
    at_once = find_model(cell.model).at_once(setting, num_nodes, len(cell.search_seeds))
    parts = _chunks(cell.seeds, at_once)
    return [Batch(cell, "test", tuple(Member(trial, setting, seed) for seed in part)) for part in parts]


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def table1(
    models: Sequence[str] = TABLE1_MODELS,
    datasets: Sequence[str] = DATASETS,
    trials: int = 100,
    seeds: int = 50,
    heads: Sequence[str] = ("plain",),
) -> list[Cell]:
    """The paper's table: each model on each data set, with plain logits or the ``"paper"`` head or both."""
    for head in heads:
        if head not in HEADS:
            raise ValueError(f'`heads` must be "plain" or "paper", but got {head!r}.')
    return [
        _searched(
            "table1",
            dataset,
            model,
            trials,
            seeds,
            variant=HEADS[head],
            override={} if head == "plain" else {"head": head},
        )
        for model in models
        for head in heads
        if head == "plain" or find_model(model).headed
        for dataset in datasets
    ]


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
    own = {OURS: {"combine": "linear"}}
    return [
        _searched("few-labels", dataset, model, trials, seeds, labels=count, override=own.get(model, {}))
        for dataset in datasets
        for model in models
        for count in labels
    ]


def _searched(study: str, dataset: str, model: str, trials: int, seeds: int, **others: Any) -> Cell:
    """A cell with a search, if its model has something to search."""
    setting: dict[str, Any] | None = None if find_model(model).space else {}
    return Cell(study, dataset, model, setting=setting, trials=trials, final=seeds, **others)


def ablations(
    kinds: Sequence[str] | None = None, datasets: Sequence[str] = DATASETS, seeds: int = 20, model: str = OURS
) -> list[Cell]:
    """S-SobGNN or D-SobGNN with one thing changed at a time; nothing is searched.

    Args:
        kinds: What to change; ``None`` for everything that is known for the model.
        datasets: Their names.
        seeds: Number of final seeds.
        model: Which of the two. D-SobGNN without hops is an MLP of the features.
    """
    if model not in ABLATIONS:
        raise ValueError(f"There are ablations of {' and '.join(ABLATIONS)}, but got {model!r}.")
    base, known = BASES[model], ABLATIONS[model]
    kinds = tuple(known) if kinds is None else kinds
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"There is no ablation {kind!r} of {model}. The ablations are: {', '.join(known)}.")
    return [
        Cell(
            "ablations",
            dataset,
            model,
            variant=f"{kind}={value}",
            setting=dict(base) if kind == "k" else {**base, kind: value},
            final=seeds,
            k=value if kind == "k" else K,
        )
        for dataset in datasets
        for kind in kinds
        for value in known[kind]
    ]
