from __future__ import annotations

import numpy as np
import pytest

from sobgnn.paper.protocol.statistics import Interval, bootstrap, paired_difference


def test_the_interval_is_that_of_scipys_percentile_bootstrap() -> None:
    from scipy.stats import bootstrap as oracle

    values = np.random.default_rng(3).normal(90, 4, size=50)
    ours = bootstrap(values.tolist(), resamples=20_000)
    theirs = oracle((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    assert ours.mean == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.06)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    intervals = [bootstrap(rng.normal(5, 2, size=50).tolist()) for _ in range(200)]
    share = np.mean([low <= 5 <= high for _, low, high in intervals])
    assert 0.88 <= share <= 0.99


def test_the_margin_is_the_larger_distance_to_a_bound() -> None:
    assert Interval(10.0, 7.0, 12.0).margin == 3.0
    assert Interval(10.0, 9.0, 12.0).margin == 2.0


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    values = [0.1, 0.5, 0.7, 0.9, 0.2]
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values) != bootstrap(values, seed=1)


def test_a_paired_difference_reads_shared_seeds_alone_and_what_they_share_cancels() -> None:
    luck = {seed: float(x) for seed, x in enumerate(np.random.default_rng(1).normal(0, 10, size=30))}
    ours = {seed: x + 1 for seed, x in luck.items()}
    theirs = {seed: x for seed, x in luck.items() if seed != 7} | {99: 1e6}
    interval, count = paired_difference(ours, theirs)
    assert count == 29
    assert interval == pytest.approx((1, 1, 1))
    assert interval.sign == 1


def test_nothing_to_average_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap([])
    with pytest.raises(ValueError, match="seeds that both models have"):
        paired_difference({1: 0.5}, {2: 0.5})
