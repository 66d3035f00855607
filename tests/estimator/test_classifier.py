from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons
from sklearn.metrics import balanced_accuracy_score
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from sobgnn import SobolevClassifier, knn_graph
from sobgnn.estimator.fit import FitProgress

QUICK = {"n_members": 2, "epochs": 40, "hidden_channels": 16, "random_state": 0}


def quick(**settings):
    return SobolevClassifier(**{**QUICK, **settings})


def blobs(points=300, labels=10, classes=3, seed=0):
    X, y = make_blobs(points, n_features=5, centers=classes, cluster_std=2.0, random_state=seed)
    generator = np.random.default_rng(seed)
    given = np.full(points, -1)
    for code in range(classes):
        index = generator.permutation(np.flatnonzero(y == code))[:labels]
        given[index] = code
    return X, y, given


@pytest.fixture(scope="module")
def fitted():
    X, y, given = blobs()
    return X, y, given, quick().fit(X, given)


def unfit(estimator):
    return {
        "check_classifiers_classes": "labels [-1, 1]: -1 means unlabelled here, as in scikit-learn's own "
        "LabelSpreading, which the check excepts by its name",
        # A point of weight 0 still shapes the graph, and one of weight 2 is still one point.
        "check_sample_weight_equivalence_on_dense_data": "weights are of labels, not of points",
        "check_sample_weight_equivalence_on_sparse_data": "weights are of labels, not of points",
    }


@parametrize_with_checks([quick(epochs=20)], expected_failed_checks=unfit)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_it_labels_the_unlabelled_and_keeps_given_labels(fitted):
    _X, y, given, classifier = fitted
    assert (classifier.transduction_ == y).mean() > 0.95
    labelled = given >= 0
    assert (classifier.transduction_[labelled] == given[labelled]).all()
    assert classifier.label_distributions_.shape == (300, 3)
    np.testing.assert_allclose(classifier.label_distributions_.sum(axis=1), 1, rtol=1e-5)
    assert list(classifier.filter_importance_) == ["no graph", "ρ=1", "ρ=2"]
    assert classifier.embedding_.shape == (300, 32)
    assert classifier.graph_.num_nodes == 300
    assert set(classifier.history_) == set(classifier.family_shares_)
    assert sum(classifier.family_shares_.values()) == pytest.approx(1)


def test_the_same_seed_gives_the_same_predictions_and_the_global_state_is_left_alone(fitted):
    X, _, given, classifier = fitted
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.random.get_rng_state()
    again = quick().fit(X, given)
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(again.label_distributions_, classifier.label_distributions_)
    assert not np.array_equal(quick(random_state=1).fit(X, given).label_distributions_, again.label_distributions_)


def test_new_points_get_what_training_points_in_the_same_place_got(fitted):
    X, _y, _, classifier = fitted
    before = classifier.label_distributions_.copy()
    new, truth = make_blobs(200, n_features=5, centers=3, cluster_std=2.0, random_state=0, shuffle=False)
    assert classifier.score(new, truth) > 0.95
    np.testing.assert_array_equal(classifier.label_distributions_, before)
    agreement = (classifier.predict(X) == classifier.transduction_).mean()
    assert agreement > 0.97


def test_a_graph_of_ones_gets_weights_and_new_points_may_bring_their_edges():
    X, y, given = blobs(120, labels=5)
    edge_index, _ = knn_graph(X, k=6).edges()
    classifier = quick().fit(X, given, graph=edge_index)
    assert len(np.unique(classifier.graph_.weight.numpy())) > 1
    new = sp.csr_array((np.ones(3, np.float32), ([0, 0, 1], [5, 6, 7])), shape=(2, 120))
    assert classifier.predict_proba(X[:2], graph=new).shape == (2, 3)
    assert (classifier.predict(X) == y).mean() > 0.9  # without edges: by features alone
    with pytest.raises(ValueError, match="new points by training points"):
        classifier.predict_proba(X[:2], graph=new.T)


