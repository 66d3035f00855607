"""One batch of trainings, from its description to its records."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sobgnn
from sobgnn import propagation
from sobgnn.operators import SobolevOperators
from sobgnn.paper.data import Index, Prepared, Split, development_and_test, per_class, ten_percent
from sobgnn.paper.models import find_model
from sobgnn.paper.models.contract import Labels, Network, Predictor
from sobgnn.paper.models.source import Source
from sobgnn.paper.results import Record
from sobgnn.paper.studies import Batch
from sobgnn.training import Schedule, Task, predict_members, train_members

Score = dict[str, Any]  # the fields of a record that a training gives


EVALUATE_EVERY = 5  # steps between two validations


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
        measures: dict[str, float] = {}
        if isinstance(model, Predictor):
            scores = self._predict(model, batch, splits)
        elif cell.study == "ablations":
            scores, measures = self._measure(model, batch, splits)
        else:
            scores = self._train(model, batch, splits)
        seconds = (time.perf_counter() - start) / len(batch.members)
        return [
            Record(
                cell.study,
                batch.stage,
                cell.dataset,
                cell.labels,
                cell.model,
                cell.variant,
                member.trial,
                dict(member.setting),
                member.seed,
                **score,
                members=len(batch.members),
                seconds=round(seconds, 5),
                versions=versions(),
                device=torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine(),
                measures=measures,
                most_epochs=self.epochs,
                data=self.data.deviation,
            )
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
        call = network.inputs(self.source, settings[0], self.rows)
        schedule = Schedule(self.epochs, lr, decay, self.patience, EVALUATE_EVERY)
        trained = train_members(
            model,
            call.args,
            self._task(splits),
            [member.seed for member in batch.members],
            schedule,
            keywords=call.keywords,
            buffers=buffers,
            cuda_graph=self.cuda_graph,
        )
        tested: Sequence[float | None] = [None] * len(settings)
        if batch.stage == "test":
            call = network.inputs(self.source, settings[0], None)
            model = model.to(self.device)
            logits = predict_members(model, trained.parameters, call.args, call.keywords, buffers=buffers)
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

    def _measure(self, network: Network, batch: Batch, splits: Sequence[Split]) -> tuple[list[Score], dict[str, float]]:
        """A training, and the megabytes of what it propagates with and, on CUDA, of its peak."""
        on_cuda = self.device.type == "cuda"
        if on_cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
            held = torch.cuda.memory_allocated(self.device)  # workspaces of earlier batches, among others
        scores, measures = self._train(network, batch, splits), {}
        read = network.inputs(self.source, batch.members[0].setting, None).args
        if len(read) > 1 and not isinstance(read[1], Tensor):  # else only features: training propagates nothing
            graph = read[1].graph.nbytes if isinstance(read[1], SobolevOperators) else 0
            measures["operator MB"] = (read[1].nbytes + graph) / 1e6
        if on_cuda:
            measures["peak MB"] = (torch.cuda.max_memory_allocated(self.device) - held) / 1e6
        return scores, measures

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
