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

from sobgnn.estimator.blend import Blend, sharpen
from sobgnn.estimator.fit import Member
from sobgnn.estimator.frequencies import shift_priors
from sobgnn.estimator.placing import Attaching, Maps, as_tensor
from sobgnn.estimator.problem import GIVEN, NEIGHBORS, NewPoints, Problem
from sobgnn.graphs.knn import gaussian_weights
from sobgnn.graphs.reweight import normalized_edges
from sobgnn.neighbors.held import HeldPoints
from sobgnn.operators.attached import attach
from sobgnn.runtime.process import at_most

_POINTS_PER_BATCH = 16384
# Multiplications in a batch's neighbor search from which several threads pay off. A smaller batch takes a few hundred
# short operations, in which threads would mostly wait for one another.
_THREADED_PRODUCTS = 2e10


@dataclass(frozen=True)
class Predictor:
    """Everything that prediction needs.

    Attributes:
        maps: Maps from raw features to what families read.
        problem: The training points and their graphs.
        places: [N, D'], the training points as the neighbor search reads them.
        attaching: How new points find neighbors.
        members: The families.
        blend: Their shares and temperatures.
        temperature: Divides the logits of the result.
        ratio: Factors of the class probabilities, [C], from the class frequencies and class weights.
        distributions: Class probabilities of the training points, [N, C].
    """

    maps: Maps
    problem: Problem
    places: Tensor
    attaching: Attaching
    members: list[Member]
    blend: Blend
    temperature: float
    ratio: npt.NDArray[np.float64]
    distributions: npt.NDArray[np.float32]

    def finished(self, probabilities: Tensor) -> npt.NDArray[np.float32]:
        """Apply the temperature and the class factors to blended probabilities [M, C]."""
        sharpened = sharpen(probabilities.double(), self.temperature).cpu().numpy()
        return shift_priors(sharpened, self.ratio).astype(np.float32)

    @torch.no_grad()
    def __call__(
        self,
        X: Any,
        edges: sp.csr_array | None = None,
        progress: Callable[[int, int], None] | None = None,
        nearest: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Class probabilities [M, C] of new points X [M, F], raw, dense or sparse; O(k) each.

        For at least :attr:`many` new points, neighbors are found by an index: that of the training points, if these are
        very many, or one that is built at the first such call and cached. It is the same every time, so predictions
        depend only on X.

        Args:
            X: Finite.
            edges: Edges to the training points in the given graph, CSR [M, N] of positive weights; without them new
                points have no edges in it.
            progress: Called with (points done, points in all).
            nearest: Receives each point's distance to the nearest training point, [M].
        """
        count = X.shape[0]
        out = np.empty((count, self.problem.classes), np.float32)
        many = self.many is not None and count >= self.many
        work = float(min(count, _POINTS_PER_BATCH)) * self.places.numel()
        with at_most(1 if work < _THREADED_PRODUCTS else torch.get_num_threads()):
            for start in range(0, count, _POINTS_PER_BATCH):
                rows = slice(start, min(start + _POINTS_PER_BATCH, count))
                out[rows], distance = self._batch(X[rows], None if edges is None else edges[rows], many)
                if nearest is not None:
                    nearest[rows] = distance
                if progress is not None:
                    progress(rows.stop, count)
        return out

    def _batch(
        self, X: Any, edges: sp.csr_array | None, many: bool
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Class probabilities [M, C], and the distance to the nearest training point [M]."""
        problem, nodes = self.problem, self.problem.points
        z = self.maps.networks(X)
        place = z if self.maps.neighbors is self.maps.networks else self.maps.neighbors(X)
        near, distance = self._edges(place, many)
        joined = {NEIGHBORS: attach(problem.views[NEIGHBORS].operators, near)}
        if GIVEN in problem.views:
            own = sp.csr_array((len(z), len(nodes)), dtype=np.float32) if edges is None else edges
            view = problem.views[GIVEN]
            joined[GIVEN] = attach(view.operators, normalized_edges(own, view.graph.degree) if view.reweighted else own)
        new = NewPoints(as_tensor(z, nodes.device), self.maps.columns(X, z), joined, nodes, X)
        return self.finished(self.blend([_drawn(member, new) for member in self.members])), distance

    def _edges(self, z: npt.NDArray[np.float32], many: bool) -> tuple[sp.csr_array, npt.NDArray[np.float32]]:
        """Edges to the nearest training points, weighted by the training graph's kernel, and the nearest's distance."""
        how, shape = self.attaching, (len(z), len(self.places))
        device = self._held.points.device
        queries = torch.from_numpy(z).to(device) if device.type == "cuda" else z
        indices, distances = self._held.nearest(queries, how.k, approximate=many)
        bandwidth: Any = how.bandwidth
        if how.reach is not None:
            bandwidth = (distances[:, -1].astype(np.float64), how.reach.astype(np.float64))
        weight = gaussian_weights(indices, distances, bandwidth)
        indptr = np.arange(0, weight.size + 1, how.k, dtype=np.int32)
        edges = sp.csr_array((weight.ravel(), indices.astype(np.int32).ravel(), indptr), shape=shape)
        return edges, distances[:, 0]

    def spacing(self, most: int = 5000) -> npt.NDArray[np.float32] | None:
        """Distances of up to ``most`` training points, evenly spread over the rows, to the nearest other one.

        ``None`` if there is no other point.
        """
        if len(self.places) < 2:
            return None
        rows = np.unique(np.linspace(0, len(self.places) - 1, most).astype(np.int64))
        chosen = self.places[torch.from_numpy(rows).to(self.places.device)]
        queries = chosen if chosen.is_cuda else chosen.numpy()
        indices, distances = self._held.nearest(queries, 2, approximate=self.many == 1)
        # Of equal points any may come first; the other one is then at distance 0.
        return np.where(indices[:, 0] == rows, distances[:, 1], distances[:, 0])

    @cached_property
    def _held(self) -> HeldPoints:
        how = self.attaching
        return HeldPoints(self.places, how.metric, how.recall)

    @property
    def many(self) -> int | None:
        """Minimum number of new points at once for which cells are used; ``None``: the search is always exact."""
        return self._held.index_queries if self.attaching.method != "exact" else None


def _drawn(member: Member, new: NewPoints) -> Tensor:
    """A family's probabilities of new points, moved toward the smoothed ones of their neighbors: [M, C]."""
    own = member.fitted.predict(new)
    if member.smoothing is None or member.around is None:
        return own
    around = new.joined[member.smoothing.view].average(member.around)
    # Without neighbors there is nothing to move toward.
    return own + member.smoothing.strength * torch.where(around.sum(dim=1, keepdim=True) > 0, around - own, 0.0)
