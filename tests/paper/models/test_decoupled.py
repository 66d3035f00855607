from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sobgnn import Graph, SobolevOperators
from sobgnn.paper.models import MODELS
from sobgnn.paper.models.contract import Source
from sobgnn.paper.models.decoupled import DSobGNN, block_orders, sobolev_blocks
from tests.paper.conftest import F, N

C = 3
SETTING: dict[str, Any] = {
    "dropout": 0.0, "hidden": 8, "alpha": 2, "epsilon": 1.0, "hops": 1, "norm": "layer", "smooth": 0.25,
}  # fmt: skip


def test_blocks_are_the_features_and_powers_of_each_order_applied_to_them(graph: Graph, x: Tensor) -> None:
    operators = SobolevOperators(graph, alpha=5, epsilon=1.3)
    blocks = sobolev_blocks(Source(graph, x), alpha=5, epsilon=1.3, hops=2)
    assert blocks.shape == (N, 7, F)
    want = [x.numpy().astype(np.float64)]
    for hop in (1, 2):
        for order in (1, 3, 5):
            want.append(np.linalg.matrix_power(operators.matrix(order).toarray(), hop) @ want[0])
    np.testing.assert_allclose(blocks.numpy(), np.stack(want, axis=1), rtol=1e-4, atol=1e-5)
    assert [block_orders(alpha) for alpha in (1, 2, 3, 4, 6)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 3, 6]]


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_logits_are_the_gated_mean_of_a_small_mlp_for_each_block(norm: str) -> None:
    torch.manual_seed(0)
    net = DSobGNN(F, C, 3, {**SETTING, "norm": norm, "drop_input": True}).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter)
    blocks = torch.randn(N, 3, F)
    share = torch.exp(net.gate) / torch.exp(net.gate).sum()
    want = torch.zeros(N, C)
    for b in range(3):
        h = blocks[:, b] @ net.hidden.weight[b] + net.hidden.bias[b]
        if norm == "layer":
            h = (h - h.mean(dim=1, keepdim=True)) / (h.var(dim=1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        want += share[b] * (h.clamp_min(0) @ net.head.weight[b] + net.head.bias[b])
    torch.testing.assert_close(net(blocks), want, rtol=1e-5, atol=1e-5)


def test_without_hops_it_reads_the_features_alone(graph: Graph, x: Tensor) -> None:
    setting = {**SETTING, "hops": 0, "smooth": 0.0}
    (blocks,) = MODELS["D-SobGNN"].inputs(Source(graph, x), setting, None).values()
    assert torch.equal(blocks, x.unsqueeze(1))
    assert MODELS["D-SobGNN"].build(F, C, setting)(blocks).shape == (N, C)


@pytest.mark.parametrize("rows", [None, torch.tensor([5, 0, 11])], ids=["all nodes", "some rows"])
def test_predictions_are_mixed_with_the_neighbors_in_evaluation_alone(
    graph: Graph, x: Tensor, rows: Tensor | None
) -> None:
    torch.manual_seed(0)
    net = MODELS["D-SobGNN"].build(F, C, SETTING)
    call = MODELS["D-SobGNN"].inputs(Source(graph, x), SETTING, rows)
    every = net(call["every"])  # logits of all points
    own = every if rows is None else every[rows]
    torch.testing.assert_close(net.train()(**call), own, rtol=1e-5, atol=1e-5)

    S = torch.from_numpy(SobolevOperators(graph, 1, 0.0).matrix(1).toarray()).float()
    known = every.softmax(dim=1)
    want = 0.75 * known + 0.25 * S @ known
    want = want if rows is None else want[rows]
    torch.testing.assert_close(net.eval()(**call).exp(), want, rtol=1e-5, atol=1e-6)


def test_input_entries_are_dropped_in_training_alone_at_half_the_rate() -> None:
    torch.manual_seed(0)
    net = DSobGNN(1, C, 1, {**SETTING, "dropout": 0.6, "norm": "none", "drop_input": True})
    torch.nn.init.ones_(net.hidden.weight)
    seen = []
    net.dropout.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    net(torch.ones(20_000, 1, 1))
    values, counts = seen[0][:, 0, 0].unique(return_counts=True)
    torch.testing.assert_close(values, torch.tensor([0.0, 1 / 0.7]))
    assert abs(float(counts[0]) / 20_000 - 0.3) < 0.02
    net.eval()(torch.ones(5, 1, 1))
    assert (seen[1] == 1).all()
