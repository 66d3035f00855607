"""Fill the cells of a study: search, choose, test; stop and resume at any batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sobgnn.paper.protocol import data as datafiles
from sobgnn.paper.protocol.evaluate import Limits
from sobgnn.paper.protocol.plan import Batch, Cell, search_batches, test_batches
from sobgnn.paper.protocol.results import Key, Record, Writer, read
from sobgnn.paper.protocol.statistics import exact_mean
from sobgnn.paper.protocol.workers import Trained, TrainingWorker, at_work


@dataclass
class Clock:
    """Trainings done and left, weighted by cost.

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
        """Share of the total cost that is done, from 0 to 1."""
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
    workers: int = 1,
    say: Callable[[str], None] = print,
    progress: Callable[[float, float, str], None] | None = None,
) -> bool:
    """Fill ``cells``, appending to ``out/file`` what no file of ``out`` has yet. False if time ran out.

    Args:
        cells: What to fill, in this order.
        out: Folder of JSON lines.
        device: Where to train.
        folder: Folder of prepared data sets.
        file: File of this process, in ``out``.
        limits: How long a training may take.
        time_limit: Seconds after which to stop between two batches.
        cuda_graph: Record steps on CUDA and replay them.
        workers: Processes that share the batches and the threads; the order of lines then differs.
        say: Called with readable lines.
        progress: Called with the share done, the seconds left and the cell's name after each batch, instead of a line.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, but got {workers}.")
    clock = Clock(time_limit)
    # First: an unknown name must leave no folder behind.
    data = {name: datafiles.load(name, folder) for name in dict.fromkeys(cell.dataset for cell in cells)}
    writer = Writer(out / file)
    known = {record.key: record for record in read(out)}
    fillings = [CellProgress(cell, len(data[cell.dataset].y), known) for cell in cells]
    clock.cost_total = sum(filling.left() for filling in fillings)
    fresh, ready = deque(fillings), deque[tuple[CellProgress, Batch]]()
    running: dict[Future[Trained], tuple[CellProgress, Batch]] = {}

    def advance(filling: CellProgress) -> None:
        """Queue what a cell can train next before everything else."""
        batches = filling.advance()
        ready.extendleft((filling, batch) for batch in reversed(batches))
        if not batches:
            say(filling.line())

    def take() -> tuple[CellProgress, Batch] | None:
        while fresh and not ready:
            advance(fresh.popleft())
        return ready.popleft() if ready else None

    late = False
    try:
        with at_work(TrainingWorker(data, device, limits or Limits(), cuda_graph), workers) as start:
            while True:
                while not late and len(running) < workers and (taken := take()) is not None:
                    late = clock.spent
                    if not late:
                        running[start(taken[1])] = taken
                if not running:
                    return not late
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    filling, batch = running.pop(future)
                    trained, seconds = future.result()
                    records = [record for record in trained if record.key not in known]
                    writer.append(records)
                    known.update((record.key, record) for record in records)
                    clock.add(batch.cell.model, len(records), seconds / workers, batch.cost)
                    if progress is None:
                        say(_line(clock, batch))
                    else:
                        progress(clock.share, clock.left(), batch.cell.name)
                    filling.waiting -= 1
                    if not filling.waiting:
                        advance(filling)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"One of {workers} workers ended, perhaps out of memory. Resume with fewer: {out} holds what is done."
        ) from error
    finally:
        writer.close()
        for model, rate in clock.rates().items():
            say(f"{model}: {clock.counts[model]} trainings, {rate:.0f} per minute")
        say(f"{clock.trainings} trainings in {clock.elapsed:.0f} s")


@dataclass
class CellProgress:
    """A cell that is being filled: its search, then its final seeds.

    Args:
        cell: The cell.
        num_nodes: Number of nodes of its data set.
        known: All existing records, kept up to date by the caller.
        waiting: Number of batches that were started and are not finished yet.
    """

    cell: Cell
    num_nodes: int
    known: dict[Key, Record]
    waiting: int = 0
    _searched: bool = False
    _trial: int = -1

    def advance(self) -> list[Batch]:
        """What is missing of the search or, once that is known, of the final seeds."""
        missing: list[Batch] = []
        if not self._searched:
            missing = self._missing(search_batches(self.cell, self.num_nodes))
            self._searched = True
        if not missing:
            self._trial, setting = choose(self.cell, self.known)
            missing = self._missing(test_batches(self.cell, self._trial, setting, self.num_nodes))
        self.waiting = len(missing)
        return missing

    def left(self) -> float:
        """Remaining cost."""
        cell = self.cell
        batches = search_batches(cell, self.num_nodes)
        cost = sum(batch.cost for batch in self._missing(batches))
        # The final setting is not known yet: the mean of those searched is used instead.
        asked = batches or test_batches(cell, -1, cell.setting or {}, self.num_nodes)
        each = sum(batch.cost for batch in asked) / max(1, sum(len(batch.members) for batch in asked))
        return cost + each * max(0, len(cell.seeds) - len(self._tested()))

    def line(self) -> str:
        """Readable summary, once the cell is filled."""
        values = [record.test_accuracy for record in self._tested() if record.test_accuracy is not None]
        mean = 100 * sum(values) / max(1, len(values))
        return f"{self.cell.name}: setting {self._trial}, test accuracy {mean:.2f} % over {len(values)} seeds"

    def _missing(self, batches: Iterable[Batch]) -> list[Batch]:
        return [batch for batch in batches if any(batch.key(member) not in self.known for member in batch.members)]

    def _tested(self) -> list[Record]:
        cell = self.cell
        prefix = (cell.study, "test", cell.dataset, cell.labels, cell.model, cell.variant)
        return [record for key, record in self.known.items() if key[:6] == prefix]


def choose(cell: Cell, known: dict[Key, Record]) -> tuple[int, dict[str, Any]]:
    """The setting with the best mean validation accuracy over the search's seeds; ties go to the first."""
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


def _line(clock: Clock, batch: Batch) -> str:
    minutes = max(0.0, clock.left()) / 60
    rate = clock.rates()[batch.cell.model]
    return (
        f"{clock.share:6.1%}  {minutes:5.1f} min left  {batch.cell.name}, {batch.stage}: "
        f"{len(batch.members)} at once, {rate:.0f} trainings per minute"
    )
