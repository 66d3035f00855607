"""Two families of networks trained on the same labels: one that reads the graph, one that reads features alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sobgnn.graphs.locality import own_nodes
from sobgnn.nn.conv import Combine, SobolevConv
from sobgnn.nn.mlp import MLP
from sobgnn.nn.model import SSobGNN
from sobgnn.operators import SobolevOperators
from sobgnn.runtime.memory import give_back
from sobgnn.runtime.ranks import Ranks
from sobgnn.training import Members, Progress, Schedule, Task, predict_members, train_members

Stop = Callable[[Progress], "bool | None"]

# Bytes of hidden activations in training (all branches and members); beyond it members train in several batches.
TRAINING_BYTES = 2**30
# Rows that are predicted at once: on a CPU few, whose products take little memory; on a GPU as many as it takes to keep
# it busy while the next block's part of the graph is cut out.
_ROWS_PER_BLOCK = {"cpu": 1 << 12, "cuda": 1 << 18}


@dataclass(frozen=True)
class Network:
    """The shape of a member; as :class:`~sobgnn.SSobGNN` takes it."""

    in_channels: int
    hidden_channels: int
    out_channels: int
    num_layers: int = 2
    alpha: int = 3
    epsilon: float = 1.0
    dropout: float = 0.5
    combine: Combine = "linear"
    self_branch: bool = True

    def graph_model(self) -> SSobGNN:
        """An S-SobGNN of this shape; torch's random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            return SSobGNN(
                self.in_channels,
                self.hidden_channels,
                self.out_channels,
                self.num_layers,
                self.alpha,
                self.epsilon,
                self.dropout,
                self.combine,
                self.self_branch,
            )

    def feature_model(self) -> MLP:
        """A perceptron with as many layers, at least 2, and twice as wide."""
        layers, width = max(2, self.num_layers), 2 * self.hidden_channels
        with torch.random.fork_rng(devices=[]):
            return MLP(self.in_channels, width, self.out_channels, layers, self.dropout)


class Lesson(Protocol):
    """Rows that members learn from."""

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """The points whose logits are wanted."""

    @property
    def seeds(self) -> Sequence[int]:
        """One per member."""

    def task(self, members: slice, device: torch.device) -> Task:
        """What some members learn, a row of logits for each point."""


@dataclass(frozen=True)
class Labels:
    """What S members learn from and stop on.

    Args:
        index: int64 [L], the labelled points.
        codes: int64 [L], their classes.
        weight: float64 [L], each label's weight, by its class.
        fold: int64 [L], in [0, folds), no more folds than members; -1 for labels that no member holds out.
        seeds: One per member. Member s holds out fold s; the members after the last fold learn from all labels.
    """

    index: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    fold: npt.NDArray[np.int64]
    seeds: Sequence[int]

    @property
    def folds(self) -> int:
        """Number of folds; 0 where nothing is held out."""
        return int(self.fold.max()) + 1

    def member_fold(self) -> npt.NDArray[np.int64]:
        """The fold each member holds out [S]; -2 for none."""
        members = np.arange(len(self.seeds))
        return np.where(members < self.folds, members, -2)

    def held_out(self) -> npt.NDArray[np.bool_]:
        """Which labels each member holds out [S, L]."""
        held: npt.NDArray[np.bool_] = self.fold == self.member_fold()[:, None]
        return held

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The labelled points and their classes, int64 [L] each."""
        return torch.from_numpy(self.index).to(device), torch.from_numpy(self.codes).to(device)

    def task(self, members: slice, device: torch.device) -> Task:
        """The training task of some members, whose logits have one row per label."""
        held = self.held_out()[members]
        counted = (held * self.weight).astype(np.float32)
        validation = torch.from_numpy(counted).to(device) if held.any() else None
        weight = np.where(held, 0.0, self.weight)
        weight /= weight.sum(axis=1, keepdims=True)
        return Task(
            torch.from_numpy(self.codes).to(device),
            torch.from_numpy(weight.astype(np.float32)).to(device),
            validation,
        )


def stratified_folds(codes: npt.NDArray[np.int64], folds: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """A fold for each label [L], every class spread over the folds as evenly as it goes."""
    fold = np.empty(len(codes), np.int64)
    offset = 0
    for code in np.unique(codes):
        members = generator.permutation(np.flatnonzero(codes == code))
        # The next class goes on where this one ended, so that small classes do not all fill the first folds.
        fold[members] = (np.arange(len(members)) + offset) % folds
        offset += len(members)
    return fold


def train_graph_members(
    network: Network,
    X: Tensor,
    operators: SobolevOperators,
    labels: Labels,
    schedule: Schedule,
    stop: Stop | None,
    ranks: Ranks | None = None,
) -> Members:
    """Train S-SobGNNs; computes each layer only where the labels read it, on each rank where its share of them does."""
    ranks = ranks or Ranks()
    field = operators.receptive_field(torch.from_numpy(labels.index), network.num_layers)
    branches = network.alpha + network.self_branch
    # Of all labels on any number of ranks, so that members train in the same batches.
    entries = sum(rows.index.numel() for rows in field[:-1]) * network.hidden_channels * branches
    own = own_nodes(operators.graph, labels.index, ranks)
    if ranks.size > 1:
        field = operators.receptive_field(torch.from_numpy(labels.index[own]), network.num_layers)
    x = X[field[0].columns]
    keywords = {"propagated": field[0].propagate(x), "rows": field}
    return _train_in_batches(
        network.graph_model(), (x, operators), keywords, labels, own, schedule, stop, entries, X.device, ranks
    )


def train_feature_members(
    network: Network, X: Tensor, labels: Lesson, schedule: Schedule, stop: Stop | None, ranks: Ranks | None = None
) -> Members:
    """Train perceptrons on the labelled points' features, on each rank on its share of them."""
    ranks = ranks or Ranks()
    own = own_nodes(None, labels.index, ranks)
    nodes = torch.from_numpy(labels.index[own]).to(X.device)
    entries = len(labels.index) * network.hidden_channels * 2
    return _train_in_batches(
        network.feature_model(), (X[nodes],), {"nodes": nodes}, labels, own, schedule, stop, entries, X.device, ranks
    )


