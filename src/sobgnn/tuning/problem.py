"""What the trials of a search share: points, neighbours, folds, and the name they are kept under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from sklearn.base import clone

from sobgnn.estimator.classifier import SobolevClassifier
from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.fitting import FitProgress
from sobgnn.estimator.labels import encode_labels
from sobgnn.estimator.scaling import decide_scales
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.knn import graph_from_neighbors
from sobgnn.neighbors import Neighbors, nearest
from sobgnn.tuning.space import SPACE, Between, OneOf, Space

# Searched only where the graph is made from the points.
_GRAPH_SETTINGS = ("k", "bandwidth", "symmetrize")
# What all trials share: the features and the neighbours are made once, and folds are the same for all.
_SHARED = ("scale", "n_components", "metric", "method", "device", "verbose", "random_state", "n_members", "tune")
# Networks of each family in a trial.
MEMBERS = 4


def study_name(
    X: Any,
    y: Any,
    *,
    graph: Any,
    base: SobolevClassifier,
    space: Space = SPACE,
    seed: int = 0,
    members: int = MEMBERS,
) -> str:
    """The name under which :func:`tune` keeps its trials: a hash of everything their outcome depends on."""
    space = {name: values for name, values in space.items() if graph is None or name not in _GRAPH_SETTINGS}
    digest = hashlib.sha256()
    X, (classes, codes) = _points(X), encode_labels(y, X.shape[0])
    without = ("device", "verbose", "random_state", "n_members")
    settings = {name: value for name, value in base.get_params().items() if name not in without}
    facts = [X.shape, classes.tolist(), repr(sorted(settings.items())), repr(sorted(space.items())), seed, members]
    digest.update(json.dumps(facts, default=str).encode())
    parts = [codes, *((X.data, X.indices, X.indptr) if sp.issparse(X) else (X,))]
    if graph is not None:
        from sobgnn.graphs.given import as_graph

        made = as_graph(graph, X.shape[0])
        parts += [made.indptr.numpy(), made.indices.numpy(), made.weight.numpy()]
    for part in parts:
        digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    return "sobgnn-" + digest.hexdigest()[:20]


def _points(X: Any) -> Any:
    from sklearn.utils import check_array

    return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)


class Problem:
    """What all trials share, made once."""

    def __init__(
        self, X: Any, y: Any, graph: Any, base: SobolevClassifier, space: Space, seed: int, members: int
    ) -> None:
        known = base.get_params()
        for name in space:
            if name not in known or name in _SHARED:
                can = ", ".join(sorted(set(known) - set(_SHARED)))
                raise ValueError(f"`space` must name parameters that trials can differ in, but got {name!r}: {can}.")
        points = _points(X)
        self.y, self.given, self.base = y, graph, clone(base).set_params(n_members=members)
        classes, codes = encode_labels(y, points.shape[0])
        _check_holdable(classes, codes, base)
        self.space = {name: v for name, v in space.items() if graph is None or name not in _GRAPH_SETTINGS}
        self.name = study_name(points, y, graph=graph, base=base, space=self.space, seed=seed, members=members)
        self.first = {name: known[name] for name, values in self.space.items() if values.holds(known[name])}
        self.seed = seed
        scales = decide_scales(base.scale, points, codes, base.k, base.n_components, np.random.default_rng(seed))
        # Whatever the estimator would choose anew in a refit, with another k.
        self.decided = {"scale": tuple(scales)} if base.scale == "auto" else {}
        # The first draw of the estimator's own generator, so that a refit on X sees the same features.
        drawn = int(np.random.default_rng(seed).integers(2**31))
        maps = [FeatureMap.fit(points, scale=scale, n_components=base.n_components, seed=drawn) for scale in scales]
        self.points = maps[1](points)
        self.found = self._neighbours(maps[0](points), space.get("k")) if graph is None else None

    def _neighbours(self, points: npt.NDArray[np.float32], searched: Between | OneOf | None) -> Neighbors:
        largest = self.base.k
        if isinstance(searched, Between):
            largest = max(largest, int(searched.high))
        elif isinstance(searched, OneOf):
            largest = max(largest, *searched.choices)
        device = torch.device(self.base.device or "cpu")
        z: Any = torch.from_numpy(points).to(device) if device.type == "cuda" else points
        k = min(largest, len(points) - 1)
        return nearest(z, k, metric=self.base.metric, method=self.base.method)

    def graph(self, classifier: SobolevClassifier) -> Any:
        """The graph of a setting: the given one, or the nearest of the neighbours already found."""
        if self.found is None:
            return self.given
        k = min(classifier.k, self.found.indices.shape[1])
        indices, distances = self.found.indices[:, :k], self.found.distances[:, :k]
        made: Graph = graph_from_neighbors(
            indices, distances, classifier.bandwidth, classifier.symmetrize, neighbor_recall=self.found.recall
        )
        return made

    def fitted(self, setting: dict[str, Any], hook: Callable[[FitProgress], bool | None]) -> SobolevClassifier:
        """A setting's estimator, trained on the points as they were mapped once."""
        parameters = self.base.get_params() | setting | {"random_state": self.seed, "scale": None, "n_components": None}
        classifier = SobolevClassifier(**parameters)
        if "tune" in parameters:
            classifier.set_params(tune=None)
        return classifier.fit(self.points, self.y, graph=self.graph(classifier), progress=hook)


def _check_holdable(classes: npt.NDArray[Any], codes: npt.NDArray[np.int64], base: SobolevClassifier) -> None:
    if base.early_stopping is False:
        raise ValueError("Tuning needs labels to hold out, but `early_stopping` is False. Leave it at 'auto'.")
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    if base.early_stopping == "auto" and counts.min() < 3:
        rarest = classes[counts.argmin()]
        raise ValueError(
            f"Tuning needs labels to hold out, at least 3 in each class, but class {str(rarest)!r} has "
            f"{counts.min()}. Label more points of it, or fit without tuning."
        )
