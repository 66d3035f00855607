"""The paper's S-SobGNN: layers of sparse Sobolev convolutions, trained on the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.estimator.settings import Networks
from sobgnn.runtime.process import own_random_state
from sobgnn.training import Progress, Schedule, Task, train_members

if TYPE_CHECKING:  # layers are PyG's, which takes over a second to import: only where this family is fitted
    from sobgnn.nn import SobolevConv, SSobGNN

# Steps without a better validation loss after which training stops, and steps between two validations.
_PATIENCE, _EVALUATE_EVERY = 60, 5


class SSobGNNs:
    r"""Sparse Sobolev graph neural networks as in the paper:

    .. math:: H^{(l+1)} = \sum_\rho \mu_\rho \, \mathrm{ReLU}(\hat{A}_\rho H^{(l)} W_\rho^{(l)} + b_\rho^{(l)}) .

    Each layer is computed only at the nodes that the labels depend on. Members stop at the step that predicts all
    held-out labels best; if nothing is held out, they train to the end.
    """

    name: ClassVar[str] = "s-sobgnn"
    on_graph: ClassVar[bool] = True
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True

    def __init__(self, view: str) -> None:
        self.view = view

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Never by default: this family is used only by name, as in ``SobolevClassifier.paper()``."""
        return False

    def fit(self, problem: Problem, labels: Labels) -> FittedSSobGNNs:
        """Train members without each fold and from all labels, as one batch."""
        settings, operators = problem.networks, problem.views[self.view].operators
        members = labels.folds + max(1, settings.members - labels.folds)
        signal = np.minimum(np.arange(members), labels.folds)
        held = (~labels.known() * labels.weight)[signal]
        task = Task(
            torch.from_numpy(labels.codes).to(problem.device),
            torch.from_numpy(labels.shares()[signal]).float().to(problem.device),
            torch.from_numpy(held).float().to(problem.device) if labels.folds else None,
        )
        schedule = Schedule(
            settings.epochs, settings.lr, settings.weight_decay, _PATIENCE, _EVALUATE_EVERY, together=True
        )
        field = operators.receptive_field(torch.from_numpy(labels.index), settings.num_layers)
        x = problem.points[field[0].columns]

        def seen(at: Progress) -> bool:
            return problem.tell(
                self.name, at.epoch, at.epochs, at.train_loss, at.validation_loss, at.validation_accuracy
            )

        seeds = [int(seed) for seed in problem.generator(self.name).integers(2**31, size=members)]
        trained = train_members(
            _model(settings, problem), (x, operators), task, seeds, schedule,
            keywords={"propagated": field[0].propagate(x), "rows": field}, progress=seen, cuda_graph=True,
        )  # fmt: skip
        history = {name: curve.double().flatten(1).mean(1).tolist() if curve.ndim > 1 else curve.tolist()
                   for name, curve in trained.history.items()}  # fmt: skip
        return _propagated(trained.parameters, problem, self.view, labels.folds, history)

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedSSobGNNs:
        """Restore from the members' weights; their hidden rows are recomputed."""
        settings = problem.networks
        layers = {name.split(".")[1] for name in arrays if name.startswith("convs.")}
        # Layers are counted first, and shapes compared without allocating the parameters: a file may claim anything.
        fits = len(layers) == settings.num_layers
        if fits:
            with torch.device("meta"):
                expected = {name: tuple(v.shape) for name, v in _network(settings, problem).named_parameters()}
            fits = {name: tuple(value.shape[1:]) for name, value in arrays.items()} == expected
        if not fits:
            raise ValueError("its networks do not have the shape given in its config.json")
        return _propagated(dict(arrays), problem, self.view, 0, {})


@dataclass(frozen=True)
class FittedSSobGNNs:
    """Trained members.

    Attributes:
        parameters: Stacked, [S, ...]; the last ``n_members`` members, or all if there are fewer, are used for
            predictions.
        states: Output of each layer of every member at every node: [N, S, h]; the last, [N, S, C], holds the logits.
        folds: Number of members that hold out a fold; they come first.
        problem: The problem that they learned from.
        view: The name of their graph.
        history: Training curves by name.
    """

    parameters: dict[str, Tensor]
    states: list[Tensor]
    folds: int
    problem: Problem
    view: str
    history: dict[str, list[float]] = field(default_factory=dict)

    def probabilities(self) -> Tensor:
        """Each fold's member, and last the mean of the members used for predictions: [folds + 1, N, C]."""
        own = self.states[-1].transpose(0, 1).softmax(dim=2)
        return torch.cat([own[: self.folds], own[-self.problem.networks.members :].mean(dim=0, keepdim=True)])

    def predict(self, new: NewPoints) -> Tensor:
        """The mean of the members used for predictions, [M, C]; new points read neighbors, which stay unchanged."""
        nodes, own, joined = new.nodes, new.points, new.joined[self.view]
        for number, layer in enumerate(_model(self.problem.networks, self.problem).eval().layers):
            out = _apply_layer(layer, _of_layer(self.parameters, number), own, joined.propagate(nodes, own))
            nodes, own = self.states[number].flatten(1), out.flatten(1)
        return out.softmax(dim=2)[:, -self.problem.networks.members :].mean(dim=1)

    def hidden(self) -> Tensor:
        """The members' last hidden rows, [N, S · h]."""
        return self.states[-2].flatten(1) if len(self.states) > 1 else self.problem.points

    def arrays(self) -> dict[str, Tensor]:
        """The members' weights."""
        return {name: value.contiguous() for name, value in self.parameters.items()}


def _model(settings: Networks, problem: Problem) -> SSobGNN:
    """A network with these settings on the points' device; torch's random state is not changed."""
    with own_random_state():
        return _network(settings, problem).to(problem.device)


def _network(settings: Networks, problem: Problem) -> SSobGNN:
    from sobgnn.nn import SSobGNN

    return SSobGNN(
        problem.points.shape[1], settings.hidden_channels, problem.classes, settings.num_layers, settings.alpha,
        settings.epsilon, settings.dropout,
    )  # fmt: skip


@torch.no_grad()
def _propagated(
    parameters: dict[str, Tensor], problem: Problem, view: str, folds: int, history: dict[str, list[float]]
) -> FittedSSobGNNs:
    operators = problem.views[view].operators
    states: list[Tensor] = []
    signal = problem.points
    for number, layer in enumerate(_model(problem.networks, problem).eval().layers):
        out = _apply_layer(layer, _of_layer(parameters, number), signal, operators.propagate(signal))
        states.append(out)
        signal = out.flatten(1)
    return FittedSSobGNNs(parameters, states, folds, problem, view, history)


def _apply_layer(layer: SobolevConv, parameters: dict[str, Tensor], own: Tensor, propagated: Tensor) -> Tensor:
    """One layer of every member, [M, S, out], from rows [M, i] that all members share, or [M, S·i] side by side.

    ``propagated`` [M, α, …] is the result of the operators on those rows.
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


def _of_layer(parameters: dict[str, Tensor], layer: int) -> dict[str, Tensor]:
    """The parameters of one layer, named as that layer names them."""
    prefix = f"convs.{layer}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
