"""Which columns matter: how much worse held-out labels are predicted if a column is shuffled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.estimator.labels import stratified_folds
from sobgnn.runs.content import column_slices
from sobgnn.runs.run import Fitted

# Number of columns from which tables are skipped, and number of labels below which differences are chance.
MOST_COLUMNS, LEAST_LABELS = 100, 20
_FOLDS, _SHUFFLES = 2, 5
_MOST_LABELS, _MOST_OTHERS, _MOST_PREDICTED = 400, 400, 6000
# Number of entries of shuffled rows that are held in memory and predicted at once.
_MOST_ENTRIES = 4_000_000


def column_importance(fitted: Fitted, seed: int = 0) -> dict[str, float]:
    """Drop in the mean probability of the correct class without each column, largest first.

    Permutation importance on held-out labels: the model is fitted again on each half of the labels, without the rows of
    the other half, which it then predicts as new points, unchanged and with one column shuffled among them. (Labels
    that a model was fitted on would make every column look important.) Columns with values near 0, or below, do not
    help. Empty for arrays, for tables of at least 100 columns, and if labels are too few.
    """
    table, classifier = fitted.table, fitted.classifier
    slices = column_slices(table.encoding)
    codes = fitted.given
    if slices is None or not 1 < len(slices) < MOST_COLUMNS or (codes != -1).sum() < LEAST_LABELS:
        return {}
    generator = np.random.default_rng(seed)
    labeled = generator.permutation(np.flatnonzero(codes != -1))[:_MOST_LABELS]
    others = generator.permutation(np.flatnonzero(codes == -1))[:_MOST_OTHERS]
    fold = stratified_folds(codes[labeled], _FOLDS, generator)
    lost = dict.fromkeys(slices, 0.0)
    judged = 0
    for held in range(_FOLDS):
        train, test = labeled[fold != held], labeled[fold == held]
        test = test[np.isin(codes[test], codes[train])]
        if len(np.unique(codes[train])) < 2 or not len(test):
            continue
        model = _again(classifier, seed)
        model.fit(_dense(table.X[np.concatenate([train, others])]), np.r_[codes[train], np.full(len(others), -1)])
        found = _drops(model, _dense(table.X[test]), codes[test], slices, generator)
        for name, drop in found.items():
            lost[name] += drop * len(test)
        judged += len(test)
    if not judged:
        return {}
    return {name: drop / judged for name, drop in sorted(lost.items(), key=lambda item: -item[1])}


def _drops(
    model: Any,
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    slices: Mapping[str, slice],
    generator: np.random.Generator,
) -> dict[str, float]:
    """The mean drop in the correct class's probability for each column."""
    right = np.searchsorted(model.classes_, codes)
    shuffles = int(np.clip(_MOST_PREDICTED // (len(X) * len(slices)), 1, _SHUFFLES))

    def score(parts: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float64]:
        probability = model.predict_proba(np.concatenate(parts)).reshape(len(parts), len(X), -1)
        return np.asarray(probability[:, np.arange(len(X)), right].mean(axis=1), dtype=np.float64)

    whole = float(score([X])[0])
    waiting: list[npt.NDArray[np.float32]] = []
    scores: list[float] = []
    for place in slices.values():
        for _ in range(shuffles):
            changed = X.copy()
            changed[:, place] = X[generator.permutation(len(X)), place]
            waiting.append(changed)
            if len(waiting) * X.size >= _MOST_ENTRIES:
                scores += score(waiting).tolist()
                waiting = []
    if waiting:
        scores += score(waiting).tolist()
    falls = whole - np.array(scores).reshape(len(slices), shuffles).mean(axis=1)
    return dict(zip(slices, falls.tolist(), strict=True))


def _again(classifier: Any, seed: int) -> Any:
    """An estimator with the same settings and families, and the scales that were decided."""
    from sobgnn.estimator.classifier import SobolevClassifier
    from sobgnn.estimator.families import FAMILIES

    names = {name.split(" (")[0] for name in classifier.family_shares_}
    settings = {
        # Boosted trees take most of the time and predict much like forests; families on a given graph have none here.
        "families": sorted(name for name in names - {"boosting"} if not FAMILIES[name].given_only) or ["forests"],
        "scale": (classifier.neighbor_scale_, classifier.scale_),
        "class_weight": classifier.class_weight if isinstance(classifier.class_weight, str) else None,
        "class_priors": None,
        "random_state": seed,
        "warm_start": False,
        "verbose": 0,
    }
    return SobolevClassifier(**{**classifier.get_params(), **settings})


def _dense(X: Any) -> npt.NDArray[np.float32]:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float32)