def test_sparse_points_serve_as_dense_ones_do():
    X, _, given = blobs()
    X = np.where(np.abs(X) < 2, 0, X)
    dense = quick().fit(X, given)
    sparse = quick().fit(sp.csr_array(X), given)
    np.testing.assert_allclose(sparse.label_distributions_, dense.label_distributions_, atol=1e-5)
    np.testing.assert_allclose(sparse.predict_proba(sp.csr_array(X)), dense.predict_proba(X), atol=1e-4)


def test_wide_sparse_points_are_reduced_and_never_made_dense(monkeypatch):
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 200)
    X = sp.random_array((200, 5000), density=0.01, random_state=generator).tolil()
    for code in range(3):
        X[np.flatnonzero(y == code)[:, None], np.arange(20) + 20 * code] = 1.0
    X = X.tocsr()
    given = np.where(np.arange(200) < 60, y, -1)
    for name in ("toarray", "todense"):
        monkeypatch.setattr(sp.csr_array, name, lambda self, *a, **k: pytest.fail("made dense"))
    classifier = quick(n_components=16).fit(X, given)
    assert classifier.score(X[60:], y[60:]) > 0.9


@pytest.mark.trains
def test_imbalance_of_one_to_ninety_nine_is_met_by_balanced_weights():
    generator = np.random.default_rng(0)
    y = (np.arange(3000) % 100 == 0).astype(int)
    X = generator.normal(size=(3000, 6)) + 1.6 * y[:, None]
    given = np.where((generator.random(3000) < 0.3) | ((y == 1) & (generator.random(3000) < 0.3)), y, -1)
    hidden = given < 0
    scores = {
        how: balanced_accuracy_score(y[hidden], quick(class_weight=how).fit(X, given).transduction_[hidden])
        for how in (None, "balanced")
    }
    assert scores["balanced"] > 0.8
    assert scores["balanced"] > scores[None] + 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "`k`"),
        ({"n_members": 0}, "`n_members`"),
        ({"families": ["sobolev", "wizards"]}, "`families`"),
        ({"families": []}, "`families`"),
        ({"families": ["linear", "linear"]}, "`families`"),
        ({"families": ["mlp"]}, "`families`.*among sobolev"),
        ({"families": [("linear", GaussianNB())]}, "`families`"),
        ({"families": [("mine", GaussianNB)]}, "`families`"),
        ({"families": [("mine", 3)]}, "`families`"),
        ({"lr": float("nan")}, "`lr`"),
        ({"lr": 1e10}, "`lr`"),
        ({"weight_decay": float("nan")}, "`weight_decay`"),
        ({"n_components": True}, "`n_components`"),
        ({"class_weight": {0: 0.0, 1: 0.0, 2: 0.0}}, "`class_weight`"),
        ({"class_weight": {0: float("nan")}}, "`class_weight`"),
        ({"class_weight": {0: float("inf")}}, "`class_weight`"),
        ({"class_weight": {0: -1.0}}, "`class_weight`"),
        ({"class_priors": {0: 0.5, 1: 0.5}}, "`class_priors`"),
        ({"class_priors": "even"}, "`class_priors`"),
        ({"scale": True}, "`scale`"),
        ({"n_components": 0}, "`n_components`"),
        ({"class_weight": "even"}, "`class_weight`"),
        ({"bandwidth": -1.0}, "`bandwidth`"),
        ({"alpha": 0}, "`alpha`"),
        ({"dropout": 1.0}, "`dropout`"),
        ({"k": 10**30}, "`k`"),
        ({"alpha": 10**6}, "`alpha`"),
        ({"hidden_channels": 10**12}, "`hidden_channels`"),
        ({"num_layers": 10**6}, "`num_layers`"),
        ({"n_members": 10**9}, "`n_members`"),
        ({"epochs": 10**30}, "`epochs`"),
        ({"n_components": 10**30}, "`n_components`"),
        ({"families": [["linear"]]}, "`families`"),
        ({"class_weight": 3}, "`class_weight`"),
        ({"random_state": 1.5}, "`random_state`"),
        ({"random_state": -1}, "`random_state`"),
        ({"device": "abacus"}, "no device 'abacus'"),
        ({"warm_start": "no"}, "`warm_start`"),
        ({"verbose": "no"}, "`verbose`"),
        ({"verbose": -1}, "`verbose`"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    X, _, given = blobs(40, labels=5)
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(X, given)


def test_labels_that_cannot_be_learnt_from_are_refused():
    X, _, given = blobs(40, labels=5)
    with pytest.raises(ValueError, match="no labeled sample"):
        quick().fit(X, np.full(40, -1))
    with pytest.raises(ValueError, match=r"at least 2 classes.*-1, None and NaN mean unlabeled"):
        quick().fit(X, np.where(given == 1, 1, -1))
    with pytest.raises(ValueError, match="one entry per row"):
        quick().fit(X, given[:-1])
    with pytest.raises(TypeError, match="mix of"):
        quick().fit(X, ["a", 1, *[None] * 38])


def test_what_scikit_learn_refuses_is_said_in_one_line():
    X, _, given = blobs(40, labels=5)
    infinite = np.where(np.arange(X.size).reshape(X.shape) == 7, np.inf, X)
    for points, message in [
        (infinite, r"infinity or values too large in 1 row \(first: row 1\)"),
        (sp.csr_array(np.where(np.isinf(infinite), np.nan, X)), "NaN"),
        (X + 1j, "Complex"),
        (X.ravel(), "Reshape"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            quick().fit(points, given)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="holds complex128") as error:
        quick().fit(X, given + 0j)
    assert "\n" not in str(error.value)


def test_priors_of_next_to_nothing_leave_probabilities_finite():
    X, _, given = blobs(60, labels=20)
    classifier = quick(families=["linear"], class_priors={0: 1e-300, 1: 1e300, 2: 1.0}).fit(X, given)
    assert np.isfinite(classifier.label_distributions_).all()
    assert np.isfinite(classifier.out_of_fold_log_loss_)
    with pytest.raises(ValueError, match="`class_priors` must hold numbers"):
        quick(class_priors={0: "x", 1: 1, 2: 1}).fit(X, given)


def test_more_neighbors_than_points_are_cut_to_what_there_is():
    X, _, given = blobs(12, labels=3)
    with pytest.warns(UserWarning, match="`k` is 50, but there are 12 points"):
        assert quick(k=50).fit(X, given).graph_.num_edges == 12 * 11
    assert quick(k=10).fit(X[:8], given[:8]).graph_.num_edges == 8 * 7  # the default is not a choice to warn about


@pytest.mark.cuda
def test_a_gpu_gives_what_the_cpu_gives():
    X, y, given = blobs()
    cpu, gpu = quick().fit(X, given), quick(device="cuda").fit(X, given)
    assert (cpu.transduction_ == gpu.transduction_).mean() > 0.98
    assert gpu.score(X, y) > 0.95


def test_a_component_without_labels_is_flagged_and_has_valid_probabilities():
    X, _y, given = blobs(200, labels=5)
    X, given = np.vstack([X, X[:30] + 1e3]), np.concatenate([given, np.full(30, -1)])
    classifier = quick(k=5).fit(X, given)
    assert not classifier.component_labelled_[200:].any()
    assert classifier.component_labelled_[:200].all()
    np.testing.assert_allclose(classifier.label_distributions_.sum(axis=1), 1, rtol=1e-5)
    assert "reach no label" in classifier.describe()


@pytest.mark.parametrize("labels", [1, 2])
def test_very_few_labels_fit_with_nothing_held_out_and_it_is_said(labels, capsys):
    X, y = make_moons(200, noise=0.05, random_state=0)
    given = np.full(200, -1)
    for code in range(2):
        given[np.flatnonzero(y == code)[:labels]] = code
    classifier = quick(verbose=1).fit(X, given)
    assert "too few to hold any out" in capsys.readouterr().out
    assert np.isnan(classifier.out_of_fold_accuracy_)
    assert np.isnan(classifier.out_of_fold_probabilities_).all()


@pytest.mark.parametrize("with_graph", [False, True])
def test_one_label_of_each_of_many_classes_is_no_reason_for_a_warning(with_graph):
    generator = np.random.default_rng(0)
    y = np.arange(120) % 30
    X = 5 * generator.normal(size=(30, 6))[y] + 0.1 * generator.normal(size=(120, 6))
    given = np.where(np.arange(120) < 30, y, -1)
    graph = knn_graph(X.astype(np.float32), k=3) if with_graph else None
    classifier = quick().fit(X, given, graph=graph)  # warnings are errors
    assert (classifier.transduction_ == y).mean() > 0.9


def test_heavy_tails_do_not_hide_what_the_ranks_show():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 900)
    X = generator.normal(size=(900, 10)) + 1.2 * generator.normal(size=(3, 10))[y]
    given = np.where(np.arange(900) < 90, y, -1)
    plain, heavy = (quick(epochs=100).fit(points, given) for points in (X, np.exp(2 * X)))
    assert heavy.scale_ == "rank"
    scores = [(fitted.transduction_ == y)[90:].mean() for fitted in (plain, heavy)]
    assert scores[1] > scores[0] - 0.03


def test_the_papers_form_is_one_network_without_extras():
    X, _, given = blobs(100, labels=5)
    classifier = SobolevClassifier.paper(epochs=20, random_state=0).fit(X, given)
    assert classifier.family_shares_ == {"s-sobgnn": 1.0}
    np.testing.assert_allclose(classifier.predictor_.ratio, 1)
    assert classifier.predict_proba(X).shape == (100, 3)


def test_progress_is_told_and_can_end_training():
    X, _, given = blobs(100, labels=5)
    seen: list[FitProgress] = []

    def stop(progress):
        seen.append(progress)
        return progress.stage == "sobolev" and progress.done >= 10

    classifier = quick(epochs=500).fit(X, given, progress=stop)
    stages = list(dict.fromkeys(p.stage for p in seen))
    assert stages == ["neighbors", "sobolev", "linear", "gaussian", "forests", "blending"]
    assert classifier.n_iter_ <= 10
    np.testing.assert_allclose(classifier.label_distributions_.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("factor", "shift"), [(1.0, 0.0), (1.0, 1e12), (1e-300, 0.0), (1e100, 0.0)])
def test_large_offsets_and_tiny_units_lose_nothing(factor, shift):
    X, y, given = blobs()
    classifier = quick().fit(X * factor + shift, given)
    assert (classifier.transduction_ == y).mean() > 0.93


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_values_whose_sums_overflow_are_one_error(kind):
    X, _, given = blobs()
    X[3, 1] = -1e307
    with pytest.raises(ValueError, match=r"X must lie within ±1e\+300, but reaches 1e\+307. Rescale it."):
        quick().fit(kind(X), given)


def test_absurd_new_points_have_valid_probabilities(fitted):
    _, _, _, classifier = fitted
    probability = classifier.predict_proba(np.array([[1e160] * 5, [-1e308, 1e308, 0, 0, 0], [1e38] * 5]))
    assert np.isfinite(probability).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)


