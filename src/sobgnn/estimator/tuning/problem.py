"""The problem that all trials of a search share: points, folds, and the name of the study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone

from sobgnn.estimator.classifier import SobolevClassifier
from sobgnn.estimator.fit import FitProgress
from sobgnn.estimator.labels import encode_labels
from sobgnn.estimator.scaling import decide_scales
from sobgnn.estimator.tuning.space import SPACE, Between, OneOf, Space

# Searched only if the graph is built from the points.
_GRAPH_SETTINGS = ("k", "bandwidth", "symmetrize")
# Parameters that all trials share, so that folds are the same for all.
_SHARED = ("scale", "n_components", "metric", "method", "device", "verbose", "random_state", "n_members")
# Number of networks per family in a trial.
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
    """The name under which :func:`tune` keeps its trials: a hash of everything that their results depend on."""
    digest = hashlib.sha256()
    X, (classes, codes) = _points(X), encode_labels(y, X.shape[0])
    space = _searched(space, X.shape[0], graph)
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


def _searched(space: Space, num_points: int, graph: Any) -> dict[str, Between | OneOf]:
    """What is searched in these points: nothing of a given graph, and no more neighbors than there are."""
    searched = {name: values for name, values in space.items() if graph is None or name not in _GRAPH_SETTINGS}
    neighbors, most = searched.get("k"), num_points - 1
    if isinstance(neighbors, Between) and neighbors.high > most:  # more would all be the same graph
        searched["k"] = replace(neighbors, low=min(neighbors.low, most), high=most)
    return searched


def _points(X: Any) -> Any:
    from sklearn.utils import check_array

    return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)


class Problem:
    """What all trials share, built once."""

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
        _check_holdable(classes, codes)
        self.space = _searched(space, points.shape[0], graph)
        self.name = study_name(points, y, graph=graph, base=base, space=self.space, seed=seed, members=members)
        self.first = {name: known[name] for name, values in self.space.items() if values.holds(known[name])}
        self.seed = seed
        scales = decide_scales(base.scale, points, codes, base.k, base.n_components, np.random.default_rng(seed))
        # What the estimator would otherwise choose again in every trial.
        self.decided = {"scale": tuple(scales)} if base.scale == "auto" else {}
        self.points = points

    def fitted(self, setting: dict[str, Any], hook: Callable[[FitProgress], bool | None]) -> SobolevClassifier:
        """A setting's estimator, fitted."""
        parameters = self.base.get_params() | setting | self.decided | {"random_state": self.seed}
        return SobolevClassifier(**parameters).fit(self.points, self.y, graph=self.given, progress=hook)


def _check_holdable(classes: npt.NDArray[Any], codes: npt.NDArray[np.int64]) -> None:
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    if counts.max() < 3:
        raise ValueError(
            "Tuning needs labels to hold out, at least 3 in some class, but no class has more than "
            f"{counts.max()}. Label more points, or fit without tuning."
        )
