from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sobgnn import SobolevClassifier, knn_graph
from sobgnn.estimator.tuning import Between, OneOf, TuningProgress, tune
from tests.estimator.tuning.tuning_cases import clusters

pytestmark = pytest.mark.trains

SMALL: dict[str, Any] = {"k": Between(3, 8), "alpha": Between(1, 2), "lr": Between(0.005, 0.03, log=True)}


def small(**changed: Any) -> SobolevClassifier:
    return SobolevClassifier(**{"k": 5, "alpha": 2, "hidden_channels": 8, "epochs": 20, **changed})


def test_the_best_trial_has_the_loss_of_an_ordinary_fit_with_its_setting() -> None:
    X, y = clusters()
    found = tune(X, y, 5, base=small(), space=SMALL)
    assert len(found.trials) == 5
    assert found.complete
    assert found.log_loss == min(t.log_loss for t in found.trials if t.log_loss is not None)
    assert found.trials[0].setting == {"k": 5, "alpha": 2, "lr": 0.03}  # the base comes first
    again = small(n_members=4, random_state=0, **found.setting).fit(X, y)
    # What a rounding of the input moves: the loss by some 1e-5, and at most one of the 18 labels.
    assert again.out_of_fold_log_loss_ == pytest.approx(found.log_loss, rel=1e-3)
    assert again.out_of_fold_accuracy_ == pytest.approx(found.accuracy, abs=1.5 / 18)
    assert found.best_so_far()[-1] == found.log_loss
    assert set(found.importance) == set(SMALL)
    json.dumps(found.to_json(), allow_nan=False)


def test_no_more_neighbors_are_tried_than_there_are_other_points() -> None:
    X, y = clusters()
    few = np.concatenate([np.flatnonzero(y >= 0), np.flatnonzero(y < 0)])[:22]
    found = tune(X[few], y[few], 4, base=small(), space={"k": Between(20, 60)})  # a larger k would warn
    assert all(trial.setting["k"] <= 21 for trial in found.trials)


def test_every_trial_is_judged_by_the_labels_that_are_given() -> None:
    """Wrong labels for half of the given points, and none else: a search that read others would not notice."""
    X, y = clusters()
    known = np.flatnonzero(y >= 0)
    wrong = y.copy()
    wrong[known[::2]] = (y[known[::2]] + 1) % 3
    right, worse = (tune(X, given, 2, base=small(), space=SMALL, sampler="random") for given in (y, wrong))
    for one, other in zip(right.trials, worse.trials, strict=True):
        assert one.log_loss is not None
        assert other.log_loss is not None
        assert other.log_loss > one.log_loss + 0.2


def test_a_given_graph_is_not_searched() -> None:
    X, y = clusters()
    found = tune(X, y, 2, base=small(), space=SMALL, graph=knn_graph(X, k=6))
    assert set(found.setting) - {"scale"} == {"alpha", "lr"}


def test_a_search_that_was_stopped_goes_on_from_its_journal(tmp_path: Path) -> None:
    X, y = clusters()

    def stop(seen: TuningProgress) -> bool:
        return seen.done == 2

    first = tune(X, y, 4, base=small(), space=SMALL, storage=tmp_path / "j", sampler="random", progress=stop)
    assert len(first.trials) == 2
    assert not first.complete
    rest = tune(X, y, 4, base=small(), space=SMALL, storage=tmp_path / "j", sampler="random")
    assert rest.trials[:2] == first.trials
    straight = tune(X, y, 4, base=small(), space=SMALL, sampler="random")
    assert [t.setting for t in rest.trials] == [t.setting for t in straight.trials]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"trials": 0}, "`trials` must be an integer of at least 1, but got 0"),
        ({"trials": True}, "`trials` must be"),
        ({"sampler": "grid"}, "`sampler` must be 'tpe' or 'random', but got 'grid'"),
        ({"members": 1}, "`members` must be at least 2"),
        ({"space": {"colour": OneOf(("red",))}}, "`space` must name"),
        ({"space": {"scale": OneOf((None,))}}, "`space` must name"),
        ({"storage": "postgresql://127.0.0.1:1/none"}, "cannot be used"),
    ],
)
def test_what_cannot_be_searched_is_refused(changed: dict[str, Any], message: str) -> None:
    X, y = clusters()
    with pytest.raises(ValueError, match=message):
        tune(X, y, **{"trials": 1, "base": small(), "space": SMALL, **changed})


def test_too_few_labels_to_hold_out_are_named() -> None:
    with pytest.raises(ValueError, match="at least 3 in some class, but no class has more than 2"):
        tune(*clusters(labels=2), 1)


def test_a_trial_that_is_behind_the_others_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sobgnn.estimator.tuning.search._STARTUP_TRIALS", 1)
    monkeypatch.setattr("sobgnn.estimator.tuning.search._WARM_UP_EPOCHS", 0)
    found = tune(*clusters(), 5, base=small(), space={"lr": OneOf((0.03, 1e-6))}, sampler="random")
    slow = [trial for trial in found.trials if trial.setting["lr"] < 0.01]
    assert slow  # else the test proves nothing
    assert all(trial.log_loss is None for trial in slow)
    assert found.to_json()["pruned"] == len(slow)
    assert found.setting["lr"] == 0.03
