"""Poisson learning: labels as sources of what flows over the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sobgnn.estimator.families.diffusion import FittedDiffusion, restore_spread
from sobgnn.estimator.frequencies import evenness
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import GIVEN, Problem
from sobgnn.estimator.smoothing import Spread, poisson_potential
from sobgnn.graphs.assortativity import assortativity

# The Hadamard power of the graph, and the factor of relative potentials before the softmax.
POWER, SHARPNESS = 3, 8.0
# Assortativity of the predicted classes at which trust begins and at which it is full, and the least trust.
_CLUSTERED, _LEAST_TRUST = (0.77, 0.82), 1e-3
# Average labels per class from which other families learn at least as much.
_FEW_LABELS = 10
# Maximum size of the solution: points times classes times signals.
_MOST_ENTRIES = 100_000_000
# For class sizes: the number of points they are computed on, steps, and the softness of the border between classes.
_POINTS, _STEPS, _SOFT = 5000, 100, 0.1
# The most that is added to a class: enough to offset the chance position of a single label, too little to make a rare
# class common. More is allowed if labels are held out, which show whether it was right.
_ADDED, _ADDED_BLINDLY = 0.3, 0.1


class PoissonLabels:
    r"""Labels as sources of what flows over the graph (Calder, Cook, Thorpe and Slepčev, ICML 2020).

    .. math:: (D_3 - A^{(3)}) \, u = \sum_l v_l (e_{y_l} - \bar{y}) \, \delta_{i_l}, \qquad
        P_i = \mathrm{softmax}\Big( 8 \, \frac{u_i + b}{\max_c |u_{ic} + b_c|} \Big)

    with :math:`A^{(3)}` the graph's third Hadamard power, v the labels' weights, :math:`\bar{y}` the labels' weighted
    mean, and a small b, [C], that moves class sizes toward it. Weights even out the classes to the degree that labels
    support equal frequencies (:func:`~sobgnn.estimator.frequencies.evenness`). A label reaches its whole cluster,
    however large; :class:`~sobgnn.estimator.families.diffusion.DiffusedLabels` fade on the way.
    """

    name: ClassVar[str] = "poisson"
    on_graph: ClassVar[bool] = True
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = False

    def __init__(self, view: str) -> None:
        self.view = view

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Whether labels are few, columns of numbers many, no graph was given, and the solution fits in memory.

        Otherwise clusters often have little to do with classes.
        """
        few = len(labels.index) < _FEW_LABELS * labels.classes
        small = problem.count * labels.classes * (labels.folds + 1) <= _MOST_ENTRIES
        return few and small and GIVEN not in problem.views and problem.many_numbers

    def fit(self, problem: Problem, labels: Labels) -> FittedPoisson:
        """Solve the equation for every signal."""
        spread: Spread = problem.views[self.view].spread.powered(POWER)
        of_class = np.eye(labels.classes)[labels.codes]
        power = 0.0 if labels.chosen else evenness(labels.codes, labels.classes)
        signals = []
        for share in labels.shares():
            # Among classes that may be equally common, one that has more labels by chance must not reach farther.
            weight = share * (of_class @ (share @ of_class)).clip(min=1e-12) ** -power
            weight /= weight.sum()
            mean = weight @ of_class
            sources = torch.from_numpy(weight[:, None] * (of_class - mean)).to(problem.device)
            index = torch.from_numpy(labels.index).to(problem.device)
            u = poisson_potential(spread, index, sources)
            sizes = torch.from_numpy(mean).float().to(problem.device)
            u = sized(u, sizes, _ADDED if labels.folds else _ADDED_BLINDLY)
            largest = u.abs().amax(dim=1, keepdim=True)
            signals.append((SHARPNESS * u / largest.clamp(min=torch.finfo(u.dtype).tiny)).softmax(dim=1))
        problem.tell(self.name, 1, 1)
        found = signals[-1].argmax(dim=1).cpu().numpy()
        clustered = assortativity(problem.views[self.view].graph, found)
        trust = float(np.clip((clustered - _CLUSTERED[0]) / (_CLUSTERED[1] - _CLUSTERED[0]), _LEAST_TRUST, 1.0))
        return FittedPoisson(self.view, torch.stack(signals), trust)

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedDiffusion:
        """Restore from the probabilities of the training points."""
        return restore_spread(self.view, arrays, problem)


@dataclass(frozen=True)
class FittedPoisson(FittedDiffusion):
    """Potentials as probabilities, [folds + 1, N, C].

    Attributes:
        trust: How clearly the predicted classes form clusters, in (0, 1].
    """

    trust: float = 1.0


def sized(u: Tensor, sizes: Tensor, most: float) -> Tensor:
    """Rescale u [N, C] to its typical size, and shift columns by at most ``most`` to bring classes to sizes [C].

    Rows of zeros, which no label reaches, are unchanged.
    """
    reached = u.abs().amax(dim=1, keepdim=True) > 0
    some = u[reached[:, 0]]
    if not len(some):
        return u
    some = some[:: 1 + len(some) // _POINTS]
    unit = some.abs().amax(dim=1).median()
    logits, added = some / unit / _SOFT, torch.zeros_like(sizes)
    for _ in range(_STEPS):
        found = (logits + added).softmax(dim=1).mean(dim=0)
        added += 0.5 * (sizes.clamp(min=1e-6) / found.clamp(min=1e-6)).log()
    return u / unit + reached * (_SOFT * (added - added.mean())).clamp(-most, most)
