"""What a fitted classifier knows, and what it makes of new points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.blending import Blend
from sobgnn.estimator.ensemble import Network, apply_layer, feature_logits, layer_parameters
from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.selftraining import linear_probabilities
from sobgnn.estimator.temperature import sharpen
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.knn import gaussian_weights
from sobgnn.neighbors.held import INDEX_QUERIES, HeldPoints
from sobgnn.operators import SobolevOperators
from sobgnn.operators.attached import Attachment, attach

_POINTS_PER_BATCH = 16384


@dataclass(frozen=True)
class Attaching:
    """How a new point finds its place among the training points.

    Args:
        k: Neighbours of a new point; 0 where the graph was given, so that points have no place of their own.
        metric: Distance.
        method: Neighbour search.
        recall: Share of true neighbours an approximate search has to find.
        bandwidth: σ of the training graph's kernel; ``None`` where it is local.
        reach: Distance of each training point to its k-th neighbour [N], for a local σ.
        features: Raw features to those that neighbours are found by; ``None``: as the members read them.
        points: [N, D], the training points by those; ``None``: as the members read them.
    """

    k: int
    metric: Any = "euclidean"
    method: Any = "auto"
    recall: float = 0.95
    bandwidth: float | None = None
    reach: npt.NDArray[np.float32] | None = None
    features: FeatureMap | None = None
    points: Tensor | None = None


@dataclass(frozen=True)
class Predictor:
    """Everything prediction reads; tensors on one device.

    Attributes:
        network: Shape of the members.
        features: Raw features to those the members read.
        points: [N, D], the training points as the members read them.
        operators: Of the training graph.
        graph_parameters: Stacked parameters of the S-SobGNNs; empty where there are none (mixing fixed at 0).
        feature_parameters: Stacked parameters of the perceptrons; empty where there are none (mixing fixed at 1).
        student_parameters: Stacked parameters of the students; empty where there are none.
        linear_parameters: ``weight`` [D, C] and ``bias`` [C] of the linear classifier; empty where there is none.
        states: Hidden rows of the training points, [N, S, h] for each layer but the last.
        parts: What the other families say of the training points, smoothed, [N, 4, C].
        distributions: Class probabilities of the training points, [N, C].
        component_labelled: bool [N], whether a point's component of the graph holds a label.
        blend: How the families become one.
        temperature: Divides the logits of the result.
        attaching: How new points are joined.
    """

    network: Network
    features: FeatureMap
    points: Tensor
    operators: SobolevOperators
    graph_parameters: dict[str, Tensor]
    feature_parameters: dict[str, Tensor]
    student_parameters: dict[str, Tensor]
    linear_parameters: dict[str, Tensor]
    states: list[Tensor]
    parts: Tensor
    distributions: Tensor
    component_labelled: Tensor
    blend: Blend
    temperature: float
    attaching: Attaching

    @property
    def graph(self) -> Graph:
        """The training graph."""
        return self.operators.graph

    def to(self, device: torch.device | str) -> Predictor:
        """The same on another device."""
        places = self.attaching.points
        return replace(
            self,
            attaching=replace(self.attaching, points=None if places is None else places.to(device)),
            points=self.points.to(device),
            operators=self.operators.to(device),
            graph_parameters={name: value.to(device) for name, value in self.graph_parameters.items()},
            feature_parameters={name: value.to(device) for name, value in self.feature_parameters.items()},
            student_parameters={name: value.to(device) for name, value in self.student_parameters.items()},
            linear_parameters={name: value.to(device) for name, value in self.linear_parameters.items()},
            states=[state.to(device) for state in self.states],
            parts=self.parts.to(device),
            distributions=self.distributions.to(device),
            component_labelled=self.component_labelled.to(device),
        )

    @torch.no_grad()
    def __call__(
        self, X: Any, edges: sp.csr_array | None = None, progress: Callable[[int, int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Class probabilities [M, C] of new points X [M, F], raw, dense or sparse; O(k) for each.

        Where there are :attr:`many` new points, their neighbours are found by an index, which is built at the first
        such call and kept; it is the same every time, so what is said of X depends on X alone.

        Args:
            X: Finite.
            edges: Their edges to the training points, CSR [M, N] of positive weights, instead of neighbours by X.
            progress: Called with (points done, points in all).
        """
        count = X.shape[0]
        out = np.empty((count, self.distributions.shape[1]), np.float32)
        many = self.many is not None and count >= self.many
        for start in range(0, count, _POINTS_PER_BATCH):
            rows = slice(start, min(start + _POINTS_PER_BATCH, count))
            z = self.features(X[rows])
            place = self.attaching.features
            joined = self._edges(z if place is None else place(X[rows]), many) if edges is None else edges[rows]
            out[rows] = self._batch(torch.from_numpy(z).to(self.points.device), joined)
            if progress is not None:
                progress(rows.stop, count)
        return out

    def _edges(self, z: npt.NDArray[np.float32], many: bool) -> sp.csr_array:
        how, n = self.attaching, len(self.points)
        shape = (len(z), n)
        if how.k == 0:
            return sp.csr_array(shape, dtype=np.float32)
        device = self._places.points.device
        queries = torch.from_numpy(z).to(device) if device.type == "cuda" else z
        indices, distances = self._places.nearest(queries, how.k, approximate=many)
        bandwidth: Any = how.bandwidth
        if how.reach is not None:
            bandwidth = (distances[:, -1].astype(np.float64), how.reach.astype(np.float64))
        weight = gaussian_weights(indices, distances, bandwidth)
        indptr = np.arange(0, weight.size + 1, how.k, dtype=np.int32)
        return sp.csr_array((weight.ravel(), indices.astype(np.int32).ravel(), indptr), shape=shape)

    @cached_property
    def _places(self) -> HeldPoints:
        how = self.attaching
        return HeldPoints(self.points if how.points is None else how.points, how.metric, how.recall)

    @property
    def many(self) -> int | None:
        """From how many new points at once on their neighbours are found by an index; ``None``: always exactly."""
        how = self.attaching
        return INDEX_QUERIES if how.k and how.method != "exact" and self._places.can_index else None

    def _batch(self, z: Tensor, edges: sp.csr_array) -> npt.NDArray[np.float32]:
        joined = attach(self.operators, edges)
        plain: Tensor | None = None
        parts: list[Tensor | None] = [None, None, None, None]
        if self.feature_parameters:
            plain = parts[1] = feature_logits(self.network, self.feature_parameters, z).softmax(dim=2).mean(dim=0)
        if self.student_parameters and self.blend.students > 0:
            parts[3] = feature_logits(self.network, self.student_parameters, z).softmax(dim=2).mean(dim=0)
        if self.graph_parameters and (plain is None or self.blend.shares[0] > 0):
            parts[0] = self._graph_probabilities(joined, z)
            plain = parts[0] if plain is None else plain
        assert plain is not None
        around = joined.average(self.parts.flatten(1)).view(len(z), *self.parts.shape[1:])
        for place, own in enumerate(parts):
            if own is not None:
                drawn = torch.lerp(own, around[:, place], self.blend.smoothing)
                parts[place] = drawn / drawn.sum(dim=1, keepdim=True)
        parts[2] = around[:, 2]
        # The linear classifier is not smoothed.
        parts.append(linear_probabilities(self.linear_parameters, z) if self.linear_parameters else None)
        mixed = self.blend(parts)
        # Points that reach no label through the graph are judged by their features alone, as in training.
        reached = joined.average(self.component_labelled.float().unsqueeze(1))
        mixed = torch.where(reached > 0, mixed, plain)
        return sharpen((mixed / mixed.sum(dim=1, keepdim=True)).cpu().numpy(), self.temperature)

    def _graph_probabilities(self, joined: Attachment, z: Tensor) -> Tensor:
        """Mean probabilities of the S-SobGNNs, [M, C]."""
        nodes, own = self.points, z
        layers = self.network.graph_model().to(z.device).eval().layers
        for number, layer in enumerate(layers):
            parameters = layer_parameters(self.graph_parameters, number)
            out = apply_layer(layer, parameters, own, joined.propagate(nodes, own))
            if number < len(self.states):
                nodes, own = self.states[number].flatten(1), out.flatten(1)
        return out.softmax(dim=2).mean(dim=1)
