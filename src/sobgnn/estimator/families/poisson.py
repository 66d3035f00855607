"""Poisson learning: labels as sources of what flows over the graph."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import Graphs, Learned
from sobgnn.estimator.families.diffusion import SpreadLabels
from sobgnn.estimator.frequencies import evenness
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import GIVEN, Points
from sobgnn.estimator.spreading import poisson_potential
from sobgnn.graphs.assortativity import assortativity

# The Hadamard power of the graph, and the factor of relative potentials before the softmax.
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
    graphs: ClassVar[Graphs] = "any"

    def __init__(self, graph: str) -> None:
        self.graph = graph

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether labels are few, columns of numbers many, no graph was given, and the solution fits in memory.

        Otherwise clusters often have little to do with classes.
        """
        few = len(labels.index) < _FEW_LABELS * labels.classes
        small = points.count * labels.classes * (labels.folds + 1) <= _MOST_ENTRIES
        return few and small and GIVEN not in points.graphs and points.many_numbers

    def fit(self, points: Points, labels: Labels) -> Learned:
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
