"""Decision trees: forests, and boosted trees where there are labels enough; grown by scikit-learn, kept as arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import KeptSignals
from sobgnn.estimator.families.nodes import Trees, joined, of_boosting, of_forest
from sobgnn.estimator.labels import Labels, one_label_per_class_allowed
from sobgnn.estimator.problem import NewPoints, Problem

# Trees of each kind that are grown from all labels, and without each fold where that many would take too long: labels
# times columns from which they would. Fewer trees are noisier, so that out of fold smoothing seems to help forests more
# than it does with all trees.
WHOLE, PER_FOLD, _FEWER_FROM = 64, 24, 8_000
# The share of its trees that a forest grows anew after a few labels more.
_ANEW = 0.25
# Rows times trees that are worth their time; where points are very many, fewer trees are grown.
_MOST_WORK = 40_000_000
# Classes, and labels times columns, up to which boosting takes about as long as the forests do.
_BOOSTED_CLASSES, _BOOSTED_WORK, _BOOSTED_LABELS = 8, 150_000, 20
# Columns that a split is chosen among: half of them, where that is not too many.
_MOST_TRIED = 24
# Labels times columns from which further threads pay for themselves in growing a forest, and threads at most.
_THREADED_WORK, _MOST_THREADS = 200_000, 4


class Forests:
    """Random forests and extremely randomized trees, half of each; the mean of their leaves' class shares.

    They read columns as they came: classes that follow single columns, heavy tails and units do not matter to them.
    """

    name: ClassVar[str] = "forests"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True

    def fit(self, problem: Problem, labels: Labels) -> FittedTrees:
        """Grow trees without each fold, and from all labels."""
        X, generator = problem.columns, problem.generator(self.name)
        signals = labels.folds + 1
        per_fold = PER_FOLD if len(labels.index) * X.shape[1] > _FEWER_FROM else WHOLE
        fewer = min(1.0, _MOST_WORK / (problem.count * 2 * (WHOLE + per_fold * labels.folds)))
        out = np.zeros((signals, problem.count, labels.classes), np.float32)
        kept = []
        for signal, share in enumerate(labels.shares()):
            size = max(4, round(fewer * (WHOLE if signal == labels.folds else per_fold)))
            used = share > 0
            for kind in ("random", "extra"):
                forest = grown(kind, size, X[labels.index[used]], labels.codes[used], share[used], generator)
                out[signal][:, forest.classes_] += _leaves(forest, X) / 2
                if signal == labels.folds:
                    kept.append(of_forest(forest, labels.classes))
            problem.tell("forests", signal + 1, signals)
        return FittedTrees(joined(kept), signals=torch.from_numpy(out).to(problem.device))

    def refit(self, problem: Problem, labels: Labels, before: FittedTrees) -> FittedTrees:
        """Grow a part of the trees of each kind anew, from all labels, in place of the oldest ones."""
        X, trees = problem.columns, before.trees
        # Each refit has random numbers of its own: the same ones would grow the same trees.
        generator = np.random.default_rng([int(problem.generator(self.name).integers(2**31)), before.age])
        size = len(trees.root) // 2
        fewer = math.ceil(_ANEW * size)
        share = labels.shares()[-1]
        kept, added, removed = [], [], []
        for start, kind in ((0, "random"), (size, "extra")):
            removed.append(trees.part(start, start + fewer))
            forest = grown(kind, fewer, X[labels.index], labels.codes, share, generator)
            added.append(of_forest(forest, labels.classes))
            kept += [trees.part(start + fewer, start + size), added[-1]]
        change = torch.from_numpy(joined(added).sums(X) - joined(removed).sums(X)) / len(trees.root)
        # Sums of leaves are taken away and added: what is left of a share is never below 0 but by rounding.
        whole = (before.probabilities()[-1] + change.to(problem.device)).clamp(min=0).float()
        problem.tell("forests", 1, 1)
        return FittedTrees(joined(kept), before.age + 1, signals=whole.unsqueeze(0))

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedTrees:
        """From the trees of all labels."""
        return FittedTrees(Trees.of_arrays(arrays, problem.columns.shape[1], problem.classes))


class BoostedTrees:
    """Stochastic gradient boosting of small trees, of as many rounds as out-of-fold labels support.

    Left out where it would take longer than the forests: many labels and columns, many classes.
    """

    name: ClassVar[str] = "boosting"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True
    rounds: ClassVar[tuple[int, ...]] = (20, 60)

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Whether there are labels enough, 20 per class, and boosting is quick enough beside the other families.

        With fewer it costs more than it gains, by out-of-fold labels that are too few to tell.
        """
        count = len(labels.index)
        quick = labels.classes <= _BOOSTED_CLASSES and count * problem.columns.shape[1] <= _BOOSTED_WORK
        return quick and count >= _BOOSTED_LABELS * labels.classes

    def refit(self, problem: Problem, labels: Labels, before: FittedTrees) -> FittedTrees:
        """Boost from all labels, as many rounds as were best before."""
        rounds = len(before.trees.root) // len(np.unique(before.trees.target))
        return self._fit(problem, labels, (rounds,))

    def fit(self, problem: Problem, labels: Labels) -> FittedTrees:
        """Boost without each fold and from all labels; keep the number of rounds that predicts held-out labels best."""
        return self._fit(problem, labels, self.rounds)

    def _fit(self, problem: Problem, labels: Labels, choices: Sequence[int]) -> FittedTrees:
        X, seed = problem.columns, int(problem.generator(self.name).integers(2**31))
        signals = labels.folds + 1
        staged = np.zeros((len(choices), signals, problem.count, labels.classes), np.float32)
        for signal, share in enumerate(labels.shares()):
            used = share > 0
            boosted = _boosted(X[labels.index[used]], labels.codes[used], share[used], choices[-1], seed)
            trees = of_boosting(boosted, labels.classes)
            for place, rounds in enumerate(choices):
                staged[place, signal] = trees.first_rounds(rounds).predict(X)
            problem.tell("boosting", signal + 1, signals)
        best = 0
        if labels.folds:
            codes = labels.codes[labels.judged]
            errors = []
            for part in staged:
                own = labels.out_of_fold(torch.from_numpy(part))
                errors.append(np.square(own - np.eye(labels.classes)[codes]).sum())
            best = int(np.argmin(errors))
        probabilities = torch.from_numpy(staged[best]).to(problem.device)
        return FittedTrees(trees.first_rounds(choices[best]), signals=probabilities)

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedTrees:
        """From the trees of all labels."""
        return FittedTrees(Trees.of_arrays(arrays, problem.columns.shape[1], problem.classes))