def test_a_warm_start_keeps_the_graph_and_learns_the_new_labels():
    X, y, given = blobs(labels=20)
    classifier = quick(warm_start=True).fit(X, given)
    graph, shares = classifier.graph_, classifier.family_shares_
    more = given.copy()
    added = np.flatnonzero(given < 0)[:5]
    more[added] = y[added]
    classifier.fit(X, more)
    assert classifier.graph_.weight.data_ptr() == graph.weight.data_ptr()
    assert classifier.family_shares_ == shares
    assert (classifier.transduction_[added] == y[added]).all()
    assert (classifier.transduction_ == y).mean() > 0.95
    other = quick().fit(X + 1, more)
    np.testing.assert_allclose(classifier.fit(X + 1, more).label_distributions_, other.label_distributions_, atol=1e-5)


def test_a_warm_start_is_as_sure_as_what_was_decided_allows():
    X = np.random.default_rng(0).integers(0, 2, size=(300, 12)).astype(float)
    y = (2 * X[:, 0] + X[:, 1]).astype(int)
    given = np.full(300, -1)
    for code, count in enumerate((3, 2, 1, 1)):  # too few to hold any out
        given[np.flatnonzero(y == code)[:count]] = code
    classifier = quick(warm_start=True, families="auto").fit(X, given)
    temperature = classifier.temperature_
    given[np.flatnonzero(y == 1)[5]] = 1  # with this one some could be
    classifier.fit(X, given)
    assert classifier.temperature_ == temperature
    assert (classifier.folds_ == -1).all()


