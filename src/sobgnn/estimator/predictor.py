"""The predictor: everything that a fitted estimator needs to predict new points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.blending import Blend
from sobgnn.estimator.fit import Member
from sobgnn.estimator.placing import Attaching, Maps, as_tensor
from sobgnn.estimator.priors import shift_priors
from sobgnn.estimator.problem import GIVEN, NEIGHBORS, NewPoints, Problem
from sobgnn.estimator.temperature import sharpen
from sobgnn.graphs.knn import gaussian_weights
from sobgnn.neighbors.held import HeldPoints
from sobgnn.operators.attached import Attachment, attach

_POINTS_PER_BATCH = 16384


@dataclass(frozen=True)
class Predictor:
    """Everything prediction reads.

    Attributes:
        maps: Raw features to those that families read.
        problem: The training points and their graphs.
        places: [N, D'], the training points as neighbors are found by.
        attaching: How new points find neighbors; ``None`` where there is no graph of neighbors.
        members: The families.
        blend: How they become one.
        temperature: Divides the logits of the result.
        ratio: How much more common each class is taken to be among all points than among the labels, [C].
        distributions: Class probabilities of the training points, [N, C].
    """

    maps: Maps
    problem: Problem
    places: Tensor
    attaching: Attaching | None
    members: list[Member]
    blend: Blend
    temperature: float
    ratio: npt.NDArray[np.float64]
    distributions: npt.NDArray[np.float32]

    def finished(self, probabilities: Tensor) -> npt.NDArray[np.float32]:
        """Blended probabilities [M, C] at the temperature and under the class frequencies of the result."""
        sharpened = sharpen(probabilities.double().cpu().numpy(), self.temperature)
        return shift_priors(sharpened, self.ratio).astype(np.float32)

    @torch.no_grad()
    def __call__(
        self, X: Any, edges: sp.csr_array | None = None, progress: Callable[[int, int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Class probabilities [M, C] of new points X [M, F], raw, dense or sparse; O(k) for each.

        For at least :attr:`many` new points, neighbors are found by an index, which is built at the first such call
        and kept; it is the same every time, so predictions depend on X alone.

        Args:
            X: Finite.
            edges: Edges to the training points in the graph that was given, CSR [M, N] of positive weights; without
                them new points have no edge in it.
            progress: Called with (points done, points in all).
        """
        count = X.shape[0]
        out = np.empty((count, self.problem.classes), np.float32)
        many = self.many is not None and count >= self.many
        for start in range(0, count, _POINTS_PER_BATCH):
            rows = slice(start, min(start + _POINTS_PER_BATCH, count))
            out[rows] = self._batch(X[rows], None if edges is None else edges[rows], many)
            if progress is not None:
                progress(rows.stop, count)
        return out

    def _batch(self, X: Any, edges: sp.csr_array | None, many: bool) -> npt.NDArray[np.float32]:
        problem, nodes = self.problem, self.problem.points
        z = self.maps.networks(X)
        joined: dict[str, Attachment] = {}
        if self.attaching is not None:
            place = z if self.maps.neighbors is self.maps.networks else self.maps.neighbors(X)
            joined[NEIGHBORS] = attach(problem.views[NEIGHBORS].operators, self._edges(place, many))
        if GIVEN in problem.views:
            own = sp.csr_array((len(z), len(nodes)), dtype=np.float32) if edges is None else edges
            joined[GIVEN] = attach(problem.views[GIVEN].operators, own)
        new = NewPoints(as_tensor(z, nodes.device), self.maps.columns(X, z), joined, nodes, X)
        return self.finished(self.blend([_drawn(member, new) for member in self.members]))

    def _edges(self, z: npt.NDArray[np.float32], many: bool) -> sp.csr_array:
        """Edges to the nearest training points, weighted by the training graph's kernel."""
        how, shape = self.attaching, (len(z), len(self.places))
        assert how is not None  # asked for only where there is a graph of neighbors
        device = self._held.points.device
        queries = torch.from_numpy(z).to(device) if device.type == "cuda" else z
        indices, distances = self._held.nearest(queries, how.k, approximate=many)
        bandwidth: Any = how.bandwidth
        if how.reach is not None:
            bandwidth = (distances[:, -1].astype(np.float64), how.reach.astype(np.float64))
        weight = gaussian_weights(indices, distances, bandwidth)
        indptr = np.arange(0, weight.size + 1, how.k, dtype=np.int32)
        return sp.csr_array((weight.ravel(), indices.astype(np.int32).ravel(), indptr), shape=shape)

    @cached_property
    def _held(self) -> HeldPoints:
        how = self.attaching
        assert how is not None  # asked for only where there is a graph of neighbors
        return HeldPoints(self.places, how.metric, how.recall)

    @property
    def many(self) -> int | None:
        """Minimum number of new points at once for which an index is used; ``None``: the search is always exact."""
        how = self.attaching
        return self._held.index_queries if how is not None and how.method != "exact" else None


def _drawn(member: Member, new: NewPoints) -> Tensor:
    """A family's probabilities of new points, drawn toward its smoothed ones of their neighbors: [M, C]."""
    own = member.fitted.predict(new)
    if member.smoothing is None or member.around is None:
        return own
    around = new.joined[member.smoothing.view].average(member.around)
    # Without a neighbor there is nothing to be drawn to.
    return own + member.smoothing.strength * torch.where(around.sum(dim=1, keepdim=True) > 0, around - own, 0.0)
