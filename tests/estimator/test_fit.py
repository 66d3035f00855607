from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import Graph
from sobgnn.estimator.fit import Kept, Report, chosen_families, fingerprint, fit_families, refit_families
from sobgnn.estimator.labels import Labels, with_folds
from sobgnn.estimator.points import GIVEN, PointGraph
from tests.estimator.cases import clouds


def fitted(points, labels, names):
    return fit_families(points, labels, chosen_families(names, points, labels))


def joined(pairs, count):
    edges = torch.tensor(pairs).T
    return Graph.from_edges(edges, torch.linspace(0.5, 1.0, edges.shape[1]), num_nodes=count, symmetrize="union")


def test_the_result_is_the_blend_of_the_families_that_have_a_share():
    points, labels, _ = clouds()
    families = chosen_families(["diffusion", "linear", "forests"], points, labels)
    fit = fit_families(points, labels, families)
    assert sum(fit.blend.shares) == pytest.approx(1)
    assert len(fit.members) == len(fit.blend.shares)
    learned = {family.name: family.fit(points, labels) for family in families}
    parts = [learned[member.name] for member in fit.members]
    torch.testing.assert_close(fit.distributions, fit.blend([part.fitted.predict(points) for part in parts]))
    assert fit.out_of_fold.shape == (int(labels.judged.sum()), labels.classes)
    for member, part in zip(fit.members, parts, strict=True):
        right = part.out_of_fold.argmax(axis=1) == labels.codes[labels.judged]
        assert fit.alone[member.title] == pytest.approx(right.mean())


def test_a_family_that_is_useless_out_of_fold_counts_less_than_one_that_is_not():
    points, labels, _ = clouds()
    noise = torch.from_numpy(np.random.default_rng(1).normal(size=(120, 5)).astype(np.float32))
    # What the linear classifier reads; forests read the columns.
    fit = fitted(replace(points, points=noise), labels, ["linear", "forests"])
    shares = {member.title: share for member, share in zip(fit.members, fit.blend.shares, strict=True)}
    assert shares["forests"] > 0.8


def test_a_refit_keeps_what_was_decided_and_learns_the_new_labels():
    points, labels, y = clouds()
    families = chosen_families(["sobolev", "diffusion"], points, labels)
    before = fit_families(points, labels, families)
    more = np.where(np.arange(120) < 55, y, -1)
    after = refit_families(points, with_folds(more, np.ones(55), 3, np.random.default_rng(0)), families, before)
    assert (after.blend, after.temperature) == (before.blend, before.temperature)
    assert [member.title for member in after.members] == [member.title for member in before.members]
    spread = after.members[[m.title for m in after.members].index("diffusion")].fitted.spread
    torch.testing.assert_close(spread[45:55].argmax(dim=1), torch.from_numpy(y[45:55]))


def test_edges_that_join_points_by_chance_change_hardly_a_prediction():
    points, labels, y = clouds()
    generator = np.random.default_rng(3)
    first, second = np.triu_indices(120, 1)
    chosen = generator.permutation(len(first))[:360]
    chance = joined(np.stack([first, second], axis=1)[chosen].tolist(), 120)
    graphs = {**points.graphs, GIVEN: PointGraph(chance, 2, 0.5)}
    beside = fitted(replace(points, graphs=graphs), labels, ["sobolev", "diffusion"])
    assert (beside.distributions.argmax(dim=1).numpy() == y)[45:].mean() > 0.95
    shares = zip(beside.members, beside.blend.shares, strict=True)
    assert sum(share for member, share in shares if member.graph == GIVEN) < 0.3


def test_once_a_hook_asks_to_stop_every_later_step_is_asked_to_stop():
    seen = []

    def hook(at):
        seen.append((at.stage, at.done))
        return at.stage == "linear"

    report = Report(hook)
    assert not report("sobolev", 1, 2)
    assert report("linear", 1, 2)
    assert report("forests", 1, 2)
    assert seen == [("sobolev", 1), ("linear", 1), ("forests", 1)]
    assert not Report(None)("sobolev", 1, 2)


def labels_at(rows, codes, classes=3):
    return Labels(np.array(rows), np.array(codes), np.ones(len(rows)), np.full(len(rows), -1), classes)


def test_decisions_are_kept_until_a_fifth_of_the_labels_has_changed():
    before = labels_at(range(10), [0, 1] * 5)
    kept = Kept("", None, None, before, np.array(["a", "b", "c"]), None, before)

    def holds(rows, codes, classes="abc"):
        whole = np.full(20, -1)
        whole[list(rows)] = codes
        return kept.holds(whole, np.array(list(classes)))

    assert holds(range(10), [0, 1] * 5)
    assert holds(range(12), [0, 1] * 6)  # two more
    assert holds(range(8), [0, 1] * 4)  # two fewer
    assert holds(range(10), [1, 0] + [0, 1] * 4)  # two others
    assert not holds(range(13), [0, 1] * 6 + [0])
    assert not holds(range(1, 12), [1, 0] * 5 + [1])  # one gone, two more
    assert not holds(range(10), [0, 1] * 5, classes="abcd")
    assert not holds(range(10), [0, 1] * 5, classes="abd")  # one gone, another new


def test_the_fingerprint_tells_points_graphs_and_settings_apart():
    X = np.arange(12.0).reshape(4, 3)

    def graph_of(*ends, weight=1.0):
        edges = np.array(ends).reshape(-1, 2).T
        return Graph.from_edges(edges, np.full(edges.shape[1], weight), 4, symmetrize="union")

    graph = graph_of((0, 1), (2, 3))
    settings = {"k": 3}
    own = fingerprint(X, graph, settings)
    assert own == fingerprint(X.copy(), graph_of((0, 1), (2, 3)), dict(settings))
    others = [
        fingerprint(np.nextafter(X, np.inf), graph, settings),
        fingerprint(X.astype(np.float32), graph, settings),
        fingerprint(X.reshape(3, 4), graph, settings),
        fingerprint(sp.csr_array(X), graph, settings),
        fingerprint(X, None, settings),
        fingerprint(X, graph_of((0, 1), (2, 3), weight=2.0), settings),
        fingerprint(X, graph_of((0, 1), (1, 3)), settings),
        fingerprint(X, graph_of(), settings),
        fingerprint(X, graph, {"k": 4}),
    ]
    assert len({own, *others}) == 1 + len(others)
