"""What each rank of a test does: train on a small graph and, as rank 0, write what came out."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist

from sobgnn import SSobGNN, knn_graph
from sobgnn.distributed import Partition, fit_over_ranks, gather_by_node, joined
from sobgnn.training import Progress, Schedule


def problem() -> dict[str, object]:
    """In float64: ranks sum in another order than one process, and Adam would make steps of float32's roundings."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(120, 6))
    y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
    target = np.where(np.arange(120) % 3 == 0, y, -1)
    known = int((target >= 0).sum())
    weight = np.full((2, known), 1 / (known // 2), np.float32)
    validation = np.zeros((2, known), bool)
    validation[0, ::2] = validation[1, 1::2] = True
    weight[validation] = 0
    return {"X": X, "target": target, "train_weight": weight, "validation": validation}


SCHEDULE = Schedule(epochs=40, evaluate_every=4, patience=None)


def model() -> SSobGNN:
    return SSobGNN(6, 8, 3, num_layers=3, alpha=3, epsilon=0.75, dropout=0.5, self_branch=True).double()


def main(out: Path, kill_rank: int, kill_epoch: int) -> None:
    with joined():
        graph = knn_graph(problem()["X"], k=6)
        partition = Partition.of(graph, dist.get_world_size())

        def progress(done: Progress) -> None:
            if dist.get_rank() == kill_rank and done.epoch >= kill_epoch:
                os.kill(os.getpid(), signal.SIGKILL)

        fit = fit_over_ranks(
            model(), graph, seeds=[3, 4], schedule=SCHEDULE, partition=partition,
            checkpoint=out / "checkpoint.safetensors", progress=progress, **problem(),
        )  # fmt: skip
        probabilities = gather_by_node(fit.probabilities, partition)
        if dist.get_rank() == 0:
            weights = {name: value.cpu().numpy() for name, value in fit.members.parameters.items()}
            values = {"probabilities": probabilities.cpu().numpy(), "best_epoch": fit.members.best_epoch.cpu().numpy()}
            np.savez(out / "result.npz", halo=fit.halo_share, **values, **weights)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