@dataclass(frozen=True)
class FittedTrees(KeptSignals):
    """Trees grown from all labels; ``age`` counts refits."""

    trees: Trees
    age: int = 0

    def predict(self, new: NewPoints) -> Tensor:
        """As scikit-learn predicts, [M, C]."""
        return torch.from_numpy(self.trees.predict(new.columns)).to(new.points.device)

    def arrays(self) -> dict[str, Tensor]:
        """The nodes of all trees."""
        return self.trees.arrays()


def grown(
    kind: str,
    size: int,
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    generator: np.random.Generator,
) -> Any:
    """A fitted forest of scikit-learn's, ``"random"`` or ``"extra"``, of ``size`` trees."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    grow = RandomForestClassifier if kind == "random" else ExtraTreesClassifier
    threads = _threads() if X.size >= _THREADED_WORK else 1
    width = X.shape[1]
    tried = max(1, int(np.sqrt(width)), min(width // 2, _MOST_TRIED))
    forest = grow(size, max_features=tried, random_state=int(generator.integers(2**31)), n_jobs=threads)
    with one_label_per_class_allowed():
        return forest.fit(X, codes, sample_weight=weight * len(weight))


def _leaves(forest: Any, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Mean class shares of the leaves, trees added in their order, so that threads do not change a bit."""
    total = np.zeros((len(X), len(forest.classes_)))
    with ThreadPoolExecutor(_threads() if len(X) * len(forest.estimators_) >= _THREADED_WORK else 1) as pool:
        for part in pool.map(lambda tree: tree.predict_proba(X, check_input=False), forest.estimators_):
            total += part
    return total / len(forest.estimators_)


def _threads() -> int:
    """Cores that this process may use, not too many; trees are grown one by one, so bits do not depend on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def _boosted(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    rounds: int,
    seed: int,
) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    boosting = GradientBoostingClassifier(
        n_estimators=rounds, max_depth=3, max_features=0.3, subsample=0.8, init="zero", random_state=seed
    )
    with one_label_per_class_allowed():
        return boosting.fit(X, codes, sample_weight=weight * len(weight))


__all__: Sequence[str] = ("BoostedTrees", "FittedTrees", "Forests")
