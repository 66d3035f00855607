"""Which columns matter: how much worse held-out labels are predicted if a column is shuffled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.app.runs.run import Fitted
from sobgnn.estimator.labels import stratified_folds

# Number of columns from which tables are skipped, and number of labels below which differences are chance.
MOST_COLUMNS, LEAST_LABELS = 100, 20
_FOLDS, _SHUFFLES, _TREES = 2, 5, 100
_MOST_LABELS = 1000
# Number of shuffled rows that are predicted in all, and number of their entries that are held in memory at once.
_MOST_PREDICTED, _MOST_ENTRIES = 20_000, 4_000_000


def column_importance(fitted: Fitted, seed: int = 0) -> dict[str, float]:
    """Drop in the mean probability of the correct class without each column, largest first.

    Permutation importance on held-out labels, for forests (extremely randomized trees): one is fitted on each half of
    the labels and predicts the other half, unchanged and with one column shuffled. A forest takes a moment, where the
    families of the fit would take as long as they did before; and labels that a model was fitted on would make every
    column look important. Columns with values near 0, or below, do not help. Empty for arrays, for tables of at least
    100 columns, and if labels are too few.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    encoding, codes = fitted.table.encoding, fitted.given
    slices = encoding.slices if encoding.named else {}  # which features came from each column
    if not 1 < len(slices) < MOST_COLUMNS or (codes != -1).sum() < LEAST_LABELS:
        return {}
    generator = np.random.default_rng(seed)
    labeled = generator.permutation(np.flatnonzero(codes != -1))[:_MOST_LABELS]
    X, codes = fitted.table.X[labeled], codes[labeled]
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float32)
    fold = stratified_folds(codes, _FOLDS, generator)
    lost, judged = np.zeros(len(slices)), 0
    for held in range(_FOLDS):
        train, test = fold != held, (fold == held) & np.isin(codes, codes[fold != held])
        if len(np.unique(codes[train])) < 2 or not test.any():
            continue
        forest = ExtraTreesClassifier(_TREES, min_samples_leaf=2, random_state=seed).fit(X[train], codes[train])
        lost += _drops(forest, X[test], codes[test], list(slices.values()), generator) * test.sum()
        judged += int(test.sum())
    if not judged:
        return {}
    return dict(sorted(zip(slices, (lost / judged).tolist(), strict=True), key=lambda item: -item[1]))


def _drops(
    forest: Any,
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    columns: list[slice],
    generator: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """The mean drop in the correct class's probability without each column."""
    right = np.searchsorted(forest.classes_, codes)
    shuffles = int(np.clip(_MOST_PREDICTED // (len(X) * len(columns)), 1, _SHUFFLES))
    at_once = max(1, _MOST_ENTRIES // X.size)

    def score(parts: list[npt.NDArray[np.float32]]) -> list[float]:
        probability = forest.predict_proba(np.concatenate(parts)).reshape(len(parts), len(X), -1)
        return list(probability[:, np.arange(len(X)), right].mean(axis=1))

    orders = [(column, generator.permutation(len(X))) for column in columns for _ in range(shuffles)]
    scores: list[float] = []
    for start in range(0, len(orders), at_once):
        parts = [X.copy() for _ in orders[start : start + at_once]]
        for part, (column, order) in zip(parts, orders[start:], strict=False):
            part[:, column] = X[order, column]
        scores += score(parts)
    return np.asarray(score([X])[0] - np.array(scores).reshape(len(columns), shuffles).mean(axis=1))
