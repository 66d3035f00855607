"""Decision trees as arrays: converted from scikit-learn, saved, and loaded without running code from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.propagation.trees import Nodes, tree_sums


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

    column: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    value: npt.NDArray[np.float32]
    root: npt.NDArray[np.int32]

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

    def check(self, columns: int, classes: int) -> None:
        """Raise ValueError unless every walk over rows of this number of columns stays in bounds and ends."""
        count, leaves = len(self.column), len(self.value)
        inner, place = self.column >= 0, np.arange(count)
        good = (
            self.value.ndim == 2
            and len(self.threshold) == len(self.left) == len(self.right) == count
            and self.value.shape[1] == classes
            and len(self.root) > 0
            and bool(((self.value >= 0) & (self.value <= 1 + 1e-3)).all())
            and bool((self.column < columns).all())
            and bool(((self.root >= 0) & (self.root < count)).all())
            # Children come after their parent, so a walk cannot loop.
            and bool(((self.left[inner] > place[inner]) & (self.left[inner] < count)).all())
            and bool(((self.right[inner] > place[inner]) & (self.right[inner] < count)).all())
            and bool(((self.left[~inner] >= 0) & (self.left[~inner] < leaves)).all())
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


def _tree(column: Any, threshold: Any, left: Any, right: Any, value: Any) -> Trees:
    leaf = column < 0
    left = np.where(leaf, np.cumsum(leaf) - 1, left)
    return Trees(
        column.astype(np.int32), np.where(leaf, 0.0, threshold).astype(np.float64), left.astype(np.int32),
        np.where(leaf, 0, right).astype(np.int32), value, np.zeros(1, np.int32),
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
        np.concatenate(root),
    )  # fmt: skip
