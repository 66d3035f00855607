from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn.estimator.fit import FEW_LABELS_PRIOR, FEW_LABELS_TABLE_PRIOR, PRIOR, TABLE_PRIOR, expected_of
from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.problem import Problem


def columns(numbers, categories, rows=300, seed=0):
    """Columns of measured numbers beside columns of yes and no."""
    generator = np.random.default_rng(seed)
    parts = [generator.normal(size=(rows, numbers)), generator.integers(0, 2, (rows, categories))]
    return np.concatenate(parts, axis=1).astype(np.float32)


def problem_of(X):
    return Problem(torch.from_numpy(X), X, {}, 2)


@pytest.mark.parametrize(
    ("numbers", "categories", "many", "mostly"),
    [
        (2, 0, False, False),  # two measured columns, as of a plane
        (40, 0, True, False),  # pictures, sounds
        (40, 20, False, True),  # many numbers beside many categories
        (3, 1, False, False),
        (3, 2, False, True),
        (0, 30, False, True),
    ],
)
def test_what_columns_are(numbers, categories, many, mostly):
    problem = problem_of(columns(numbers, categories))
    assert (problem.many_numbers, problem.mostly_categories) == (many, mostly)


def test_columns_that_never_vary_do_not_count():
    X = np.concatenate([columns(3, 0), np.ones((300, 50), np.float32)], axis=1)
    assert not problem_of(X).mostly_categories
    assert not problem_of(np.ones((300, 4), np.float32)).mostly_categories


def test_few_different_numbers_count_as_categories_and_many_columns_of_them_do_not():
    generator = np.random.default_rng(0)
    assert problem_of(generator.integers(0, 5, (300, 6)).astype(np.float32)).mostly_categories
    assert problem_of(generator.integers(0, 5, (300, 64)).astype(np.float32)).many_numbers


def test_tables_of_categories_have_a_prior_of_their_own():
    codes = np.where(np.arange(300) < 40, np.arange(300) % 2, -1)
    held_out = with_folds(codes, np.ones(40), 2, np.random.default_rng(0))
    few = with_folds(np.where(np.arange(300) < 2, codes, -1), np.ones(2), 2, np.random.default_rng(0))
    table, numbers = problem_of(columns(1, 6)), problem_of(columns(6, 0))
    assert expected_of(table, held_out) is TABLE_PRIOR
    assert expected_of(table, few) is FEW_LABELS_TABLE_PRIOR
    assert expected_of(numbers, held_out) is PRIOR
    assert expected_of(numbers, few) is FEW_LABELS_PRIOR


def test_columns_that_repeat_and_few_rows_are_no_categories():
    for count in (2400, 2500):  # every third row of hours has eight of them
        hour = np.arange(count, dtype=np.float32) % 24
        problem = problem_of(np.stack([hour, hour**2, columns(1, 0, count)[:, 0]], axis=1))
        assert not problem.mostly_categories
    assert not problem_of(columns(8, 0, rows=10)).mostly_categories
