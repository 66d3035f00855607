from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn.estimator import selftraining
from sobgnn.estimator.ensemble import Labels
from sobgnn.estimator.selftraining import linear_probabilities, self_train


def drawn_labels(codes, per_class=3, folds=3, weight=None):
    """The first points of each class, one fold after the other."""
    index = np.sort(np.concatenate([np.flatnonzero(codes == code)[:per_class] for code in np.unique(codes)]))
    fold = np.empty(len(index), np.int64)
    for code in np.unique(codes):
        fold[codes[index] == code] = np.arange(per_class) % folds
    return Labels(index, codes[index], np.ones(len(index)) if weight is None else weight, fold, range(folds + 1))


@pytest.fixture
def blobs():
    """Three wide classes that few labels place badly: [600, 60], and their codes."""
    generator = np.random.default_rng(0)
    codes = np.arange(600) % 3
    centers = 0.5 * generator.standard_normal((3, 60))
    X = centers[codes] + generator.standard_normal((600, 60))
    return torch.from_numpy((X / X.std()).astype(np.float32)), codes


def test_rounds_gain_over_the_labels_alone(blobs, monkeypatch):
    X, codes = blobs
    labels = drawn_labels(codes, per_class=5)
    taught = self_train(X, labels, 3, np.random.default_rng(0))(X)
    monkeypatch.setattr(selftraining, "SHARES", ())
    plain = self_train(X, labels, 3, np.random.default_rng(0))(X)
    assert taught.shape == plain.shape == (4, 600, 3)
    right = [(said.argmax(dim=2).numpy() == codes).mean(axis=1) for said in (plain, taught)]
    assert right[1].mean() > right[0].mean() + 0.01


def test_a_classifier_knows_nothing_of_the_labels_that_it_holds_out(blobs):
    X, codes = blobs
    labels = drawn_labels(codes)
    swapped = np.where(labels.fold == 1, (labels.codes + 1) % 3, labels.codes)
    other = Labels(labels.index, swapped, labels.weight, labels.fold, labels.seeds)
    first, second = (self_train(X, each, 3, np.random.default_rng(0))(X) for each in (labels, other))
    torch.testing.assert_close(first[1], second[1])
    assert not torch.allclose(first[3], second[3], atol=1e-3)


def test_classes_weigh_as_much_while_labels_are_held_out():
    codes = torch.tensor([0, 0, 0, 1, 1, 1])
    labels = Labels(np.arange(6), codes.numpy(), np.ones(6), np.array([0, 0, 1, 1, 1, 0]), [0, 1])
    weights = selftraining._label_weights(labels, slice(None), codes, 2)
    torch.testing.assert_close(weights, torch.tensor([[0, 0, 3, 1.5, 1.5, 0], [1.5, 1.5, 0, 0, 0, 3], [1.0] * 6]))


def test_the_penalised_loss_is_least(blobs, monkeypatch):
    """Against scikit-learn's logistic regression on the same labels."""
    from sklearn.linear_model import LogisticRegression

    X, codes = blobs
    labels = drawn_labels(codes, per_class=30)
    monkeypatch.setattr(selftraining, "SHARES", ())
    monkeypatch.setattr(selftraining, "_STEPS", 2000)
    said = self_train(X, labels, 3, np.random.default_rng(0))(X)[-1]
    exact = LogisticRegression(C=3.0, max_iter=5000, tol=1e-8).fit(X[labels.index], labels.codes).predict_proba(X)
    np.testing.assert_allclose(said, exact, atol=0.01)


def test_what_is_kept_is_the_classifier_of_all_labels(blobs):
    X, codes = blobs
    linear = self_train(X, drawn_labels(codes), 3, np.random.default_rng(0))
    torch.testing.assert_close(linear_probabilities(linear.last(), X), linear(X)[-1])


def test_many_labels_and_points_are_sampled(blobs, monkeypatch):
    X, codes = blobs
    monkeypatch.setattr(selftraining, "POOL", 20)
    seen = []
    plain = selftraining._Fitting.train
    monkeypatch.setattr(
        selftraining._Fitting, "train", lambda self, *given: (seen.append(len(self.rows)), plain(self, *given))
    )
    self_train(X, drawn_labels(codes, per_class=30), 3, np.random.default_rng(0))
    assert set(seen) == {38}  # every fifth of 90 labels, and 20 others


def test_where_every_point_has_a_label_there_is_nothing_to_teach(blobs):
    X, codes = blobs
    assert self_train(X[:9], drawn_labels(codes[:9]), 3, np.random.default_rng(0)) is None
