from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sobgnn import Graph
from sobgnn.estimator.fit import Teller, fit_families, refit_families
from sobgnn.estimator.labels import Labels, with_folds
from sobgnn.estimator.placing import view_of
from sobgnn.estimator.problem import GIVEN
from tests.estimator.families.test_contract import case


def joined(pairs, count):
    edges = torch.tensor(pairs).T
    return Graph.from_edges(edges, torch.linspace(0.5, 1.0, edges.shape[1]), num_nodes=count, symmetrize="union")


def test_the_result_is_the_blend_of_the_families_that_have_a_share():
    problem, labels, _ = case()
    fit = fit_families(problem, labels, ["mlp", "diffusion", "linear"], (0.0,))
    assert sum(fit.blend.shares) == pytest.approx(1)
    assert min(fit.blend.shares) >= 0.02
    assert len(fit.members) == len(fit.blend.shares)
    parts = [member.fitted.probabilities() for member in fit.members]
    torch.testing.assert_close(fit.distributions, fit.blend([part[-1] for part in parts]))
    assert fit.out_of_fold.shape == (int(labels.judged.sum()), labels.classes)
    for member, part in zip(fit.members, parts, strict=True):
        right = labels.out_of_fold(part).argmax(axis=1) == labels.codes[labels.judged]
        assert fit.alone[member.title] == pytest.approx(right.mean())


def test_a_family_that_is_useless_out_of_fold_counts_less_than_one_that_is_not():
    problem, labels, _ = case()
    points = torch.from_numpy(np.random.default_rng(1).normal(size=(120, 5)).astype(np.float32))
    useless = replace(problem, points=points)  # what the linear classifier reads; forests read the columns
    fit = fit_families(useless, labels, ["linear", "forests"], (0.0,))
    shares = {member.title: share for member, share in zip(fit.members, fit.blend.shares, strict=True)}
    assert shares["forests"] > 0.8


def test_a_refit_keeps_what_was_decided_and_learns_the_new_labels():
    problem, labels, y = case()
    before = fit_families(problem, labels, ["mlp", "diffusion"], (0.6,))
    more = np.where(np.arange(120) < 55, y, -1)
    after = refit_families(problem, with_folds(more, np.ones(55), 3, np.random.default_rng(0)), before)
    assert after.blend == before.blend
    assert after.temperature == before.temperature
    assert [m.smoothing for m in after.members] == [m.smoothing for m in before.members]
    spread = after.members[[m.title for m in after.members].index("diffusion")].fitted.probabilities()[-1]
    torch.testing.assert_close(spread[45:55].argmax(dim=1), torch.from_numpy(y[45:55]))


def test_edges_that_join_points_by_chance_change_nothing():
    problem, labels, _ = case()
    generator = np.random.default_rng(3)
    first, second = np.triu_indices(120, 1)
    chosen = generator.permutation(len(first))[:360]
    chance = joined(np.stack([first, second], axis=1)[chosen].tolist(), 120)
    views = {**problem.views, GIVEN: view_of(chance, 2, 0.5, torch.device("cpu"))}
    alone = fit_families(problem, labels, ["mlp", "diffusion"], (0.6,))
    beside = fit_families(replace(problem, views=views), labels, ["mlp", "diffusion"], (0.6,))
    assert [member.title for member in beside.members] == [member.title for member in alone.members]
    np.testing.assert_allclose(beside.distributions, alone.distributions, atol=1e-5)


def test_families_of_a_given_graph_need_one():
    problem, labels, _ = case()
    with pytest.raises(ValueError, match="need a given graph"):
        fit_families(problem, labels, ["pagerank"])


def test_without_folds_the_prior_decides_and_nothing_is_scored():
    problem, labels, _ = case()
    none = Labels(labels.index, labels.codes, labels.weight, np.full(len(labels.fold), -1), 3)
    fit = fit_families(problem, none, ["mlp", "diffusion"], (0.6,))
    assert fit.out_of_fold.shape == (0, 3)
    assert all(np.isnan(value) for value in fit.alone.values())
    shares = {member.title: share for member, share in zip(fit.members, fit.blend.shares, strict=True)}
    assert shares["diffusion"] > shares["mlp"]


def test_once_a_hook_asks_to_stop_every_later_step_is_asked_to_stop():
    seen = []

    def hook(at):
        seen.append((at.stage, at.done))
        return at.stage == "linear"

    tell = Teller(hook)
    assert not tell("mlp", 1, 2)
    assert tell("linear", 1, 2)
    assert tell("forests", 1, 2)
    assert seen == [("mlp", 1), ("linear", 1), ("forests", 1)]
    assert not Teller(None)("mlp", 1, 2)
