from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from sobgnn.estimator import blending
from sobgnn.estimator.blending import Blend, blend_families, shares
from sobgnn.estimator.labels import Labels


def judged(count, classes=3, seed=0):
    codes = np.random.default_rng(seed).integers(0, classes, count)
    return Labels(np.arange(count), codes, np.ones(count), np.arange(count) % 4, classes)


def guesses(codes, sure, seed, classes=3):
    """Probabilities that lean to the right class by ``sure``."""
    p = np.random.default_rng(seed).dirichlet(np.ones(classes), len(codes))
    return (1 - sure) * p + sure * np.eye(classes)[codes]


def objective(w, parts, codes, prior):
    mixed = np.einsum("f,flc->lc", w, parts)
    error = np.square(mixed - np.eye(parts.shape[2])[codes]).sum()
    return blending.EVIDENCE * error - (prior * np.log(w)).sum()


def test_the_shares_minimise_what_the_equation_says():
    labels = judged(40)
    parts = np.stack([guesses(labels.codes, sure, seed) for seed, sure in enumerate((0.1, 0.4, 0.6))])
    prior = np.array([4.0, 2.4, 1.6])
    w = shares(parts, labels.codes, labels.weight, prior)
    assert w.sum() == pytest.approx(1)
    best = objective(w, parts, labels.codes, prior)
    grid = np.linspace(0.005, 0.99, 60)
    for a, b in itertools.product(grid, grid):
        if a + b < 0.995:
            assert best <= objective(np.array([a, b, 1 - a - b]), parts, labels.codes, prior) + 1e-9


def test_with_few_labels_shares_stay_near_the_prior_and_with_many_the_best_family_wins():
    prior = np.array([5.6, 2.4])
    few, many = judged(3), judged(3000)
    near, far = (
        shares(np.stack([guesses(x.codes, 0.2, 1), guesses(x.codes, 0.7, 2)]), x.codes, x.weight, prior)
        for x in (few, many)
    )
    assert abs(near[0] - 0.7) < 0.25
    assert far[1] > 0.95


def test_a_blend_is_the_weighted_mean_of_sharpened_probabilities():
    p, q = torch.tensor([[0.7, 0.3]]), torch.tensor([[0.2, 0.8]])
    blended = Blend((0.25, 0.75), (1.0, 0.5))([p, q])
    sharp = np.square([0.2, 0.8]) / np.square([0.2, 0.8]).sum()
    np.testing.assert_allclose(blended[0], 0.25 * np.array([0.7, 0.3]) + 0.75 * sharp, rtol=1e-6)


def test_a_family_that_is_left_out_gives_its_share_to_the_others():
    p, q = torch.tensor([[0.7, 0.3]]), torch.tensor([[0.2, 0.8]])
    np.testing.assert_allclose(Blend((0.5, 0.5), (1.0, 1.0))([p, None]), p)
    np.testing.assert_allclose(Blend((0.0, 1.0), (1.0, 1.0))([p, q]), q)


def test_a_family_at_its_best_temperature_is_not_judged_by_how_sure_it_is():
    labels = judged(400)
    good = guesses(labels.codes, 0.5, 1)
    flat = np.power(good, 0.1) / np.power(good, 0.1).sum(axis=1, keepdims=True)
    blend = blend_families([flat, guesses(labels.codes, 0.0, 2)], labels, np.array([4.0, 4.0]))
    assert blend.shares[0] > 0.8
    assert blend.temperatures[0] < 0.3


def test_without_held_out_labels_the_prior_decides():
    labels = Labels(np.arange(3), np.arange(3), np.ones(3), np.full(3, -1), 3)
    blend = blend_families([np.zeros((0, 3))] * 2, labels, np.array([6.0, 4.0]))
    assert blend.shares == (0.6, 0.4)
