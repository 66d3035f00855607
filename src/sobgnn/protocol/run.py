"""Fill the cells of a study: search, choose, test; stop and resume at any batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sobgnn.protocol import data as datafiles
from sobgnn.protocol.data import with_k
from sobgnn.protocol.evaluate import Laboratory, Limits
from sobgnn.protocol.plan import Batch, Cell, search_batches, test_batches
from sobgnn.protocol.results import Key, Record, Writer, read
from sobgnn.protocol.statistics import exact_mean


@dataclass
class Clock:
    """Trainings done and to do, weighed by what they cost.

    Args:
        limit: Seconds after which no further batch starts.
    """

    limit: float | None = None
    started: float = field(default_factory=time.perf_counter)
    cost_done: float = 0.0
    cost_total: float = 0.0
    trainings: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @property
    def spent(self) -> bool:
        """Whether the limit has been reached."""
        return self.limit is not None and self.elapsed >= self.limit

    def add(self, model: str, trainings: int, seconds: float, cost: float) -> None:
        """Count a batch."""
        self.trainings += trainings
        self.cost_done += cost
        self.seconds[model] = self.seconds.get(model, 0.0) + seconds
        self.counts[model] = self.counts.get(model, 0) + trainings

    @property
    def share(self) -> float:
        """Part of the whole that is done, from 0 to 1."""
        return min(1.0, self.cost_done / self.cost_total) if self.cost_total else 1.0

    def left(self) -> float:
        """Seconds to the end, at the pace so far."""
        return self.elapsed * (self.cost_total - self.cost_done) / self.cost_done if self.cost_done else float("nan")

    def rates(self) -> dict[str, float]:
        """Trainings per minute of each model."""
        return {model: 60 * count / self.seconds[model] for model, count in self.counts.items()}


def run(
    cells: Sequence[Cell],
    out: Path,
    *,
    device: torch.device,
    folder: Path | None = None,
    file: str = "results.jsonl",
    limits: Limits | None = None,
    time_limit: float | None = None,
    cuda_graph: bool = True,
    say: Callable[[str], None] = print,
    progress: Callable[[float, float, str], None] | None = None,
) -> bool:
    """Fill ``cells``, appending to ``out/file`` what no file of ``out`` has yet. False where time ran out first.

    Args:
        cells: What to fill, in this order.
        out: Folder of JSON lines.
        device: Where to train.
        folder: Of prepared data sets.
        file: Of this process, in ``out``.
        limits: How long a training may take.
        time_limit: Seconds after which to stop between two batches.
        cuda_graph: Record steps on CUDA and replay them.
        say: Takes lines for people.
        progress: Takes the share done, the seconds left and the cell's name after each batch, instead of a line.
    """
    limits = limits or Limits()
    clock = Clock(time_limit)
    # First: a name that is not known must leave no folder behind.
    data = {name: datafiles.load(name, folder) for name in dict.fromkeys(cell.dataset for cell in cells)}
    writer = Writer(out / file)
    known = {record.key: record for record in read(out)}
    sizes = {name: len(loaded.y) for name, loaded in data.items()}
    clock.cost_total = sum(_left(cell, sizes[cell.dataset], known) for cell in cells)
    bench: tuple[tuple[str, int], Laboratory] | None = None
    precision = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32: recorded with every result
    try:
        for cell in cells:
            n = sizes[cell.dataset]

            def fill(batches: Iterable[Batch]) -> bool:
                nonlocal bench
                for batch in batches:
                    missing = [member for member in batch.members if batch.key(member) not in known]
                    if not missing:
                        continue
                    if clock.spent:
                        return False
                    place = (batch.cell.dataset, batch.cell.k)
                    if bench is None or bench[0] != place:
                        bench = (place, Laboratory(with_k(data[place[0]], place[1]), device, limits, cuda_graph))
                    begin = time.perf_counter()
                    # The whole batch runs, also where some of it is known: its draws depend on all its members.
                    records = [r for r in bench[1].run(batch) if r.key not in known]
                    writer.append(records)
                    known.update((record.key, record) for record in records)
                    clock.add(batch.cell.model, len(records), time.perf_counter() - begin, batch.cost)
                    if progress is None:
                        say(_line(clock, batch))
                    else:
                        progress(clock.share, clock.left(), batch.cell.name)
                return True

            if not fill(search_batches(cell, n)):
                return False
            trial, setting = choose(cell, known)
            if not fill(test_batches(cell, trial, setting, n)):
                return False
            say(_cell_line(cell, trial, known))
    finally:
        writer.close()
        torch.set_float32_matmul_precision(precision)
        for model, rate in clock.rates().items():
            say(f"{model}: {clock.counts[model]} trainings, {rate:.0f} per minute")
        say(f"{clock.trainings} trainings in {clock.elapsed:.0f} s")
    return True


def choose(cell: Cell, known: dict[Key, Record]) -> tuple[int, dict[str, Any]]:
    """The setting with the best mean validation accuracy over the search's seeds; the first where some are equal."""
    if cell.setting is not None:
        return -1, cell.setting
    means: dict[int, float] = {}
    settings = cell.settings()
    for trial in range(cell.trials):
        keys = [
            (cell.study, "search", cell.dataset, cell.labels, cell.model, cell.variant, trial, seed)
            for seed in cell.search_seeds
        ]
        means[trial] = exact_mean([known[key].validation_accuracy or 0.0 for key in keys])
    best = max(means, key=lambda trial: (means[trial], -trial))
    return best, settings[best]


def _left(cell: Cell, num_nodes: int, known: dict[Key, Record]) -> float:
    """What of a cell is still to be paid."""
    batches = search_batches(cell, num_nodes)
    cost = sum(b.cost for b in batches if any(b.key(member) not in known for member in b.members))
    # The final setting is not known yet: the mean of those searched stands for it.
    asked = batches or test_batches(cell, -1, cell.setting or {}, num_nodes)
    each = sum(b.cost for b in asked) / max(1, sum(len(b.members) for b in asked))
    done = sum(
        1 for key in known if key[:6] == (cell.study, "test", cell.dataset, cell.labels, cell.model, cell.variant)
    )
    return cost + each * max(0, len(cell.seeds) - done)


def _line(clock: Clock, batch: Batch) -> str:
    minutes = max(0.0, clock.left()) / 60
    rate = clock.rates()[batch.cell.model]
    return (
        f"{clock.share:6.1%}  {minutes:5.1f} min left  {batch.cell.name}, {batch.stage}: "
        f"{len(batch.members)} at once, {rate:.0f} trainings per minute"
    )


def _cell_line(cell: Cell, trial: int, known: dict[Key, Record]) -> str:
    prefix = (cell.study, "test", cell.dataset, cell.labels, cell.model, cell.variant)
    values = [r.test_accuracy for key, r in known.items() if key[:6] == prefix and r.test_accuracy is not None]
    mean = 100 * sum(values) / max(1, len(values))
    return f"{cell.name}: setting {trial}, test accuracy {mean:.2f} % over {len(values)} seeds"
