"""Decision trees as arrays: converted from scikit-learn, saved, and loaded without running code from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.propagation.trees import Nodes, tree_sums


@dataclass(frozen=True)
class Trees:
    r"""Many trees, concatenated. A walk goes from a root to a leaf: left if the column is at most the threshold.

    .. math:: P = \frac{1}{T} \sum_t v_{t} \quad \text{(forest)}, \qquad
        P = \mathrm{softmax}\Big(b + \sum_t v_t\Big) \quad \text{(boosting)}

    with :math:`v_t` the value of the leaf that tree t ends in.

    Args:
        column: int32 [nodes], the column that a node tests; -1 for a leaf.
        threshold: float64 [nodes].
        left, right: int32 [nodes], the next node; for a leaf, ``left`` is its row in ``value``.
        value: float32 [leaves, C] for forests, float64 [leaves, 1] for boosting.
        root: int32 [T].
        target: int32 [T], the class whose logit a boosted tree adds to; empty for forests.
        baseline: float64 [C], b; empty for forests.
    """

    column: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    value: npt.NDArray[Any]
    root: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]
    baseline: npt.NDArray[np.float64]

    def first_rounds(self, rounds: int) -> Trees:
        """Only the first rounds of boosting: each has one tree per class, or one tree for two classes."""
        per_round = len(np.unique(self.target))
        kept = rounds * per_round
        return self if kept >= len(self.root) else replace(self, root=self.root[:kept], target=self.target[:kept])

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
            self.target, self.baseline,
        )  # fmt: skip

    def predict(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Class probabilities [M, C] of rows X [M, F]."""
        sums = self.sums(X)
        if not len(self.target):
            return (sums / len(self.root)).astype(np.float32)
        logits = sums + self.baseline
        powers: npt.NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)

    def sums(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """The leaves' values summed over the trees, [M, C], for rows X [M, F]."""
        classes = len(self.baseline) if len(self.target) else self.value.shape[1]
        rows = torch.from_numpy(np.ascontiguousarray(X, np.float32))
        found: npt.NDArray[np.float64] = tree_sums(self._nodes, rows, classes).numpy()
        return found

    @cached_property
    def _nodes(self) -> Nodes:
        parts = (self.column, self.threshold, self.left, self.right, self.value, self.root, self.target)
        return Nodes(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

    def arrays(self) -> dict[str, Tensor]:
        """The parts by name."""
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in self.__dataclass_fields__}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Tensor], columns: int, classes: int) -> Trees:
        """Rebuild trees from :meth:`arrays`, and check that every walk stays in bounds and ends.

        Raises:
            ValueError: The arrays do not describe trees over this number of columns and classes.
        """
        trees = cls(**{name: arrays[name].cpu().numpy() for name in cls.__dataclass_fields__})
        _check(trees, columns, classes)
        return trees


def _check(trees: Trees, columns: int, classes: int) -> None:
    count, leaves = len(trees.column), len(trees.value)
    boosted = len(trees.target) > 0
    inner, place = trees.column >= 0, np.arange(count)
    types: list[tuple[npt.NDArray[Any], str]] = [
        (trees.column, "i"), (trees.left, "i"), (trees.right, "i"), (trees.root, "i"), (trees.target, "i"),
        (trees.threshold, "f"), (trees.value, "f"), (trees.baseline, "f"),
    ]  # fmt: skip
    good = (
        all(part.dtype.kind == kind for part, kind in types)
        and trees.value.ndim == 2
        and len(trees.threshold) == len(trees.left) == len(trees.right) == count
        and trees.value.shape[1] == (1 if boosted else classes)
        and len(trees.baseline) == (classes if boosted else 0)
        and len(trees.target) in (0, len(trees.root))
        and bool(np.isfinite(trees.value).all() and np.isfinite(trees.baseline).all())
        and not np.isnan(trees.threshold[inner]).any()
        and bool((trees.column < columns).all())
        and bool(((trees.root >= 0) & (trees.root < count)).all())
        and bool(((trees.target >= 0) & (trees.target < classes)).all())
        # Children come after their parent, so a walk cannot loop.
        and bool(((trees.left[inner] > place[inner]) & (trees.left[inner] < count)).all())
        and bool(((trees.right[inner] > place[inner]) & (trees.right[inner] < count)).all())
        and bool(((trees.left[~inner] >= 0) & (trees.left[~inner] < leaves)).all())
    )
    if not good:
        raise ValueError("its trees' arrays contradict each other")


def of_forest(forest: Any, classes: int) -> Trees:
    """The trees of a fitted scikit-learn forest whose classes are codes below ``classes``."""
    parts = []
    for member in forest.estimators_:
        tree = member.tree_
        leaf = tree.children_left < 0
        value = np.zeros((int(leaf.sum()), classes), np.float32)
        shares = tree.value[leaf, 0]
        value[:, forest.classes_] = shares / shares.sum(axis=1, keepdims=True)
        parts.append(
            _tree(np.where(leaf, -1, tree.feature), tree.threshold, tree.children_left, tree.children_right, value)
        )
    return joined(parts)


def of_boosting(boosting: Any, classes: int) -> Trees:
    """The trees of a fitted scikit-learn gradient boosting with ``init="zero"`` and codes below ``classes``."""
    parts, target = [], []
    codes = np.asarray(boosting.classes_)
    for members in boosting.estimators_:
        for number, member in enumerate(members):
            tree = member.tree_
            leaf = tree.children_left < 0
            value = boosting.learning_rate * tree.value[leaf, 0]
            parts.append(
                _tree(np.where(leaf, -1, tree.feature), tree.threshold, tree.children_left, tree.children_right, value)
            )
            # With two classes there is one tree per round, the logit of the second against the first.
            target.append(codes[number if len(members) > 1 else 1])
    # A class without labels in this signal is practically impossible.
    baseline = np.full(classes, -30.0)
    baseline[codes] = 0.0
    return replace(joined(parts), target=np.array(target, np.int32), baseline=baseline)


def _tree(column: Any, threshold: Any, left: Any, right: Any, value: Any) -> Trees:
    leaf = column < 0
    left = np.where(leaf, np.cumsum(leaf) - 1, left)
    empty = np.zeros(0)
    return Trees(
        column.astype(np.int32), np.where(leaf, 0.0, threshold).astype(np.float64), left.astype(np.int32),
        np.where(leaf, 0, right).astype(np.int32), value, np.zeros(1, np.int32), empty.astype(np.int32), empty,
    )  # fmt: skip


def joined(parts: Sequence[Trees]) -> Trees:
    """All trees of several parts, concatenated."""
    nodes = np.cumsum([0, *(len(part.column) for part in parts)])
    leaves = np.cumsum([0, *(len(part.value) for part in parts)])
    left = [
        np.where(part.column < 0, part.left + leaf, part.left + node).astype(np.int32)
        for part, node, leaf in zip(parts, nodes, leaves, strict=False)
    ]
    right = [(part.right + node).astype(np.int32) for part, node in zip(parts, nodes, strict=False)]
    root = [(part.root + node).astype(np.int32) for part, node in zip(parts, nodes, strict=False)]
    return Trees(
        np.concatenate([part.column for part in parts]), np.concatenate([part.threshold for part in parts]),
        np.concatenate(left), np.concatenate(right), np.concatenate([part.value for part in parts]),
        np.concatenate(root), parts[0].target, parts[0].baseline,
    )  # fmt: skip
