"""The paper's S-SobGNN: layers of sparse Sobolev convolutions, trained on the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from sobgnn._system.process import own_random_state
from sobgnn.estimator.families.contract import Family, FittedFamily, Graphs, Learned
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import LARGEST, NAN_ALLOWED
from sobgnn.estimator.validation import Networks
from sobgnn.training import Progress, Schedule, Task, train_members

if TYPE_CHECKING:  # layers are PyG's, which takes over a second to import: only where this family is fitted
    from sobgnn.nn import SobolevConv, SSobGNN

# Steps without a better validation loss after which training stops, and steps between two validations.
_PATIENCE, _EVALUATE_EVERY = 60, 5


class SSobGNNs(Family):
    r"""Sparse Sobolev graph neural networks as in the paper:

    .. math:: H^{(l+1)} = \sum_\rho \mu_\rho \, \mathrm{ReLU}(\hat{A}_\rho H^{(l)} W_\rho^{(l)} + b_\rho^{(l)}) .

    Each layer is computed only at the nodes that the labels depend on. Members stop at the step that predicts all
    held-out labels best; if nothing is held out, they train to the end.
    """

    name: ClassVar[str] = "s-sobgnn"
    title: ClassVar[str] = "S-SobGNN"
    explained: ClassVar[str] = "the paper's network on the graph"
    graphs: ClassVar[Graphs] = "any"

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Train members without each fold and from all labels, as one batch."""
        settings, operators = points.networks, points.graphs[self.graph].operators
        members = labels.folds + max(1, settings.n_members - labels.folds)
        signal = np.minimum(np.arange(members), labels.folds)
        held = (~labels.known() * labels.weight)[signal]
        task = Task(
            torch.from_numpy(labels.codes).to(points.device),
            torch.from_numpy(labels.shares()[signal]).float().to(points.device),
            torch.from_numpy(held).float().to(points.device) if labels.folds else None,
        )
        schedule = Schedule(
            settings.epochs, settings.lr, settings.weight_decay, _PATIENCE, _EVALUATE_EVERY, shared_early_stopping=True
        )
        field = operators.receptive_field(torch.from_numpy(labels.index), settings.num_layers)
        x = points.points[field[0].columns]

        def seen(at: Progress) -> bool:
            return points.report(
                self.name, at.epoch, at.epochs, at.train_loss, at.validation_loss, at.validation_accuracy
            )

        seeds = [int(seed) for seed in points.generator(self.name).integers(2**31, size=members)]
        trained = train_members(
            _model(settings, points), (x, operators), task, seeds, schedule,
            keywords={"propagated": field[0].propagate(x), "rows": field}, progress=seen, cuda_graph=True,
        )  # fmt: skip
        history = {name: curve.double().flatten(1).mean(1).tolist() if curve.ndim > 1 else curve.tolist()
                   for name, curve in trained.history.items()}  # fmt: skip
        fitted = FittedSSobGNNs(self.graph, min(settings.n_members, members), trained.parameters, history)
        logits = fitted.states(points)[-1]
        rows = torch.from_numpy(labels.index).to(points.device)
        out_of_fold = labels.each_fold(
            lambda fold, held: logits[rows[torch.from_numpy(held).to(points.device)], fold].softmax(dim=1)
        )
        return Learned(fitted, out_of_fold)


@dataclass(frozen=True)
class FittedSSobGNNs(FittedFamily):
    """Trained members.

    Attributes:
        used: Number of members, the last ones, that are averaged for predictions. The first ones hold out a fold each.
        parameters: Stacked, [S, ...].
    """

    graph: str
    used: int
    parameters: dict[str, Tensor]
    history: dict[str, list[float]] = field(default_factory=dict, metadata=NAN_ALLOWED)

    @torch.no_grad()
    def states(self, view: View) -> list[Tensor]:
        """Output of each layer of every member at every row: [M, S, h]; the last, [M, S, C], holds the logits.

        New points read their neighbors, which stay unchanged.
        """
        training, joined = view.training, view.joined(self.graph)
        if joined is None and self._states:
            return self._states
        found: list[Tensor] = [] if joined is not None else self._states
        nodes, own, operators = training.points, view.points, training.graphs[self.graph].operators
        for number, layer in enumerate(_model(training.networks, training).eval().layers):
            propagated = operators.propagate(own) if joined is None else joined.propagate(nodes, own)
            prefix = f"convs.{number}."
            of_layer = {n.removeprefix(prefix): part for n, part in self.parameters.items() if n.startswith(prefix)}
            found.append(_apply_layer(layer, of_layer, own, propagated))
            own = found[-1].flatten(1)
            nodes = own if joined is None else self.states(training)[number].flatten(1)
        return found

    @cached_property
    def _states(self) -> list[Tensor]:
        return []

    def predict(self, view: View) -> Tensor:
        """The mean of the members used for predictions, [M, C]."""
        return self.states(view)[-1][:, -self.used :].softmax(dim=2).mean(dim=1)

    def hidden(self, points: Points) -> Tensor:
        """The members' last hidden rows, [N, S · h]."""
        states = self.states(points)
        return states[-2].flatten(1) if len(states) > 1 else points.points

    def check(self, sizes: Mapping[str, int], points: Points) -> None:
        """Check shapes and ranges; layers are counted first, and nothing of a declared size is made."""
        super().check(sizes, points)
        settings = points.networks
        if len({name.split(".")[1] for name in self.parameters if name.startswith("convs.")}) != settings.num_layers:
            raise ValueError("its networks do not have the layers that its settings say")
        members = len(next(iter(self.parameters.values())))
        with torch.device("meta"):
            expected = dict(_network(settings, sizes["width"], sizes["classes"]).named_parameters())
        if set(self.parameters) != set(expected) or not 1 <= self.used <= members:
            raise ValueError("its networks contradict its settings")
        for name, value in self.parameters.items():
            if value.shape != (members, *expected[name].shape) or not float(value.abs().max()) <= LARGEST:
                raise ValueError(f"its {name} has another shape, or too large values")


def _model(settings: Networks, points: Points) -> SSobGNN:
    """A network with these settings on the points' device; torch's random state is not changed."""
    with own_random_state():
        model: SSobGNN = _network(settings, points.points.shape[1], points.classes).to(points.device)
        return model


def _network(settings: Networks, width: int, classes: int) -> SSobGNN:
    from sobgnn.nn import SSobGNN

    return SSobGNN(
        width, settings.hidden_channels, classes, settings.num_layers, settings.alpha, settings.epsilon,
        settings.dropout,
    )  # fmt: skip


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
