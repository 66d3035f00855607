from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn.estimator.families.ridge import Scaling, solved


def by_definition(similarity, penalty, target):
    """The dual weights and the constant by the dense system that defines them."""
    count = len(target)
    system = torch.ones(count + 1, count + 1, dtype=torch.float64)
    system[:-1, :-1] = similarity + penalty
    system[-1, -1] = 0
    solution = torch.linalg.solve(system, torch.cat([target, torch.zeros(1, target.shape[1], dtype=torch.float64)]))
    return solution[:-1], solution[-1]


def test_the_error_is_that_of_rows_left_out_one_by_one():
    z = torch.randn(20, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.nn.functional.one_hot((z[:, 0] + z[:, 1] > 0).long(), 2).double()
    weight = torch.linspace(0.5, 1.5, 20, dtype=torch.float64)
    similarity = torch.exp(-torch.cdist(z, z) / 3)
    penalty = torch.diag(0.03 / weight)
    dual, constant, error = solved(similarity, target, weight, 0.03)
    wanted = by_definition(similarity, penalty, target)
    np.testing.assert_allclose(dual, wanted[0], atol=1e-10)
    np.testing.assert_allclose(constant, wanted[1], atol=1e-10)
    left_out = []
    for i in range(20):
        rest = torch.arange(20) != i
        own, base = by_definition(similarity[rest][:, rest], penalty[rest][:, rest], target[rest])
        left_out.append(weight[i] * (similarity[i, rest] @ own + base - target[i]).square().sum())
    assert error == pytest.approx(float(torch.stack(left_out).mean()))


def test_a_few_huge_cells_leave_the_others_of_their_column_apart():
    columns = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    clean = Scaling.of(columns)
    columns[7, 0] = 1e6
    found = Scaling.of(columns)
    assert found.deviation[0] == pytest.approx(clean.deviation[0], rel=0.1)
    assert abs(found.center[0] - clean.center[0]) < 0.1
    assert (found.center[1], found.deviation[1]) == (clean.center[1], clean.deviation[1])


def test_a_rare_value_is_as_far_as_any():
    columns = np.zeros((5000, 1), np.float32)
    columns[:4] = 1
    found = Scaling.of(columns)(columns)
    assert float(found[:4].min()) == 4.0
    assert abs(float(found[4])) < 0.1
