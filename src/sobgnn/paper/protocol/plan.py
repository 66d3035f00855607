"""What to train: cells of a table, and the batches that fill them, the same at every start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sobgnn.paper.models import find_model
from sobgnn.paper.models.contract import Predictor
from sobgnn.paper.models.space import draw_settings
from sobgnn.paper.protocol.results import Key

SEARCH_SEEDS = 5
FIRST_TEST_SEED = 1000  # the final seeds differ from those of the search

# Approximate maximum number of floats of a batch's members in a step; it bounds memory on the device. It is part of the
# protocol, because the draws of dropout depend on which members share a batch.
_BATCH_FLOATS = 1_500_000_000


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a model on a data set.

    Args:
        study: Which table.
        dataset: Its name.
        model: Its name.
        labels: ``"10%"`` or ``"n/class"``.
        variant: What differs from the plain model, ``""`` for nothing.
        override: Setting entries that replace drawn ones.
        setting: A setting to use instead of a search.
        trials: Number of settings to search.
        search_seeds: Seeds of each of them.
        seeds: Final seeds.
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
    search_seeds: tuple[int, ...] = tuple(range(SEARCH_SEEDS))
    seeds: tuple[int, ...] = tuple(range(FIRST_TEST_SEED, FIRST_TEST_SEED + 50))
    k: int = 30

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"--trials must be at least 1, but got {self.trials}.")

    @property
    def name(self) -> str:
        """Readable name."""
        extras = [part for part in (self.variant, "" if self.labels == "10%" else self.labels) if part]
        return f"{self.model}{' (' + ', '.join(extras) + ')' if extras else ''} on {self.dataset}"

    @property
    def size(self) -> int:
        """Number of trainings."""
        return (0 if self.setting is not None else self.trials * len(self.search_seeds)) + len(self.seeds)

    def settings(self) -> list[dict[str, Any]]:
        """The settings to search, in the order of their published numbers."""
        return [{**drawn, **self.override} for drawn in draw_settings(find_model(self.model).space, self.trials)]


@dataclass(frozen=True)
class Member:
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
    cost: float

    def key(self, member: Member) -> Key:
        """The key of a member's record."""
        cell = self.cell
        return (
            cell.study, self.stage, cell.dataset, cell.labels, cell.model, cell.variant, member.trial, member.seed
        )  # fmt: skip


def search_batches(cell: Cell, num_nodes: int) -> list[Batch]:
    """All batches of a cell's search: settings of one shape together, all seeds of a setting together."""
    if cell.setting is not None:
        return []
    groups: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
    for trial, setting in enumerate(cell.settings()):
        groups.setdefault(_shape(cell, setting, trial), []).append((trial, setting))
    batches = []
    for group in groups.values():
        at_once = max(1, _capacity(cell, group[0][1], num_nodes) // len(cell.search_seeds))
        for part in _chunks(group, at_once):
            members = tuple(Member(trial, setting, seed) for trial, setting in part for seed in cell.search_seeds)
            batches.append(Batch(cell, "search", members, _cost(cell, group[0][1], num_nodes) * len(members)))
    return batches


def test_batches(cell: Cell, trial: int, setting: dict[str, Any], num_nodes: int) -> list[Batch]:
    """The batches of a cell's final seeds."""
    at_once = _capacity(cell, setting, num_nodes)
    cost = _cost(cell, setting, num_nodes)
    return [
        Batch(cell, "test", tuple(Member(trial, setting, seed) for seed in part), cost * len(part))
        for part in _chunks(cell.seeds, at_once)
    ]


def shard(cells: Sequence[Cell], index: int, count: int) -> list[Cell]:
    """Part ``index`` of ``count``, counted from 1: whole cells, so that parts are independent."""
    if not 1 <= index <= count:
        raise ValueError(f"A shard i/n must have 1 <= i <= n, but got {index}/{count}.")
    return list(cells[index - 1 :: count])


def _shape(cell: Cell, setting: dict[str, Any], trial: int) -> Any:
    model = find_model(cell.model)
    return trial if isinstance(model, Predictor) else model.shape(setting)


def _cost(cell: Cell, setting: dict[str, Any], num_nodes: int) -> float:
    """Approximate relative cost of a training."""
    model = find_model(cell.model)
    return float(num_nodes * (model.width if isinstance(model, Predictor) else model.width(setting) + 300))


def _capacity(cell: Cell, setting: dict[str, Any], num_nodes: int) -> int:
    model = find_model(cell.model)
    if isinstance(model, Predictor):
        return len(cell.search_seeds)
    return max(1, _BATCH_FLOATS // (num_nodes * model.width(setting)))


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
