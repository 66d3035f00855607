"""Forests of decision trees: grown by scikit-learn, kept as arrays, and loaded without running code from a file."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn._system.process import importing
from sobgnn.estimator.families.contract import Family, FittedFamily, Learned
from sobgnn.estimator.labels import Labels, one_label_per_class_allowed
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import NOT_SAVED, shaped
from sobgnn.propagation.trees import Nodes, tree_sums

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


class Forests(Family):
    """Random forests and extremely randomized trees, half of each; the mean of their leaves' class shares.

    They read the original columns and find classes that depend on single columns; heavy tails and units do not matter.
    """

    name: ClassVar[str] = "forests"
    title: ClassVar[str] = "forests"
    explained: ClassVar[str] = "decision trees, which ask about one column after the other"

    def fit(self, points: Points, labels: Labels, before: FittedTrees | None = None) -> Learned:
        """Grow trees without each fold, and from all labels; of an earlier forest, only the oldest are regrown."""
        X, generator = points.columns, points.generator(self.name)
        if before is not None:
            return Learned(self._regrown(points, labels, before), np.zeros((0, labels.classes)))
        per_fold = PER_FOLD if len(labels.index) * X.shape[1] > _FEWER_FROM else WHOLE
        shares_per_tree = labels.classes * min(len(labels.index), _USUAL_LEAVES)
        fewer = min(1.0, _MOST_WORK / (points.count * 2 * WHOLE), _MOST_SHARES / (shares_per_tree * WHOLE))
        shares = labels.shares()

        def forest(fit: int) -> Trees:
            size = max(4, round(fewer * (WHOLE if fit == labels.folds else per_fold)))
            used = shares[fit] > 0
            grow = (X[labels.index[used]], labels.codes[used], shares[fit][used], generator)
            trees = joined([of_forest(grown(kind, size, *grow), labels.classes) for kind in KINDS])
            points.report(self.name, fit + 1, labels.folds + 1)
            return trees

        # One after the other: with many classes, a forest is larger than all that is predicted of it.
        out_of_fold = labels.each_fold(lambda fold, held: forest(fold).predict(X[labels.index[held]]))
        return Learned(FittedTrees(forest(labels.folds)), out_of_fold)

    def _regrown(self, points: Points, labels: Labels, before: FittedTrees) -> FittedTrees:
        """The forest with the oldest trees of each kind replaced by new ones, grown from all labels."""
        # Each refit has its own random numbers: the same ones would grow the same trees.
        generator = np.random.default_rng([int(points.generator(self.name).integers(2**31)), before.age])
        size = len(before.trees.root) // 2
        anew, parts = math.ceil(_ANEW * size), []
        for start, kind in zip((0, size), KINDS, strict=True):
            forest = grown(kind, anew, points.columns[labels.index], labels.codes, labels.shares()[-1], generator)
            parts += [before.trees.part(start + anew, start + size), of_forest(forest, labels.classes)]
        points.report(self.name, 1, 1)
        return FittedTrees(joined(parts), before.age + 1)


@dataclass(frozen=True)
class Trees:
    r"""Many trees, concatenated. A walk goes from a root to a leaf: left if the column is at most the threshold.

    .. math:: P = \frac{1}{T} \sum_t v_t

    with :math:`v_t` the value of the leaf that tree t ends in.

    Args:
        column: int32 [nodes], the column that a node tests; -1 for a leaf.
        threshold: float64 [nodes].
        left, right: int32 [nodes], the next node; for a leaf, ``left`` is its row in ``value``.
        value: float32 [leaves, C].
        root: int32 [T].
    """

    column: npt.NDArray[np.int32] = field(metadata=shaped("nodes"))
    threshold: npt.NDArray[np.float64] = field(metadata=shaped("nodes", most=math.inf))
    left: npt.NDArray[np.int32] = field(metadata=shaped("nodes", least=0))
    right: npt.NDArray[np.int32] = field(metadata=shaped("nodes", least=0))
    value: npt.NDArray[np.float32] = field(metadata=shaped("leaves", "classes", least=0, most=1 + 1e-3))
    root: npt.NDArray[np.int32] = field(metadata=shaped("trees", least=0))

    def part(self, first: int, stop: int) -> Trees:
        """The trees of a forest from ``first`` to before ``stop``; nodes are stored tree by tree."""
        ends = np.append(self.root, len(self.column))
        nodes = slice(int(ends[first]), int(ends[stop]))
        leaf = self.column[nodes] < 0
        # Leaves are numbered in the order of their nodes.
        row = int((self.column[: nodes.start] < 0).sum())
        return Trees(
            self.column[nodes], self.threshold[nodes],
            self.left[nodes] - np.where(leaf, row, nodes.start).astype(np.int32),
            np.where(leaf, 0, self.right[nodes] - nodes.start).astype(np.int32),
            self.value[row : row + int(leaf.sum())], (self.root[first:stop] - nodes.start).astype(np.int32),
        )  # fmt: skip

    def predict(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Class probabilities [M, C] of rows X [M, F]."""
        rows = torch.from_numpy(np.ascontiguousarray(X, np.float32))
        sums: npt.NDArray[np.float64] = tree_sums(self._nodes, rows, self.value.shape[1]).numpy()
        return (sums / len(self.root)).astype(np.float32)

    @cached_property
    def _nodes(self) -> Nodes:
        parts = (self.column, self.threshold, self.left, self.right, self.value, self.root, np.zeros(0, np.int32))
        return Nodes(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

    def check(self, sizes: Mapping[str, int], points: Any) -> None:
        """Raise ValueError unless every walk over rows stays in bounds and ends."""
        count, inner, place = len(self.column), self.column >= 0, np.arange(len(self.column))
        # Children come after their parent, so a walk cannot loop.
        ends = all(((child > place) & (child < count))[inner].all() for child in (self.left, self.right))
        inside = (self.column < sizes["columns"]).all() and (self.left[~inner] < len(self.value)).all()
        if not ends or not inside or not len(self.root) or not (self.root < count).all():
            raise ValueError("its trees' arrays contradict each other")


@dataclass(frozen=True)
class FittedTrees(FittedFamily):
    """Trees grown from all labels; ``age`` counts refits."""

    trees: Trees
    age: int = field(default=0, metadata=NOT_SAVED)

    def predict(self, view: View) -> Tensor:
        """The mean of the trees, [M, C]."""
        return torch.from_numpy(self.trees.predict(view.columns)).to(view.points.device)


def of_forest(forest: Any, classes: int) -> Trees:
    """The trees of a fitted scikit-learn forest whose classes are codes below ``classes``."""
    parts = []
    for member in forest.estimators_:
        tree = member.tree_
        leaf = tree.children_left < 0
        value = np.zeros((int(leaf.sum()), classes), np.float32)
        shares = tree.value[leaf, 0]
        value[:, forest.classes_] = shares / shares.sum(axis=1, keepdims=True)
        column, threshold = np.where(leaf, -1, tree.feature), np.where(leaf, 0.0, tree.threshold)
        left = np.where(leaf, np.cumsum(leaf) - 1, tree.children_left)
        column, left, right = (a.astype(np.int32) for a in (column, left, np.where(leaf, 0, tree.children_right)))
        parts.append(Trees(column, threshold, left, right, value, np.zeros(1, np.int32)))
    return joined(parts)


def joined(parts: Sequence[Trees]) -> Trees:
    """All trees of several parts, concatenated."""
    node = leaf = np.int32(0)
    moved = []
    for part in parts:
        left = part.left + np.where(part.column < 0, leaf, node)
        moved.append(replace(part, left=left, right=part.right + node, root=part.root + node))
        node, leaf = np.int32(node + len(part.column)), np.int32(leaf + len(part.value))
    return Trees(*(np.concatenate([getattr(part, each.name) for part in moved]) for each in fields(Trees)))


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
    # Trees are independent, so results do not depend on the number of threads.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(cores, _MOST_THREADS) if X.size >= _THREADED_WORK else 1
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
