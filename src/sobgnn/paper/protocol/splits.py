"""Training, validation and test points: pure functions of a seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]

# The one division into development and test points that all seeds, models and trials share.
TEST_SHARE = 0.45
_TEST_SEED = 7


class Split(NamedTuple):
    """Sorted, disjoint node indices."""

    train: Index
    validation: Index


def development_and_test(num_nodes: int, share: float = TEST_SHARE) -> tuple[Index, Index]:
    """All points, divided once: development, and ``share`` of them for testing."""
    order = np.random.default_rng([_TEST_SEED, num_nodes]).permutation(num_nodes)
    test = round(share * num_nodes)
    return np.sort(order[test:]), np.sort(order[:test])


def ten_percent(development: Index, num_nodes: int, seed: int, share: float = 0.1) -> Split:
    """``share`` of all points for training, drawn from the development set; the rest of it is for validation."""
    order = np.random.default_rng([seed, 1]).permutation(development)
    train = max(1, round(share * num_nodes))
    if train >= len(order):
        raise ValueError(
            f"`share` of all points must leave development points for validation, but {train} of {len(order)} are "
            "for training. Pass a smaller share."
        )
    return Split(np.sort(order[:train]), np.sort(order[train:]))


def per_class(development: Index, labels: npt.NDArray[Any], seed: int, count: int) -> Split:
    """``count`` points of each class for training and as many others for validation, if there are enough."""
    order = np.random.default_rng([seed, 2, count]).permutation(development)
    train, validation = [], []
    for label in np.unique(labels[development]):
        members = order[labels[order] == label]
        kept = min(count, max(1, len(members) // 2))
        train.append(members[:kept])
        validation.append(members[kept : 2 * kept])
    return Split(np.sort(np.concatenate(train)), np.sort(np.concatenate(validation)))
