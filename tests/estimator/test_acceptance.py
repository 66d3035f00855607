from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from sobgnn.estimator.acceptance import RISK, find_acceptance


def test_the_bound_of_the_accepted_labels_is_clopper_and_pearsons():
    generator = np.random.default_rng(0)
    confidence = generator.random(400)
    right = generator.random(400) < confidence**0.1
    found = find_acceptance(confidence, right, 0.9)
    taken = confidence >= found.threshold
    assert found.accepted == taken.sum()
    assert found.wrong == (~right[taken]).sum()
    level = 1 - 2 * RISK / 5  # one of five sequences, one-sided
    assert binomtest(found.wrong, found.accepted).proportion_ci(level, "exact").high <= 0.1 + 1e-9


def test_too_few_labels_support_no_threshold():
    needed = find_acceptance(np.zeros(0), np.zeros(0, bool), 0.95).needed
    confidence = np.linspace(0.5, 1, needed)
    assert find_acceptance(confidence[1:], np.ones(needed - 1, bool), 0.95).threshold is None
    found = find_acceptance(confidence, np.ones(needed, bool), 0.95)
    assert found.threshold == 0.5
    assert not find_acceptance(confidence[1:], np.ones(needed - 1, bool), 0.95).accepts(confidence).any()


def test_equal_confidences_are_accepted_together_or_not_at_all():
    confidence = np.repeat([0.9, 0.8], [100, 300])
    right = np.ones(400, bool)
    right[100:180] = False
    assert find_acceptance(confidence, right, 0.95).threshold == 0.9
    assert find_acceptance(np.full(400, 0.9), right, 0.95).threshold is None


def test_no_larger_share_of_the_predictions_is_accepted_than_of_the_labels():
    confidence = np.linspace(0, 1, 400)
    right = confidence > 0.5
    surer = np.sqrt(np.linspace(0, 1, 1000))
    alone = find_acceptance(confidence, right, 0.9)
    found = find_acceptance(confidence, right, 0.9, surer)
    assert alone.accepts(surer).mean() > alone.accepted / 400
    assert found.accepts(surer).mean() <= found.accepted / 400 + 1e-9


def test_accepted_predictions_keep_the_promise_in_nine_of_ten_draws():
    kept = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        confidence = generator.beta(4, 1, 3000)
        right = generator.random(3000) < confidence
        found = find_acceptance(confidence[:200], right[:200], 0.9)
        taken = found.accepts(confidence[200:])
        kept += not taken.any() or 1 - right[200:][taken].mean() <= 0.1
    assert kept >= 180


@pytest.mark.parametrize("target", [0, 1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(target):
    with pytest.raises(ValueError, match="between 0 and 1"):
        find_acceptance(np.ones(3), np.ones(3, bool), target)
