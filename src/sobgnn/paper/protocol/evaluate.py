"""One batch of trainings, from its description to its records."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import sobgnn
from sobgnn import propagation
from sobgnn.operators import SobolevOperators
from sobgnn.paper.models import find_model
from sobgnn.paper.models.contract import Network, Predictor
from sobgnn.paper.models.source import Source
from sobgnn.paper.protocol.data import Prepared
from sobgnn.paper.protocol.plan import Batch, Member
from sobgnn.paper.protocol.results import Record
from sobgnn.paper.protocol.splits import Index, Split, development_and_test, per_class, ten_percent
from sobgnn.training import Schedule, Task, predict_members, train_members


@dataclass(frozen=True)
class Limits:
    """How long a training may take.

    Args:
        epochs: Maximum number of steps.
        patience: Steps without a better validation accuracy after which training stops.
        evaluate_every: Steps between validations.
    """

    epochs: int = 500
    patience: int = 100
    evaluate_every: int = 5


class DatasetRunner:
    """A data set on a device, its division, and the training on it.

    Args:
        data: The data set.
        device: Where to train.
        limits: How long a training may take.
        cuda_graph: Record steps on CUDA and replay them.
    """

    def __init__(self, data: Prepared, device: torch.device, limits: Limits, cuda_graph: bool = True) -> None:
        self.data = data
        self.device = device
        self.limits = limits
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
        splits = [self.split(batch.cell.labels, member.seed) for member in batch.members]
        measured = batch.cell.study == "ablations" and self.device.type == "cuda"
        held = 0
        if measured:
            torch.cuda.reset_peak_memory_stats(self.device)
            held = torch.cuda.memory_allocated(self.device)  # workspaces of earlier batches, among others
        model = find_model(batch.cell.model)
        if isinstance(model, Network):
            scores = self._train(model, batch, splits)
        else:
            scores = self._predict(model, batch, splits)
        measures: dict[str, float] = {}
        if batch.cell.study == "ablations" and isinstance(model, Network):
            measures = self._operator_size(model, batch)
        if measured:
            measures["peak MB"] = (torch.cuda.max_memory_allocated(self.device) - held) / 1e6
        seconds = (time.perf_counter() - start) / len(batch.members)
        return [
            Record(
                batch.cell.study,
                batch.stage,
                batch.cell.dataset,
                batch.cell.labels,
                batch.cell.model,
                batch.cell.variant,
                member.trial,
                dict(member.setting),
                member.seed,
                **score,
                members=len(batch.members),
                seconds=round(seconds, 5),
                versions=versions(),
                device=device_name(self.device),
                measures=measures,
                most_epochs=self.limits.epochs,
                data=self.data.deviation,
            )
            for member, score in zip(batch.members, scores, strict=True)
        ]

    def _train(self, network: Network, batch: Batch, splits: Sequence[Split]) -> list[dict[str, Any]]:
        members = batch.members
        setting = members[0].setting
        model = network.build(self.data.X.shape[1], self.data.num_classes, setting)
        buffers = {
            name: _per_member(members, "dropout", self.device)
            for name, _ in model.named_buffers()
            if name.endswith("dropout.p")
        }
        call = network.inputs(self.source, setting, self.rows)
        schedule = Schedule(
            self.limits.epochs,
            [float(member.setting["lr"]) for member in members],
            [float(member.setting["weight_decay"]) for member in members],
            self.limits.patience,
            self.limits.evaluate_every,
        )
        trained = train_members(
            model,
            call.args,
            self._task(splits),
            [member.seed for member in members],
            schedule,
            keywords=call.keywords,
            buffers=buffers,
            cuda_graph=self.cuda_graph,
        )
        tested: Sequence[float | None] = [None] * len(members)
        if batch.stage == "test":
            call = network.inputs(self.source, setting, None)
            logits = predict_members(
                model.to(self.device), trained.parameters, call.args, call.keywords, buffers=buffers
            )
            predicted = logits.argmax(dim=2).cpu().numpy()
            tested = [accuracy(row, self.data.y, self.test) for row in predicted]
        return [
            {
                "validation_accuracy": round(float(validation), 6),
                "test_accuracy": test,
                "best_epoch": int(best),
                "epochs": trained.epochs,
            }
            for validation, best, test in zip(
                trained.validation_accuracy.tolist(), trained.best_epoch.tolist(), tested, strict=True
            )
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
        """Megabytes of the operators that a batch propagates with: the graph and what is held on top of it."""
        read = network.inputs(self.source, batch.members[0].setting, None).args
        if len(read) == 1 or isinstance(read[1], Tensor):  # only features: nothing is propagated in training
            return {}
        operators = read[1]
        size = operators.nbytes
        if isinstance(operators, SobolevOperators):
            size += operators.graph.nbytes
        return {"operator MB": size / 1e6}

    def _predict(self, model: Predictor, batch: Batch, splits: Sequence[Split]) -> list[dict[str, Any]]:
        """Models that predict all labels from some, trained one after another."""
        scores = []
        for member, split in zip(batch.members, splits, strict=True):
            known = np.full(len(self.data.y), -1)
            known[split.train] = self.data.y[split.train]
            told = {"sizes": self._sizes()} if model.sizes else {}
            predicted = model.predict(self.source, known, member.setting, member.seed, **told)
            scores.append(
                {
                    "validation_accuracy": accuracy(predicted, self.data.y, split.validation),
                    "test_accuracy": accuracy(predicted, self.data.y, self.test) if batch.stage == "test" else None,
                    "best_epoch": 0,
                    "epochs": 0,
                }
            )
        return scores

    def _sizes(self) -> npt.NDArray[np.float64]:
        """Class frequencies among the development points, [C]; test labels are not read."""
        counts = np.bincount(self.data.y[self.development], minlength=self.data.num_classes)
        return np.asarray(counts / counts.sum())


def accuracy(predicted: npt.NDArray[Any], y: npt.NDArray[Any], index: Index) -> float:
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


def device_name(device: torch.device) -> str:
    """Readable name of the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def _per_member(members: Sequence[Member], name: str, device: torch.device) -> Tensor:
    return torch.tensor([float(member.setting[name]) for member in members], device=device)
