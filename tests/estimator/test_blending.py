from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn.estimator.blending import DIFFUSION_GRID, FURTHER_GRID, MIXING_GRID, Blend, weigh, weigh_further
from sobgnn.estimator.temperature import sharpen


def guesses(right: float, labels: int = 200, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that put the most on the true class in a share ``right`` of the labels, and the classes."""
    generator = np.random.default_rng(seed)
    codes = np.arange(labels) % classes
    said = np.where(generator.random(labels) < right, codes, (codes + 1 + generator.integers(3, size=labels)) % classes)
    return (0.1 + 0.6 * np.eye(classes)[said]).astype(np.float32), codes


def squared_error(probabilities, codes):
    return np.square(probabilities - np.eye(probabilities.shape[1])[codes]).sum()


def test_a_blend_is_the_sum_of_its_sharpened_parts():
    parts = [torch.rand(5, 3, generator=torch.Generator().manual_seed(s)).softmax(dim=1) for s in range(5)]
    heats = (0.5, 2.0, 1.0, 0.3, 0.7)
    blend = Blend(mixing=0.25, diffusion=0.4, smoothing=0.0, students=0.5, linear=0.2, heats=heats)
    assert blend.shares == pytest.approx((0.06, 0.18, 0.16, 0.5, 0.1))
    expected = sum(s * sharpen(p.numpy(), t) for s, p, t in zip(blend.shares, parts, blend.heats, strict=True))
    np.testing.assert_allclose(blend(parts), expected, rtol=1e-5)
    np.testing.assert_allclose(blend(parts).sum(dim=1), 1, rtol=1e-5)


def test_parts_without_a_share_are_not_needed():
    part = torch.full((2, 3), 1 / 3)
    torch.testing.assert_close(Blend(1.0, 0.0, 0.5)([part, None, None, None, None]), part)


@pytest.mark.parametrize("best", [0, 1, 2])
def test_many_labels_choose_the_family_that_knows_them(best):
    families = [guesses(0.95 if place == best else 0.3, labels=4000, seed=place) for place in range(3)]
    codes = families[0][1]
    graph, features, diffused = (probabilities for probabilities, _ in families)
    blend = weigh([(0.5, graph, features)], diffused, codes, np.ones(4000), MIXING_GRID, DIFFUSION_GRID)
    assert blend.shares[best] > 0.9


def test_few_labels_leave_the_shares_near_each_other():
    (graph, codes), (features, _), (diffused, _) = (guesses(r, labels=6, seed=s) for s, r in enumerate((0.7, 0.6, 0.5)))
    blend = weigh([(0.5, graph, features)], diffused, codes, np.ones(6), MIXING_GRID, DIFFUSION_GRID)
    assert min(blend.shares[:3]) > 0.1


def test_shares_are_the_mean_of_the_posterior():
    (graph, codes), (features, _), (diffused, _) = (guesses(r, labels=8, seed=s) for s, r in enumerate((0.9, 0.5, 0.6)))
    blend = weigh([(0.5, graph, features)], diffused, codes, np.ones(8), MIXING_GRID, DIFFUSION_GRID)
    sharp = [sharpen(p, t) for p, t in zip((graph, features, diffused), blend.heats[:3], strict=True)]
    total, mean = 0.0, np.zeros(3)
    for beta in MIXING_GRID:
        for delta in DIFFUSION_GRID:
            shares = np.array(Blend(beta, delta, 0.5).shares[:3])
            posterior = np.exp(-2 * squared_error(sum(s * p for s, p in zip(shares, sharp, strict=True)), codes))
            total, mean = total + posterior, mean + posterior * shares
    np.testing.assert_allclose(blend.shares[:3], mean / total, rtol=1e-5)


def test_the_strength_under_which_families_are_right_is_taken():
    good, codes = guesses(0.9)
    bad, _ = guesses(0.3, seed=1)
    held = [(0.0, bad, bad), (0.5, good, good), (0.9, bad, bad)]
    assert weigh(held, None, codes, np.ones(200), MIXING_GRID, (0.0,)).smoothing == 0.5


@pytest.mark.parametrize("family", ["students", "linear"])
def test_a_further_family_counts_as_far_as_it_is_right(family):
    taught, codes = guesses(0.6)
    before = Blend(0.5, 0.5, 0.5, students=0.25, linear=0.25, heats=(1.0, 2.0, 3.0, 4.0, 1.5))
    for right, low, high in ((0.95, 0.8, 1.0), (0.3, 0.0, 0.5)):
        said, _ = guesses(right, seed=2)
        blend = weigh_further(before, family, taught, said, codes, np.ones(200), FURTHER_GRID)
        assert low <= getattr(blend, family) <= high
        place, other = (3, "linear") if family == "students" else (4, "students")
        assert getattr(blend, other) == 0.25
        kept = [heat for heat in range(5) if heat != place]
        assert [blend.heats[heat] for heat in kept] == [before.heats[heat] for heat in kept]
        assert blend.heats[place] != before.heats[place]


def test_labels_that_weigh_more_decide_more():
    right, codes = guesses(1.0)
    first = np.where(codes[:, None] == 0, right, 0.25).astype(np.float32)  # knows class 0 only
    others = np.where(codes[:, None] != 0, right, 0.25).astype(np.float32)
    shares = [
        weigh([(0.0, first, others)], None, codes, np.where(codes == 0, w, 1.0), MIXING_GRID, (0.0,)).mixing
        for w in (1.0, 30.0)
    ]
    assert shares[0] < 0.5 < shares[1]