def test_decisions_are_made_anew_once_labels_have_grown_by_a_fifth_in_all():
    X, y, given = blobs(labels=20)
    classifier = quick(warm_start=True).fit(X, given)
    more, held = given.copy(), []
    for _ in range(3):  # five labels at a time, never a fifth at once
        added = np.flatnonzero(more < 0)[:5]
        more[added] = y[added]
        classifier.fit(X, more)
        held.append(int(np.isfinite(classifier.out_of_fold_probabilities_).all(axis=1).sum()))
    assert held == [60, 60, 75]  # a refit keeps what is known of the labels before


def test_flipped_labels_are_suspect():
    X, y, given = blobs(labels=40)
    flipped = np.flatnonzero(given >= 0)[::15]
    given[flipped] = (y[flipped] + 1) % 3
    suspects = quick().fit(X, given).suspects()
    found = {suspect.row for suspect in suspects}
    assert len(found & set(flipped.tolist())) >= 0.8 * len(flipped)
    assert len(found) <= 2 * len(flipped)
    assert suspects[0].given != suspects[0].predicted


def test_what_a_warm_start_keeps_does_not_outlive_a_cold_fit():
    (X, _, given), (other, _, labels) = blobs(), blobs(120, 6, classes=2, seed=3)
    alone = quick(warm_start=True).fit(X, given)
    mixed = quick(warm_start=True).fit(X, given)
    mixed.set_params(warm_start=False).fit(other, labels)
    mixed.set_params(warm_start=True).fit(X, given)
    np.testing.assert_array_equal(mixed.predict_proba(X), alone.predict_proba(X))
    np.testing.assert_array_equal(mixed.out_of_fold_probabilities_, alone.out_of_fold_probabilities_)
    assert mixed.describe() == alone.describe()