def _train_in_batches(
    model: nn.Module,
    inputs: tuple[object, ...],
    keywords: dict[str, object],
    labels: Lesson,
    own: npt.NDArray[np.int64],
    schedule: Schedule,
    stop: Stop | None,
    entries: int,
    device: torch.device,
    ranks: Ranks,
) -> Members:
    total = len(labels.seeds)
    size = max(1, min(total, TRAINING_BYTES // max(1, 4 * entries)))
    parts: list[Members] = []
    for start in range(0, total, size):
        members = slice(start, min(start + size, total))
        task = _rows_of(labels.task(members, device), own)
        if task.validation is None and parts:
            # Members without held-out labels stop where those before them, which have some, were best.
            schedule = replace(schedule, epochs=max(1, int(parts[0].best_epoch[0])))
        parts.append(
            train_members(
                model, inputs, task, labels.seeds[members], schedule, keywords=keywords, progress=stop,
                cuda_graph=ranks.size == 1, sum_over_ranks=ranks.sum,
            )
        )  # fmt: skip
    give_back()
    return _joined(parts)


def _rows_of(task: Task, own: npt.NDArray[np.int64]) -> Task:
    """The task of a rank that computes at rows ``own``; a row -1 does not count."""
    rows = torch.from_numpy(own).to(task.target.device)
    counts = rows >= 0
    return Task(
        task.target[..., rows],
        task.train_weight[:, rows] * counts,
        None if task.validation is None else task.validation[:, rows] * counts,
    )


def _joined(parts: list[Members]) -> Members:
    if len(parts) == 1:
        return parts[0]
    length = max(len(part.history["epoch"]) for part in parts)
    history = {"epoch": max((part.history["epoch"] for part in parts), key=len)}
    for name in parts[0].history:
        if name != "epoch":
            padded = [
                torch.cat([values, values.new_full((length - len(values), values.shape[1]), float("nan"))])
                for values in (part.history[name] for part in parts)
            ]
            history[name] = torch.cat(padded, dim=1)
    return Members(
        {name: torch.cat([part.parameters[name] for part in parts]) for name in parts[0].parameters},
        history,
        torch.cat([part.validation_accuracy for part in parts]),
        torch.cat([part.best_epoch for part in parts]),
        max(part.epochs for part in parts),
    )


@torch.no_grad()
def feature_logits(network: Network, parameters: dict[str, Tensor], X: Tensor, ranks: Ranks | None = None) -> Tensor:
    """Logits of every perceptron at every row of X: [S, N, C]; ranks share the rows."""
    ranks = ranks or Ranks()
    model = network.feature_model().to(X.device)
    out = X.new_empty((len(X), len(next(iter(parameters.values()))), network.out_channels))
    for rows in row_blocks(ranks.part(len(X)), X.device):
        out[rows] = predict_members(model, parameters, (X[rows],)).transpose(0, 1)
        if rows.stop < len(X):
            give_back()
    return ranks.complete(out).transpose(0, 1)


@torch.no_grad()
def graph_states(
    network: Network, parameters: dict[str, Tensor], X: Tensor, operators: SobolevOperators, ranks: Ranks | None = None
) -> list[Tensor]:
    """What each layer of every S-SobGNN gives at every node: [N, S, h] per layer, the last [N, S, C] the logits.

    Ranks share the rows of each layer.
    """
    ranks = ranks or Ranks()
    states: list[Tensor] = []
    layers = network.graph_model().to(X.device).eval().layers
    members = len(next(iter(parameters.values())))
    blocks = list(row_blocks(ranks.part(len(X)), X.device))
    every = torch.arange(len(X), device=X.device)
    # The pattern of a block of rows serves all layers.
    whole = ranks.size * len(blocks) == 1
    rows = [operators if whole else operators.rows(every[block]) for block in blocks]
    signal = X
    for number, layer in enumerate(layers):
        own_parameters = layer_parameters(parameters, number)
        out = X.new_empty((len(X), members, layer.out_channels))
        for block, operator in zip(blocks, rows, strict=True):
            propagated = operator.propagate(signal)
            out[block] = apply_layer(layer, own_parameters, signal[block], propagated)
            if not whole:
                give_back()
        states.append(ranks.complete(out))
        signal = out.flatten(1)
    return states


def apply_layer(layer: SobolevConv, parameters: dict[str, Tensor], own: Tensor, propagated: Tensor) -> Tensor:
    """One layer of every member, [M, S, out], from rows [M, i] that all members share, or [M, S·i] side by side.

    ``propagated`` [M, α, …] is what the operators make of those rows.
    """
    members = len(next(iter(parameters.values())))
    shared = own.shape[1] == layer.in_channels
    if not shared:
        own = own.view(*own.shape[:-1], members, -1)
        propagated = propagated.view(*propagated.shape[:-1], members, -1)

    def one(member: dict[str, Tensor], x: Tensor, filtered: Tensor) -> Tensor:
        result: Tensor = functional_call(layer, member, (x, None), {"propagated": filtered})
        return result

    if members == 1:
        single = {name: value[0] for name, value in parameters.items()}
        return one(single, own if shared else own[:, 0], propagated if shared else propagated[:, :, 0]).unsqueeze(1)
    places = (0, None, None) if shared else (0, 1, 2)
    result: Tensor = vmap(one, in_dims=places, out_dims=1)(parameters, own, propagated)
    return result


def layer_parameters(parameters: dict[str, Tensor], layer: int) -> dict[str, Tensor]:
    """The parameters of one layer, named as that layer names them."""
    prefix = f"convs.{layer}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def row_blocks(rows: slice, device: torch.device) -> Iterator[slice]:
    """Consecutive slices, not too long, that cover some rows."""
    step = _ROWS_PER_BLOCK.get(device.type, 1 << 14)
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def mean_filter_weights(network: Network, parameters: dict[str, Tensor]) -> npt.NDArray[np.float32] | None:
    """How much each filter counts, mean over the S-SobGNNs [layers, branches]; ``None`` without any."""
    if not parameters:
        return None
    model = network.graph_model()
    members = len(next(iter(parameters.values())))
    weights = []
    for member in range(members):
        model.load_state_dict({name: value[member].cpu() for name, value in parameters.items()})
        weights.append(model.filter_weights())
    mean: npt.NDArray[np.float32] = torch.stack(weights).mean(dim=0).numpy()
    return mean


def embedding(states: list[Tensor], points: Tensor, width: int = 32) -> npt.NDArray[np.float32]:
    """Principal components [N, at most 32] of the members' last hidden rows side by side."""
    hidden = states[-1].flatten(1) if states else points
    mean, blocks = hidden.mean(dim=0), list(row_blocks(slice(0, len(hidden)), hidden.device))
    products = hidden.new_zeros((hidden.shape[1], hidden.shape[1]), dtype=torch.float64)
    for rows in blocks:  # a centred copy of all rows would be the largest array of a fit
        centred = hidden[rows] - mean
        products += (centred.T @ centred).double()
    _, vectors = torch.linalg.eigh(products)
    basis = vectors[:, -width:].flip(1).float()
    kept: npt.NDArray[np.float32] = torch.cat([(hidden[rows] - mean) @ basis for rows in blocks]).cpu().numpy()
    return kept
