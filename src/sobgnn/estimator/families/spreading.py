"""Families that spread the labels alone over a graph: diffused labels, and Poisson learning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import Family, FittedFamily, Graphs, Learned
from sobgnn.estimator.frequencies import evenness
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import GIVEN, Points, View
from sobgnn.estimator.spreading import diffuse, poisson_potential
from sobgnn.estimator.state import shaped
from sobgnn.graphs.summary import assortativity

# Strength of the diffusion.
STRENGTH = 0.98
# The Hadamard power of the graph in Poisson learning, and the factor of relative potentials before the softmax.
POWER, SHARPNESS = 3, 8.0
# Assortativity of the predicted classes at which the prior begins to grow and at which it is full, and the least
# factor.
_CLUSTERED, _LEAST_FACTOR = (0.77, 0.82), 1e-3
# Average labels per class from which other families learn at least as much.
_FEW_LABELS = 10
# Maximum size of all solutions: points times classes times fits.
_MOST_ENTRIES = 100_000_000
# For class sizes: the number of points they are computed on, steps, and the softness of the border between classes.
_POINTS, _STEPS, _SOFT = 5000, 100, 0.1
# The most that is added to a class: enough to offset the chance position of a single label, too little to make a rare
# class common. More is allowed if labels are held out, which show whether it was right.
_ADDED, _ADDED_BLINDLY = 0.3, 0.1


class DiffusedLabels(Family):
    r"""Labels spread over the strongest edges of a graph: label propagation with the labels clamped.

    .. math:: P \leftarrow (1 - a) Y + a D^{-1/2} A D^{-1/2} P, \qquad P_i = Y_i \text{ at labeled points}

    where Y has a one-hot row for each labeled point and zeros elsewhere, and a = 0.98.
    """

    name: ClassVar[str] = "diffusion"
    title: ClassVar[str] = "diffused labels"
    explained: ClassVar[str] = "labels pass from neighbor to neighbor"
    graphs: ClassVar[Graphs] = "any"

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Spread the labels of every fit, all at once."""
        index, codes = labels.tensors(points.device)
        known = torch.from_numpy(labels.known()).to(points.device)
        smoother = points.graphs[self.graph].strong_smoother
        spread = diffuse(smoother, STRENGTH, index, torch.where(known, codes, -1), labels.classes).transpose(0, 1)
        return Learned(SpreadLabels(self.graph, spread[-1].contiguous()), labels.out_of_fold(spread))


class PoissonLabels(Family):
    r"""Labels as sources of what flows over the graph (Calder, Cook, Thorpe and Slepčev, ICML 2020).

    .. math:: (D_3 - A^{(3)}) \, u = \sum_l v_l (e_{y_l} - \bar{y}) \, \delta_{i_l}, \qquad
        P_i = \mathrm{softmax}\Big( 8 \, \frac{u_i + b}{\max_c |u_{ic} + b_c|} \Big)

    with :math:`A^{(3)}` the graph's third Hadamard power, v the labels' weights, :math:`\bar{y}` the labels' weighted
    mean, and a small b, [C], that moves class sizes toward it. Weights even out the classes to the degree that labels
    support equal frequencies (:func:`~sobgnn.estimator.frequencies.evenness`). A label reaches its whole cluster,
    however large; :class:`DiffusedLabels` fade on the way.
    """

    name: ClassVar[str] = "poisson"
    title: ClassVar[str] = "Poisson learning"
    explained: ClassVar[str] = "labels flow through whole clusters of similar rows"
    graphs: ClassVar[Graphs] = "any"

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether labels are few, columns of numbers many, no graph was given, and the solution fits in memory.

        Otherwise clusters often have little to do with classes.
        """
        few = len(labels.index) < _FEW_LABELS * labels.classes
        small = points.count * labels.classes * (labels.folds + 1) <= _MOST_ENTRIES
        return few and small and GIVEN not in points.graphs and points.many_numbers

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Solve the equation for every fit."""
        smoother = points.graphs[self.graph].smoother.powered(POWER)
        of_class = np.eye(labels.classes)[labels.codes]
        power = 0.0 if labels.chosen else evenness(labels.codes, labels.classes)
        index = torch.from_numpy(labels.index).to(points.device)

        def potentials(share: npt.NDArray[np.float64]) -> Tensor:
            # Among classes that may be equally common, one that has more labels by chance must not reach farther.
            weight = share * (of_class @ (share @ of_class)).clip(min=1e-12) ** -power
            weight /= weight.sum()
            mean = weight @ of_class
            sources = torch.from_numpy(weight[:, None] * (of_class - mean)).to(points.device)
            u = poisson_potential(smoother, index, sources)
            sizes = torch.from_numpy(mean).float().to(points.device)
            u = sized(u, sizes, _ADDED if labels.folds else _ADDED_BLINDLY)
            largest = u.abs().amax(dim=1, keepdim=True)
            return (SHARPNESS * u / largest.clamp(min=torch.finfo(u.dtype).tiny)).softmax(dim=1)

        shares = labels.shares()
        out_of_fold = labels.each_fold(lambda fold, rows: potentials(shares[fold])[index[torch.from_numpy(rows)]])
        whole = potentials(shares[-1])
        points.report(self.name, 1, 1)
        clustered = assortativity(points.graphs[self.graph].graph, whole.argmax(dim=1).cpu().numpy())
        factor = float(np.clip((clustered - _CLUSTERED[0]) / (_CLUSTERED[1] - _CLUSTERED[0]), _LEAST_FACTOR, 1.0))
        return Learned(SpreadLabels(self.graph, whole), out_of_fold, factor)


@dataclass(frozen=True)
class SpreadLabels(FittedFamily):
    """Labels spread over a graph: class probabilities of the training points, float32 [N, C]."""

    graph: str
    spread: Tensor = field(metadata=shaped("points", "classes", least=0, most=1 + 1e-3))

    def predict(self, view: View) -> Tensor:
        """Of training points, their own; of new ones, the weighted mean of their neighbors', uniform without any."""
        joined = view.joined(self.graph)
        if joined is None:
            return self.spread
        around = joined.average(self.spread)
        total = around.sum(dim=1, keepdim=True)
        return torch.where(total > 0, around / total.clamp(min=1e-30), 1 / around.shape[1])


def sized(u: Tensor, sizes: Tensor, most: float) -> Tensor:
    """Rescale u [N, C] to its typical size, and shift columns by at most ``most`` to bring classes to sizes [C].

    Rows of zeros, which no label reaches, are unchanged.
    """
    reached = u.abs().amax(dim=1, keepdim=True) > 0
    some = u[reached[:, 0]]
    if not len(some):
        return u
    some = some[:: -(-len(some) // _POINTS)]
    unit = some.abs().amax(dim=1).median()
    logits, added = some / unit / _SOFT, torch.zeros_like(sizes)
    for _ in range(_STEPS):
        found = (logits + added).softmax(dim=1).mean(dim=0)
        added += 0.5 * (sizes.clamp(min=1e-6) / found.clamp(min=1e-6)).log()
    return u / unit + reached * (_SOFT * (added - added.mean())).clamp(-most, most)