def test_a_fit_that_fails_or_is_interrupted_changes_nothing(fitted):
    X, _, given, model = fitted
    model = clone(model).fit(X, given)
    before, said = model.predict_proba(X[:5]), model.describe()

    def interrupt(at):
        raise KeyboardInterrupt

    names = np.where(given < 0, None, np.array(["a", "b", "c"], dtype=object)[given])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :3], names, progress=interrupt)
    with pytest.raises(ValueError, match="at least 2 classes"):
        model.fit(X, np.zeros(len(X)))
    np.testing.assert_array_equal(model.predict_proba(X[:5]), before)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert model.n_features_in_ == 5
    assert model.describe() == said


def test_a_fit_that_was_stopped_is_not_where_a_warm_start_begins():
    X, _, given = blobs()
    model = quick(warm_start=True, families=["sobolev"])
    model.fit(X, given, progress=lambda at: at.stage == "sobolev")
    whole = model.fit(X, given)
    np.testing.assert_array_equal(whole.predict_proba(X), quick(families=["sobolev"]).fit(X, given).predict_proba(X))


def test_a_warm_start_decides_on_scales_anew_when_labels_have_become_many():
    generator = np.random.default_rng(0)
    y = np.arange(240) % 2
    # Directions tell the classes apart, lengths do not.
    angle = np.where(y, 0.9, 0.4) + generator.normal(scale=0.08, size=240)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * generator.lognormal(0, 1.5, size=(240, 1))
    few, many = (np.where(np.arange(240) < count, y, -1) for count in (2, 80))
    warm = quick(warm_start=True, families=["sobolev", "diffusion"]).fit(X, few)
    before = (warm.neighbor_scale_, warm.scale_)
    warm.fit(X, many)
    cold = quick(families=["sobolev", "diffusion"]).fit(X, many)
    assert (warm.neighbor_scale_, warm.scale_) == (cold.neighbor_scale_, cold.scale_) != before
    np.testing.assert_array_equal(warm.predict_proba(X), cold.predict_proba(X))


@pytest.mark.parametrize("family", ["sobolev", "s-sobgnn"])
def test_one_member_is_the_network_that_learns_from_all_labels(family, tmp_path):
    X, _, given = blobs(120)
    model = quick(families=[family], n_members=1).fit(X, given)
    more = quick(families=[family], n_members=5).fit(X, given)
    np.testing.assert_array_equal(model.out_of_fold_probabilities_, more.out_of_fold_probabilities_)
    assert not np.allclose(model.label_distributions_, more.label_distributions_, atol=1e-4)
    model.save(tmp_path / "one")
    again = SobolevClassifier.load(tmp_path / "one")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("unknown", [-1, None, float("nan")])
