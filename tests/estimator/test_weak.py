from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn.estimator import weak
from sobgnn.estimator.ensemble import Labels
from sobgnn.estimator.weak import guess


@pytest.fixture
def labels():
    index = np.arange(8)
    return Labels(index, index % 2, np.ones(8), np.array([0, 0, 1, 1, 0, 0, 1, 1]), [5, 6, 7])


def teachers(points=40, seed=0):
    """Two teachers that hold out a fold each, and one that knows all labels."""
    return torch.rand(3, points, 2, generator=torch.Generator().manual_seed(seed)).softmax(dim=2)


def test_the_surer_half_of_each_class_gets_a_weak_label(labels):
    said = teachers()
    found = guess(said, labels, np.random.default_rng(0))
    assert not np.isin(found.pool, labels.index).any()
    for student in range(3):
        by_teacher = said[student].numpy()
        for code in range(2):
            rows = [p for p in range(8, 40) if by_teacher[p].argmax() == code]
            surest = sorted(rows, key=lambda p: -by_teacher[p].max())[: (len(rows) + 1) // 2]
            assert sorted(found.pool[found.guessed[student] == code]) == sorted(surest)


def test_points_that_are_nearly_certain_are_told_apart(labels):
    doubt = torch.logspace(-12, -9, 32, dtype=torch.float64)[
        torch.randperm(32, generator=torch.Generator().manual_seed(0))
    ]
    said = torch.full((3, 40, 2), 0.5)
    said[:, 8:] = torch.stack([1 - doubt, doubt], dim=1).float()  # the first are all 1 in single precision
    found = guess(said, labels, np.random.default_rng(0))
    assert sorted(found.pool) == sorted((8 + doubt.argsort()[:16]).tolist())


def test_weak_labels_stand_for_half_of_what_a_student_learns_and_none_of_what_it_stops_on(labels):
    found = guess(teachers(), labels, np.random.default_rng(0))
    task = found.task(slice(0, 3), torch.device("cpu"))
    assert task.target.shape == task.train_weight.shape == (3, len(found.index))
    torch.testing.assert_close(task.train_weight[:, :8].sum(dim=1), torch.full((3,), 0.5))
    torch.testing.assert_close(task.train_weight.sum(dim=1), torch.ones(3))
    held = labels.fold == np.arange(3)[:, None]
    assert (task.train_weight[:, :8].numpy()[held] == 0).all()
    np.testing.assert_array_equal(task.validation[:, :8].numpy() > 0, held)
    assert (task.validation[:, 8:] == 0).all()


def test_large_data_gives_a_sample_of_weak_labels(labels, monkeypatch):
    monkeypatch.setattr(weak, "POOL", 10)
    found = guess(teachers(500), labels, np.random.default_rng(0))
    assert len(found.pool) <= 10


def test_without_unlabelled_points_there_are_none(labels):
    assert guess(teachers(8), labels, np.random.default_rng(0)) is None
