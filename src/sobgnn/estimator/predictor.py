"""The predictor: everything that a fitted estimator needs to predict new points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn._system.process import at_most
from sobgnn.estimator.blend import Blend, sharpen
from sobgnn.estimator.fit import Member
from sobgnn.estimator.frequencies import shift_priors
from sobgnn.estimator.points import GIVEN, NEIGHBORS, NewPoints, Placed, Points
from sobgnn.estimator.state import check_array
from sobgnn.graphs.reweight import normalized_edges
from sobgnn.operators.attached import attach

_POINTS_PER_BATCH = 16384
# Multiplications in a batch's neighbor search from which several threads pay off. A smaller batch takes a few hundred
# short operations, in which threads would mostly wait for one another.
_THREADED_PRODUCTS = 2e10


@dataclass(frozen=True)
class Predictor:
    """Everything that prediction needs.

    Attributes:
        placed: The training points, their graphs and maps, and how new points find neighbors.
        members: The families.
        blend: Their shares and temperatures.
        temperature: Divides the logits of the result.
        ratio: Factors of the class probabilities, [C], from the class frequencies and class weights.
        distributions: Class probabilities of the training points, [N, C].
    """

    placed: Placed
    members: tuple[Member, ...]
    blend: Blend
    temperature: float
    ratio: npt.NDArray[np.float64]
    distributions: npt.NDArray[np.float32]

    @property
    def points(self) -> Points:
        """The training points."""
        return self.placed.points

    @property
    def many(self) -> int | None:
        """Minimum number of new points at once for which cells are used; ``None``: the search is always exact."""
        return self.placed.search.many

    def spacing(self) -> npt.NDArray[np.float32] | None:
        """Distances of training points to the nearest other one; ``None`` if there is no other point."""
        return self.placed.search.spacing()

    def finished(self, probabilities: Tensor) -> npt.NDArray[np.float32]:
        """Apply the temperature and the class factors to blended probabilities [M, C]."""
        sharpened = sharpen(probabilities.double().cpu(), self.temperature).numpy()
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

        For at least :attr:`many` new points, neighbors are found by cells, which are built at the first such call and
        cached. They are the same every time, so predictions depend only on X.

        Args:
            X: Finite.
            edges: Edges to the training points in the given graph, CSR [M, N] of positive weights; without them new
                points have no edges in it.
            progress: Called with (points done, points in all).
            nearest: Receives each point's distance to the nearest training point, [M].
        """
        count = X.shape[0]
        out = np.empty((count, self.points.classes), np.float32)
        many = self.many is not None and count >= self.many
        work = float(min(count, _POINTS_PER_BATCH)) * self.placed.search.places.numel()
        with at_most(1 if work < _THREADED_PRODUCTS else torch.get_num_threads()):
            for start in range(0, count, _POINTS_PER_BATCH):
                rows = slice(start, min(start + _POINTS_PER_BATCH, count))
                new, distance = self._new_points(X[rows], None if edges is None else edges[rows], many)
                out[rows] = self.finished(self.blend([member.fitted.predict(new) for member in self.members]))
                if nearest is not None:
                    nearest[rows] = distance
                if progress is not None:
                    progress(rows.stop, count)
        return out

    def _new_points(self, X: Any, edges: sp.csr_array | None, many: bool) -> tuple[NewPoints, npt.NDArray[np.float32]]:
        """New points as families read them, and their distances to the nearest training point [M]."""
        maps, points = self.placed.maps, self.points
        z = maps.networks(X)
        near, distance = self.placed.search.edges(maps.places(X, z), approximate=many)
        joined = {NEIGHBORS: attach(points.graphs[NEIGHBORS].operators, near)}
        if GIVEN in points.graphs:
            own = sp.csr_array((len(z), points.count), dtype=np.float32) if edges is None else edges
            given = points.graphs[GIVEN]
            joined[GIVEN] = attach(
                given.operators, normalized_edges(own, given.graph.degree) if given.reweighted else own
            )
        scaled = torch.from_numpy(z).to(points.device)
        return NewPoints(scaled, maps.columns(X, z), joined, points, X), distance

    def check(self) -> None:
        """Raise ValueError if the parts, which may be those of a file, contradict each other."""
        self.placed.check()
        sizes = self.placed.sizes
        for member in self.members:
            member.fitted.check(sizes)
        check_array(self.ratio, (sizes.classes,), "class factors", most=1e30)
        check_array(self.distributions, (sizes.points, sizes.classes), "probabilities", most=1.0 + 1e-3)
        if not (self.ratio > 0).all() or not (self.distributions >= 0).all():
            raise ValueError("its probabilities are negative")
        shares = np.array(self.blend.shares)
        temperatures = np.array([*self.blend.temperatures, self.temperature])
        good = len(shares) == len(self.blend.temperatures) == len(self.members) > 0
        good = good and bool((shares >= 0).all()) and abs(shares.sum() - 1) < 1e-3
        if not good or not ((temperatures > 1e-3) & (temperatures < 1e3)).all():
            raise ValueError("its shares or temperatures are invalid")