def test_unlabeled_rows_take_no_part_in_scores(fitted, unknown):
    X, y, given, model = fitted
    right = model.predict(X[given >= 0]) == given[given >= 0]
    labels = np.where(given < 0, unknown, given) if unknown == -1 else np.where(given < 0, np.array(unknown), given)
    assert model.score(X, labels) == pytest.approx(right.mean())
    assert model.score(pd.DataFrame(X), pd.Series(labels)) == pytest.approx(right.mean())
    assert model.score(X, y, sample_weight=(np.arange(300) < 50)) == pytest.approx(
        (model.predict(X[:50]) == y[:50]).mean()
    )
    with pytest.raises(ValueError, match="no label to compare with"):
        model.score(X, np.full(300, -1))


def test_scores_are_of_columns_too_and_of_nothing_else(fitted):
    X, y, _, classifier = fitted
    assert classifier.score(X, y[:, None]) == classifier.score(X, y)
    with pytest.raises(ValueError, match="y must have one entry per row of X"):
        classifier.score(X, y[:5])
    with pytest.raises(ValueError, match="sample_weight must have one entry per row of X"):
        classifier.score(X, y, sample_weight=[1.0])
    with pytest.raises(ValueError, match="y holds text, but the model's classes are numbers"):
        classifier.score(X, y.astype(str))


def test_scores_of_classes_that_the_fit_never_saw_are_warned_of(fitted):
    X, y, _, classifier = fitted
    other = np.where(np.arange(len(y)) < 7, 9, classifier.predict(X))
    with pytest.warns(UserWarning, match=r"7 of 300 labels of classes that the model was not fitted with \(first: "):
        assert classifier.score(X, other) == pytest.approx(293 / 300)


def test_edges_of_new_points_need_a_model_with_a_graph(fitted):
    with pytest.raises(ValueError, match="`graph` needs a model that was fitted with one"):
        fitted[3].predict(fitted[0][:3], graph=sp.csr_array((3, len(fitted[0]))))


def test_classes_that_were_not_held_out_are_named():
    X, _, given = blobs(labels=20)
    given[np.flatnonzero(given == 2)[2:]] = -1
    assert "Accuracy is not known for 2: no such label was held out." in quick().fit(X, given).describe()


def test_suspects_and_first_suggestions_check_what_they_are_given(fitted):
    X, _, _, classifier = fitted
    with pytest.raises(ValueError, match="`n` must be None or an integer of at least 0, but got -1"):
        classifier.suspects(n=-1)
    for points, message in (
        (np.full((30, 2), "a"), "DataFrame"),
        (X * 1e305, "lie within"),
    ):
        with pytest.raises(ValueError, match=message):
            SobolevClassifier().suggest(3, X=points)


def test_scores_take_the_edges_of_new_points():
    X, truth, y = blobs()
    graph = knn_graph(X, 5).to_scipy()
    model = quick().fit(X, y, graph=graph)
    new = sp.csr_array(graph[:10])
    predicted = model.predict(X[:10], graph=new)
    assert model.score(X[:10], truth[:10], graph=new) == (predicted == truth[:10]).mean()


def test_importing_the_classifier_leaves_what_only_some_fits_need_alone():
    late = ["torch._dynamo", "torch_geometric", "polars", "sklearn.ensemble", "sklearn.linear_model", "optuna", "PIL"]
    code = f"import sys; from sobgnn import SobolevClassifier; print([m for m in {late} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"


def test_numbers_of_numpy_are_saved_as_those_of_python_are(tmp_path):
    X, _, given = blobs(120)
    numbers = {"k": np.int64(7), "hidden_channels": np.int32(8), "alpha": np.int64(2), "lr": np.float32(0.02),
               "epsilon": np.float64(1.5), "dropout": np.float32(0.25), "n_members": np.int64(2)}  # fmt: skip
    model = quick(**numbers).fit(X, given)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(SobolevClassifier.load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
