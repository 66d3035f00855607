"""Decision trees: forests and, with enough labels, boosted trees; grown by scikit-learn, stored as arrays."""

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
from sobgnn.runtime.process import importing

# Trees of each kind that are grown from all labels, the fewer trees that are grown without each fold to save time, and
# labels times columns above which this is done. Fewer trees are noisier, so out of fold, smoothing seems to help
# forests more than it does with all trees.
WHOLE, PER_FOLD, _FEWER_FROM = 64, 24, 8_000
# Share of its trees that a forest regrows in a refit.
_ANEW = 0.25
# Maximum of rows times trees; with very many points, fewer trees are grown.
_MOST_WORK = 40_000_000
# Classes, and labels times columns, up to which boosting takes about as long as the forests; least labels per class.
_BOOSTED_CLASSES, _BOOSTED_WORK, _BOOSTED_LABELS = 8, 150_000, 20
# Columns tried at each split: half of them, but at most this many, or their square root if that is more.
_MOST_TRIED = 24
# Labels times columns from which more threads pay off in growing a forest, and the maximum number of threads.
_THREADED_WORK, _MOST_THREADS = 200_000, 4


class Forests:
    """Random forests and extremely randomized trees, half of each; the mean of their leaves' class shares.

    They read the original columns and find classes that depend on single columns; heavy tails and units do not matter.
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
            problem.tell(self.name, signal + 1, signals)
        return FittedTrees(joined(kept), signals=torch.from_numpy(out).to(problem.device))

    def refit(self, problem: Problem, labels: Labels, before: FittedTrees) -> FittedTrees:
        """Replace the oldest trees of each kind by new ones, grown from all labels."""
        X, trees = problem.columns, before.trees
        # Each refit has its own random numbers: the same ones would grow the same trees.
        generator = np.random.default_rng([int(problem.generator(self.name).integers(2**31)), before.age])
        size = len(trees.root) // 2
        anew = math.ceil(_ANEW * size)
        share = labels.shares()[-1]
        kept, added, removed = [], [], []
        for start, kind in ((0, "random"), (size, "extra")):
            removed.append(trees.part(start, start + anew))
            forest = grown(kind, anew, X[labels.index], labels.codes, share, generator)
            added.append(of_forest(forest, labels.classes))
            kept += [trees.part(start + anew, start + size), added[-1]]
        change = torch.from_numpy(joined(added).sums(X) - joined(removed).sums(X)) / len(trees.root)
        # Sums of leaves are subtracted and added, so a share is below 0 only by rounding.
        whole = (before.probabilities()[-1] + change.to(problem.device)).clamp(min=0).float()
        problem.tell(self.name, 1, 1)
        return FittedTrees(joined(kept), before.age + 1, signals=whole.unsqueeze(0))

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedTrees:
        """Restore from the trees grown from all labels."""
        return FittedTrees(Trees.of_arrays(arrays, problem.columns.shape[1], problem.classes))


class BoostedTrees:
    """Stochastic gradient boosting of small trees, with the number of rounds that out-of-fold labels support.

    Not used if it would take longer than the forests: with many labels and columns, or many classes.
    """

    name: ClassVar[str] = "boosting"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True
    rounds: ClassVar[tuple[int, ...]] = (20, 60)

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Whether there are at least 20 labels per class on average and boosting is fast compared with other families.

        With fewer it costs more than it gains, and out-of-fold labels are too few to show it.
        """
        count = len(labels.index)
        quick = labels.classes <= _BOOSTED_CLASSES and count * problem.columns.shape[1] <= _BOOSTED_WORK
        return quick and count >= _BOOSTED_LABELS * labels.classes

    def refit(self, problem: Problem, labels: Labels, before: FittedTrees) -> FittedTrees:
        """Boost from all labels, for as many rounds as were best before."""
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
            problem.tell(self.name, signal + 1, signals)
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
        """Restore from the trees grown from all labels."""
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
    """A fitted scikit-learn forest, ``"random"`` or ``"extra"``, of ``size`` trees."""
    with importing():
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    grow = RandomForestClassifier if kind == "random" else ExtraTreesClassifier
    threads = _threads() if X.size >= _THREADED_WORK else 1
    width = X.shape[1]
    tried = max(1, int(np.sqrt(width)), min(width // 2, _MOST_TRIED))
    forest = grow(size, max_features=tried, random_state=int(generator.integers(2**31)), n_jobs=threads)
    with one_label_per_class_allowed():
        return forest.fit(X, codes, sample_weight=weight * len(weight))


def _leaves(forest: Any, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Mean class shares of the leaves; trees are added in order, so the number of threads does not change a bit."""
    total = np.zeros((len(X), len(forest.classes_)))
    with ThreadPoolExecutor(_threads() if len(X) * len(forest.estimators_) >= _THREADED_WORK else 1) as pool:
        for part in pool.map(lambda tree: tree.predict_proba(X, check_input=False), forest.estimators_):
            total += part
    return total / len(forest.estimators_)


def _threads() -> int:
    """Cores that this process may use, up to a limit; trees are independent, so results do not depend on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def _boosted(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    rounds: int,
    seed: int,
) -> Any:
    with importing():
        from sklearn.ensemble import GradientBoostingClassifier

    boosting = GradientBoostingClassifier(
        n_estimators=rounds, max_depth=3, max_features=0.3, subsample=0.8, init="zero", random_state=seed
    )
    with one_label_per_class_allowed():
        return boosting.fit(X, codes, sample_weight=weight * len(weight))
