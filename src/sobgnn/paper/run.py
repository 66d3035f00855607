"""Train the cells of a study: search, choose, test; stop and resume at any batch."""

from __future__ import annotations

import multiprocessing
import platform
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sobgnn
from sobgnn import propagation
from sobgnn.operators import SobolevOperators
from sobgnn.paper import data as datafiles
from sobgnn.paper.data import Index, Prepared, Split, development_and_test, per_class, ten_percent
from sobgnn.paper.models.contract import Labels, Network, Predictor, Source
from sobgnn.paper.results import Key, Record, append, best_trial, exact_mean, read
from sobgnn.paper.studies import Batch, Cell, find_model, search_batches, test_batches
from sobgnn.training import Schedule, Task, predict_members, train_members

Score = dict[str, Any]  # the fields of a record that a training gives

EVALUATE_EVERY = 5  # steps between two validations


@dataclass(frozen=True)
class Run:
    """How a study is run.

    Args:
        out: Folder of JSON lines; a training that any of its files has is not repeated.
        device: Where to train.
        epochs: Maximum number of steps of a training.
        time_limit: Seconds after which to stop between two batches.
        cuda_graph: Record steps on CUDA and replay them.
        part: (i, n): fill part i of n of the cells, whole ones, so that parts are independent; each has its own file.
    """

    out: Path
    device: torch.device
    epochs: int = 500
    time_limit: float | None = None
    cuda_graph: bool = True
    part: tuple[int, int] = (1, 1)

    def cells(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of this part."""
        index, count = self.part
        return list(cells[index - 1 :: count])


def run(cells: Sequence[Cell], how: Run, folder: Path | None = None, workers: int = 1) -> bool:
    """Fill this part's cells, alone or by ``workers`` processes that each fill a part of it. False if time ran out.

    Args:
        cells: Those of one study.
        how: What all of its trainings have in common.
        folder: Folder of prepared data sets.
        workers: Number of processes, which share the threads.
    """
    index, count = how.part
    mine = how.cells(cells)
    # First: an unknown name must leave no folder behind.
    data = {name: datafiles.load(name, folder) for name in dict.fromkeys(cell.dataset for cell in mine)}
    if workers == 1:
        return fill(cells, data, how)
    parts = [(index + count * worker, count * workers) for worker in range(min(workers, len(mine)))]
    threads = max(1, torch.get_num_threads() // workers)
    # Spawned: a process forked from one that uses threads or CUDA may hang.
    spawn = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, spawn, _begin, (threads,)) as pool:
            filling = [pool.submit(fill, cells, data, replace(how, part=part)) for part in parts]
            results = [future.result() for future in filling]  # waits for all, whether or not time ran out
            return all(results)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"One of {workers} workers ended, perhaps out of memory. Resume with fewer: {how.out} holds what is done."
        ) from error


def _begin(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker silently
    torch.set_num_threads(threads)


def fill(cells: Sequence[Cell], data: Mapping[str, Prepared], how: Run) -> bool:
    """Fill the cells of one part in their order, writing every batch when it ends. False if time ran out."""
    start, done = time.perf_counter(), 0
    mine, study, (index, count) = how.cells(cells), cells[0].study, how.part
    known = {record.key: record for record in read(how.out)}
    have = Counter(record.cell for record in known.values())
    left = sum(max(0, cell.size - have[cell.id]) for cell in mine)

    @lru_cache(maxsize=1)
    def runner(dataset: str, k: int) -> DatasetRunner:
        return DatasetRunner(data[dataset].with_k(k), how.device, how.epochs, how.cuda_graph)

    name = f"{study}.jsonl" if count == 1 else f"{study}.{index}-of-{count}.jsonl"
    with _precision(how.device):
        for cell in mine:
            for batch in _batches_left(cell, len(data[cell.dataset].y), known):
                if how.time_limit is not None and time.perf_counter() - start >= how.time_limit:
                    print(f"The time is up: {done} trainings done, about {left} left. Run it again to go on.")
                    return False
                began = time.perf_counter()
                # Train the whole batch, even if some results are known: its random draws depend on all its members.
                records = [record for record in runner(cell.dataset, cell.k).run(batch) if record.key not in known]
                append(how.out / name, records)
                known.update((record.key, record) for record in records)
                done, left = done + len(records), max(0, left - len(records))
                now = time.perf_counter()
                print(
                    f"{done / (done + left):6.1%}  {(now - start) / done * left / 60:5.1f} min left  {cell.name}, "
                    f"{batch.stage}: {len(records)} trainings in {now - began:.1f} s",
                    flush=True,
                )
            trial, _ = _choose(cell, known)
            scores = [known[cell.id, "test", trial, seed].test_accuracy or 0.0 for seed in cell.seeds]
            mean = f"{100 * exact_mean(scores):.2f} % over {len(scores)} seeds"
            print(f"{cell.name}: setting {trial}, test accuracy {mean}", flush=True)
    print(f"{done} trainings in {time.perf_counter() - start:.0f} s", flush=True)
    return True


def _batches_left(cell: Cell, num_nodes: int, known: Mapping[Key, Record]) -> Iterator[Batch]:
    """What is missing of the search and, once that is known, of the final seeds."""
    for batch in search_batches(cell, num_nodes):
        if not known.keys() >= set(batch.keys):
            yield batch
    for batch in test_batches(cell, *_choose(cell, known), num_nodes):
        if not known.keys() >= set(batch.keys):
            yield batch


def _choose(cell: Cell, known: Mapping[Key, Record]) -> tuple[int, dict[str, Any]]:
    """The setting with the best mean validation accuracy over the search's seeds; ties go to the first."""
    if cell.setting is not None:
        return -1, cell.setting
    scores = {
        trial: [known[cell.id, "search", trial, seed].validation_accuracy or 0.0 for seed in cell.search_seeds]
        for trial in range(cell.trials)
    }
    best = best_trial(scores)
    return best, cell.settings()[best]


@contextmanager
def _precision(device: torch.device) -> Iterator[None]:
    """Use TF32 for matrix products on CUDA in the block; this is recorded with every result."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class DatasetRunner:
    """A data set on a device, its division, and the training on it.

    Args:
        data: The data set.
        device: Where to train.
        epochs: Maximum number of steps of a training.
        cuda_graph: Record steps on CUDA and replay them.
        patience: Steps without a better validation accuracy after which a training ends.
    """

    def __init__(
        self, data: Prepared, device: torch.device, epochs: int, cuda_graph: bool = True, patience: int = 100
    ) -> None:
        self.data, self.device, self.epochs, self.patience = data, device, epochs, patience
        self.development, self.test = development_and_test(len(data.y))
        # Rows for training and validation in the search: no test points.
        self.rows = torch.from_numpy(self.development).to(device)
        # The portable backend reads sizes from the device, which cannot be recorded.
        on_triton = device.type == "cuda" and propagation.backend(torch.empty(0, device=device)) == "triton"
        self.cuda_graph = cuda_graph and on_triton
        self.source = Source(data.graph.to(device), torch.from_numpy(data.X).to(device))

    def split(self, labels: str, seed: int) -> Split:
        """Training and validation points of a seed."""
        if labels == "10%":
            return ten_percent(self.development, len(self.data.y), seed)
        # Drawn by class, so it reads labels: only those of development points.
        return per_class(self.development, self.data.y, seed, int(labels.removesuffix("/class")))

    def run(self, batch: Batch) -> list[Record]:
        """Train a batch; test points are scored only in the final stage."""
        start = time.perf_counter()
        cell, model = batch.cell, find_model(batch.cell.model)
        splits = [self.split(cell.labels, member.seed) for member in batch.members]
        on_cuda, measures = self.device.type == "cuda", {}
        if isinstance(model, Predictor):
            scores = self._predict(model, batch, splits)
        else:
            if cell.study == "ablations" and on_cuda:
                torch.cuda.reset_peak_memory_stats(self.device)
                held = torch.cuda.memory_allocated(self.device)  # workspaces of earlier batches, among others
            scores = self._train(model, batch, splits)
            if cell.study == "ablations":
                measures = self._operator_size(model, batch)
                if on_cuda:
                    measures["peak MB"] = (torch.cuda.max_memory_allocated(self.device) - held) / 1e6
        common: Score = {
            **cell.id._asdict(),
            "stage": batch.stage,
            "members": len(batch.members),
            "seconds": round((time.perf_counter() - start) / len(batch.members), 5),
            "versions": versions(),
            "device": torch.cuda.get_device_name(self.device) if on_cuda else platform.machine(),
            "measures": measures,
            "most_epochs": self.epochs,
            "data": self.data.deviation,
        }
        return [
            Record(**common, trial=member.trial, setting=dict(member.setting), seed=member.seed, **score)
            for member, score in zip(batch.members, scores, strict=True)
        ]

    def _train(self, network: Network, batch: Batch, splits: Sequence[Split]) -> list[Score]:
        settings = [member.setting for member in batch.members]
        lr, decay, dropout = (
            [float(setting[name]) for setting in settings] for name in ("lr", "weight_decay", "dropout")
        )
        model = network.build(self.data.X.shape[1], self.data.num_classes, settings[0])
        rates = torch.tensor(dropout, device=self.device)
        buffers = {name: rates for name, _ in model.named_buffers() if name.endswith("dropout.p")}
        trained = train_members(
            model,
            (),
            self._task(splits),
            [member.seed for member in batch.members],
            Schedule(self.epochs, lr, decay, self.patience, EVALUATE_EVERY),
            keywords=network.inputs(self.source, settings[0], self.rows),
            buffers=buffers,
            cuda_graph=self.cuda_graph,
        )
        tested: Sequence[float | None] = [None] * len(settings)
        if batch.stage == "test":
            inputs = network.inputs(self.source, settings[0], None)
            logits = predict_members(model.to(self.device), trained.parameters, (), inputs, buffers=buffers)
            tested = [accuracy(row, self.data.y, self.test) for row in logits.argmax(dim=2).cpu().numpy()]
        validated = [round(float(value), 6) for value in trained.validation_accuracy.tolist()]
        return [
            {"validation_accuracy": known, "test_accuracy": test, "best_epoch": best, "epochs": trained.epochs}
            for known, test, best in zip(validated, tested, trained.best_epoch.tolist(), strict=True)
        ]

    def _task(self, splits: Sequence[Split]) -> Task:
        position = np.full(len(self.data.y), -1)
        position[self.development] = np.arange(len(self.development))
        weight = np.zeros((len(splits), len(self.development)), np.float32)
        validation = np.zeros(weight.shape, dtype=bool)
        for s, split in enumerate(splits):
            weight[s, position[split.train]] = 1 / len(split.train)
            validation[s, position[split.validation]] = True
        target = self.data.y[self.development]
        return Task(*(torch.from_numpy(a).to(self.device) for a in (target, weight, validation)))

    def _operator_size(self, network: Network, batch: Batch) -> dict[str, float]:
        """The megabytes of what a training propagates with; nothing if it reads propagated features only."""
        operators = network.inputs(self.source, batch.members[0].setting, None).get("edge_index")
        if operators is None:
            return {}
        graph = operators.graph.nbytes if isinstance(operators, SobolevOperators) else 0
        return {"operator MB": (operators.nbytes + graph) / 1e6}

    def _predict(self, model: Predictor, batch: Batch, splits: Sequence[Split]) -> list[Score]:
        """Models that predict all labels from some, trained one after another."""
        y, scores = self.data.y, []
        # Class frequencies among the development points: test labels are not read.
        counts = np.bincount(y[self.development], minlength=self.data.num_classes)
        told = {"sizes": counts / counts.sum()} if model.sizes else {}
        for member, split in zip(batch.members, splits, strict=True):
            known = np.full(len(y), -1)
            known[split.train] = y[split.train]
            predicted = model.predict(self.source, known, member.setting, member.seed, **told)
            test = accuracy(predicted, y, self.test) if batch.stage == "test" else None
            validated = accuracy(predicted, y, split.validation)
            scores.append({"validation_accuracy": validated, "test_accuracy": test, "best_epoch": 0, "epochs": 0})
        return scores


def accuracy(predicted: Labels, y: Labels, index: Index) -> float:
    """Share of right labels at some points, to 6 digits."""
    return round(float((predicted[index] == y[index]).mean()), 6)


def versions() -> dict[str, str]:
    """Versions of the software that computes the numbers."""
    return {
        "sobgnn": sobgnn.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "matmul": torch.get_float32_matmul_precision(),
    }
