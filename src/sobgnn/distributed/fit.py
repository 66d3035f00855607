"""Train an S-SobGNN over all ranks and label every node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.distributed.operators import RankOperators
from sobgnn.distributed.partition import Partition
from sobgnn.graphs.graph import Graph
from sobgnn.nn.model import SSobGNN
from sobgnn.runtime.ranks import Ranks, joined
from sobgnn.training import Members, Progress, Schedule, Task, predict_members, train_members
from sobgnn.training.checkpoint import FileCheckpoint


@dataclass(frozen=True)
class RankFit:
    """One rank's result of :func:`fit_over_ranks`.

    Attributes:
        members: The trained members; the same on every rank.
        nodes: int64 [n], the nodes this rank holds.
        probabilities: [n, C], the members' mean at those nodes.
        halo_share: Number of rows fetched from others per row held.
        boundary: Number of rows that others fetch from this rank, counted each time.
        bytes_sent: Total bytes sent by this rank.
    """

    members: Members
    nodes: Tensor
    probabilities: Tensor
    halo_share: float
    boundary: int
    bytes_sent: int


def fit_over_ranks(
    model: SSobGNN,
    graph: Graph,
    X: npt.NDArray[Any],
    train_weight: npt.NDArray[np.float32],
    target: npt.NDArray[np.int64],
    seeds: Sequence[int],
    schedule: Schedule,
    *,
    validation: npt.NDArray[np.bool_] | None = None,
    partition: Partition | None = None,
    checkpoint: str | Path | None = None,
    progress: Callable[[Progress], bool | None] | None = None,
) -> RankFit:
    """Train members of ``model`` on the whole graph, each rank holding some of its rows; called by all ranks.

    The result is that of one process, up to the order in which sums are rounded.

    Args:
        model: Its α and ε define the operators.
        graph: The whole graph, preferably memory-mapped; only this rank's rows are read.
        X: Features [N, F], converted to the model's precision; of a memory map, only this rank's rows are read.
        train_weight: [S, L] for L labeled nodes: row weights of :class:`~sobgnn.training.Task`.
        target: int64 [N], the class of each node, -1 if unknown; the L known ones, in order, are the columns of
            ``train_weight`` and ``validation``.
        seeds: One per member.
        schedule: How long and how fast.
        validation: bool [S, L], or ``None``.
        partition: Which rank holds what; by default balanced by edges after a locality ordering.
        checkpoint: File for the state of training; if it exists, training resumes from it.
        progress: Called on every rank.
    """
    with joined() as ranks:
        device = ranks.device
        partition = partition or Partition.of(graph, ranks.size)
        operators = RankOperators(graph, partition, model.alpha, model.epsilon, device=device, group=ranks.group)
        nodes = operators.nodes.cpu().numpy()
        x = _own_points(X, nodes, next(model.parameters()).dtype, ranks).to(device)
        task = _own_task(nodes, target, train_weight, validation, device)
        propagated = operators.propagate(x)
        keep = None if checkpoint is None else FileCheckpoint(checkpoint, writer=ranks.rank == 0)
        members = train_members(
            model,
            (x, operators),
            task,
            seeds,
            schedule,
            keywords={"propagated": propagated},
            progress=progress,
            sum_over_ranks=ranks.sum,
            checkpoint=keep,
        )
        logits = predict_members(model.to(device), members.parameters, (x, operators), {"propagated": propagated})
        probabilities = logits.softmax(dim=2).mean(dim=0)
        exchange = operators.exchange
        boundary, sent = len(exchange.send_index), exchange.bytes_sent + ranks.bytes_sent
        return RankFit(members, operators.nodes, probabilities, operators.halo_share, boundary, sent)


def gather_by_node(own: Tensor, partition: Partition) -> Tensor:
    """Rows of all ranks [N, ...] in the order of nodes, on every rank."""
    rows = own.new_empty((len(partition.order), *own.shape[1:]))
    with joined() as ranks:
        rows[partition.bounds[ranks.rank] : partition.bounds[ranks.rank + 1]] = own
        ranks.complete(rows, partition.bounds.tolist())
    by_node = torch.empty_like(rows)
    by_node[torch.from_numpy(partition.order).to(rows.device)] = rows
    return by_node


def _own_points(X: npt.NDArray[Any], nodes: npt.NDArray[np.int64], dtype: torch.dtype, ranks: Ranks) -> Tensor:
    """This rank's rows of X; raises on every rank if any row of X is not finite in the model's precision."""
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(X[nodes], np.float64 if dtype == torch.float64 else np.float32)
    bad = nodes[~np.isfinite(rows).all(axis=1)]
    counts, firsts = zip(*ranks.all([len(bad), int(bad.min(initial=len(X)))]), strict=True)
    if sum(counts):
        raise ValueError(
            f"X has {sum(counts):,} row{'s' * (sum(counts) > 1)} with NaN, infinite or too large values (first: row "
            f"{min(firsts)}). Replace or drop them: they would make every weight NaN."
        )
    return torch.from_numpy(rows).to(dtype)


def _own_task(
    nodes: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    train_weight: npt.NDArray[np.float32],
    validation: npt.NDArray[np.bool_] | None,
    device: torch.device,
) -> Task:
    """This rank's columns of the task, one per node it holds."""
    column = np.full(len(target), -1)
    known = np.flatnonzero(target >= 0)
    column[known] = np.arange(len(known))
    own = column[nodes]
    weight = np.zeros((len(train_weight), len(nodes)), np.float32)
    weight[:, own >= 0] = train_weight[:, own[own >= 0]]
    held = None
    if validation is not None:
        held = np.zeros(weight.shape, bool)
        held[:, own >= 0] = validation[:, own[own >= 0]]
    return Task(
        torch.from_numpy(np.maximum(target[nodes], 0)).to(device),
        torch.from_numpy(weight).to(device),
        None if held is None else torch.from_numpy(held).to(device),
    )
