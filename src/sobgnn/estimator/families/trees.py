"""Forests of decision trees, grown by scikit-learn, stored as arrays."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn._system.process import importing
from sobgnn.estimator.families.contract import Graphs, Learned
from sobgnn.estimator.families.nodes import Trees, joined, of_forest
from sobgnn.estimator.labels import Labels, one_label_per_class_allowed
from sobgnn.estimator.points import Points, Sizes, View
from sobgnn.estimator.state import NOT_SAVED

# Trees of each kind that are grown from all labels, the fewer trees that are grown without each fold to save time, and
# labels times columns above which this is done.
WHOLE, PER_FOLD, _FEWER_FROM = 64, 24, 8_000
# Share of its trees that a forest regrows in a refit.
_ANEW = 0.25
KINDS = ("random", "extra")
# Maximum of rows times trees that are predicted; with very many points, fewer trees are grown.
_MOST_WORK = 40_000_000
# Maximum of classes times leaves of the trees of one kind: leaves hold a share of every class. A tree has at most as
# many leaves as labels, and rarely more than ``_USUAL_LEAVES``, so fewer trees are grown only from 38 classes on.
_MOST_SHARES, _USUAL_LEAVES = 24_000_000, 10_000
# Columns tried at each split: half of them, but at most this many, or their square root if that is more.
_MOST_TRIED = 24
# Labels times columns from which more threads pay off in growing a forest, and the maximum number of threads.
_THREADED_WORK, _MOST_THREADS = 200_000, 4


class Forests:
    """Random forests and extremely randomized trees, half of each; the mean of their leaves' class shares.

    They read the original columns and find classes that depend on single columns; heavy tails and units do not matter.
    """

    name: ClassVar[str] = "forests"
    graphs: ClassVar[Graphs] = "none"

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Grow trees without each fold, and from all labels."""
        X, generator = points.columns, points.generator(self.name)
        fits = labels.folds + 1
        per_fold = PER_FOLD if len(labels.index) * X.shape[1] > _FEWER_FROM else WHOLE
        shares_per_tree = labels.classes * min(len(labels.index), _USUAL_LEAVES)
        fewer = min(1.0, _MOST_WORK / (points.count * 2 * WHOLE), _MOST_SHARES / (shares_per_tree * WHOLE))
        forests = []
        for number, share in enumerate(labels.shares()):
            size = max(4, round(fewer * (WHOLE if number == labels.folds else per_fold)))
            used = share > 0
            grow = (X[labels.index[used]], labels.codes[used], share[used], generator)
            forests.append(joined([of_forest(grown(kind, size, *grow), labels.classes) for kind in KINDS]))
            points.report(self.name, number + 1, fits)
        out_of_fold = labels.each_fold(lambda fold, held: forests[fold].predict(X[labels.index[held]]))
        return Learned(FittedTrees(forests[-1]), out_of_fold)

    def refit(self, points: Points, labels: Labels, before: FittedTrees) -> Learned:
        """Replace the oldest trees of each kind by new ones, grown from all labels."""
        X, trees = points.columns, before.trees
        # Each refit has its own random numbers: the same ones would grow the same trees.
        generator = np.random.default_rng([int(points.generator(self.name).integers(2**31)), before.age])
        size = len(trees.root) // 2
        anew = math.ceil(_ANEW * size)
        share = labels.shares()[-1]
        parts = []
        for start, kind in ((0, KINDS[0]), (size, KINDS[1])):
            forest = grown(kind, anew, X[labels.index], labels.codes, share, generator)
            parts += [trees.part(start + anew, start + size), of_forest(forest, labels.classes)]
        fitted = FittedTrees(joined(parts), before.age + 1)
        points.report(self.name, 1, 1)
        return Learned(fitted, np.zeros((0, labels.classes)))


@dataclass(frozen=True)
class FittedTrees:
    """Trees grown from all labels; ``age`` counts refits."""

    trees: Trees
    age: int = field(default=0, metadata=NOT_SAVED)

    def predict(self, view: View) -> Tensor:
        """The mean of the trees, [M, C]."""
        return torch.from_numpy(self.trees.predict(view.columns)).to(view.points.device)

    def check(self, sizes: Sizes) -> None:
        """Check that every walk stays in bounds and ends."""
        self.trees.check(sizes.columns, sizes.classes)


def grown(
    kind: str,
    size: int,
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    generator: np.random.Generator,
) -> Any:
    """A fitted scikit-learn forest, ``"random"`` or ``"extra"``, of ``size`` trees."""
    with importing():
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    grow = RandomForestClassifier if kind == "random" else ExtraTreesClassifier
    threads = _threads() if X.size >= _THREADED_WORK else 1
    width = X.shape[1]
    tried = max(1, int(np.sqrt(width)), min(width // 2, _MOST_TRIED))
    forest = grow(size, max_features=tried, random_state=int(generator.integers(2**31)), n_jobs=threads)
    forest._make_estimator = _copying(forest._make_estimator)
    with one_label_per_class_allowed():
        return forest.fit(X, codes, sample_weight=weight * len(weight))


def _copying(make: Callable[..., Any]) -> Callable[..., Any]:
    """How a scikit-learn forest makes its trees, ``make``: the same, but every tree after the first by copying it.

    Before a tree grows, it differs from the others only in its seed. scikit-learn reads the parameters of each from
    signatures several times, which takes as long as growing a small tree.
    """
    made: list[Any] = []

    def copied(append: bool = True, random_state: Any = None) -> Any:
        if append or not made:
            made.append(make(append=append, random_state=random_state))
            return made[-1]
        tree = copy.copy(made[0])
        tree.random_state = random_state.randint(np.iinfo(np.int32).max)
        return tree

    return copied


def _threads() -> int:
    """Cores that this process may use, up to a limit; trees are independent, so results do not depend on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)
