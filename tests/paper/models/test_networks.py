from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.transforms import SIGN

from sobgnn import Graph
from sobgnn.paper.models import MODELS
from sobgnn.paper.models.contract import Network, Source, choice, draw_settings, uniform
from sobgnn.paper.models.sobolev import MatrixPowers
from tests.paper.conftest import F, N

NETWORKS = [name for name, model in MODELS.items() if isinstance(model, Network)]
SETTING: dict[str, Any] = {
    "lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5, "hidden": 8, "layers": 3, "terms": 3, "hops": 2, "alpha": 3,
    "heads": 2,
    "epsilon": 1.3, "combine": "linear", "norm": "layer", "drop_input": True, "smooth": 0.25,
}  # fmt: skip
C, ROWS = 4, torch.tensor([N - 1, 3, 20, 7])


@pytest.fixture
def source(graph: Graph, x: Tensor) -> Source:
    return Source(graph, x)


def pyg_layer(model: str, layer: Any) -> nn.Module:
    """PyG's layer with the weights of ours."""
    a, b = layer.weight.shape[1:]
    if model == "GCN":
        conv = pyg.GCNConv(a, b)
        pairs = [(conv.lin.weight, layer.weight[0].T), (conv.bias, layer.bias)]
    elif model == "ClusterGCN":
        conv = pyg.ClusterGCNConv(a, b)
        pairs = [(conv.lin_root.weight, layer.weight[0].T), (conv.lin_out.weight, layer.weight[1].T)]
        pairs.append((conv.lin_out.bias, layer.bias))
    else:
        conv = pyg.ChebConv(a, b, len(layer.weight))
        pairs = [(lin.weight, w.T) for lin, w in zip(conv.lins, layer.weight, strict=True)]
        pairs.append((conv.bias, layer.bias))
    for target, value in pairs:
        target.data.copy_(value)
    return conv


@pytest.mark.parametrize("rows", [None, ROWS], ids=["all nodes", "some rows"])
@pytest.mark.parametrize(("model", "terms"), [("GCN", 0), ("ClusterGCN", 0), ("Cheby", 1), ("Cheby", 2), ("Cheby", 3)])
def test_fixed_filters_are_pygs_layers_of_the_same_weights(
    source: Source, model: str, terms: int, rows: Tensor | None
) -> None:
    setting = {**SETTING, "terms": terms}
    net = MODELS[model].build(F, C, setting).eval()
    edge_index, edge_weight = source.graph.edges()
    h = source.X
    for i, layer in enumerate(net.layers):
        nn.init.normal_(layer.bias)
        conv = pyg_layer(model, layer)
        h = conv(h, edge_index) if model == "ClusterGCN" else conv(h, edge_index, edge_weight)
        h = h.relu() if i < 2 else h
    call = MODELS[model].inputs(source, setting, rows)
    torch.testing.assert_close(net(**call), h if rows is None else h[rows], rtol=1e-5, atol=1e-5)


def test_sgc_is_pygs_layer_of_the_same_weights(source: Source) -> None:
    net = MODELS["SGC"].build(F, C, SETTING).eval()
    conv = pyg.SGConv(F, C, K=3)
    conv.lin.weight.data.copy_(net.layers[0].weight[0].T)
    nn.init.zeros_(conv.lin.bias)
    (features,) = MODELS["SGC"].inputs(source, SETTING, None).values()
    torch.testing.assert_close(net(features), conv(source.X, *source.graph.edges()), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse (invariant|CSC)")
def test_sign_reads_pygs_powers_of_the_normalized_adjacency(source: Source) -> None:
    edge_index, edge_weight = source.graph.edges()
    data = SIGN(2)(Data(x=source.X, edge_index=edge_index, edge_weight=edge_weight))
    (hops,) = MODELS["SIGN"].inputs(source, SETTING, None).values()
    torch.testing.assert_close(hops, torch.stack([data.x, data.x1, data.x2], dim=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("model", "powers"), [*((name, "hadamard") for name in NETWORKS), ("S-SobGNN", "matrix")])
def test_logits_at_some_rows_are_those_of_all_nodes_there(source: Source, model: str, powers: str) -> None:
    net, setting = MODELS[model].build(F, C, SETTING).eval(), {**SETTING, "powers": powers}
    full, some = (MODELS[model].inputs(source, setting, at) for at in (None, ROWS))
    expected = net(**full)
    assert expected.shape == (N, C)
    torch.testing.assert_close(net(**some), expected[ROWS], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", ["GCN", "SGC", "Cheby", "ClusterGCN", "GAT", "SuperGAT", "Transformer"])
def test_the_papers_head_is_relu_and_dropout_on_the_logits(source: Source, model: str) -> None:
    torch.manual_seed(0)
    plain = MODELS[model].build(F, C, SETTING)
    headed = MODELS[model].build(F, C, {**SETTING, "head": "paper"})
    headed.load_state_dict(plain.state_dict())
    call = MODELS[model].inputs(source, SETTING, None)
    torch.testing.assert_close(headed.eval()(**call), plain.eval()(**call).relu())
    assert (headed.train()(**call) == 0).float().mean() > (plain.eval()(**call) <= 0).float().mean()


def test_the_papers_head_of_s_sobgnn_is_relu_on_the_filters_of_its_last_layer(source: Source) -> None:
    plain, headed = (MODELS["S-SobGNN"].build(F, C, {**SETTING, "head": head}) for head in ("plain", "paper"))
    assert [layer.activation for layer in plain.layers] == [True, True, False]
    assert [layer.activation for layer in headed.layers] == [True, True, True]


def test_a_setting_depends_on_its_trial_and_names_alone() -> None:
    space = {"lr": uniform(0.005, 0.02), "layers": choice(2, 3, 4, 5)}
    many = draw_settings(space, 50)
    assert many[:7] == draw_settings(space, 7)
    assert [s["lr"] for s in many] == [s["lr"] for s in draw_settings({"lr": space["lr"]}, 50)]
    assert {s["layers"] for s in many} == {2, 3, 4, 5}
    assert all(0.005 <= float(s["lr"]) <= 0.02 for s in many)


@pytest.mark.parametrize("rows", [None, ROWS], ids=["all nodes", "some rows"])
def test_matrix_powers_are_those_of_the_dense_definition(source: Source, rows: Tensor | None) -> None:
    powers = MatrixPowers(source, alpha=3, epsilon=0.7, index=rows)
    shifted = torch.from_numpy(source.graph.to_scipy().toarray()).double() + 0.7 * torch.eye(N).double()
    expected = []
    for rho in (1, 2, 3):
        power = torch.linalg.matrix_power(shifted, rho)
        scale = power.sum(dim=1).rsqrt()
        expected.append((scale[:, None] * power * scale).float() @ source.X)
    dense = torch.stack(expected, dim=1)
    torch.testing.assert_close(powers.propagate(source.X), dense if rows is None else dense[rows], rtol=1e-5, atol=1e-6)
    each = powers.propagate_each(source.X.unsqueeze(1).expand(-1, 3, -1).contiguous())
    torch.testing.assert_close(each, powers.propagate(source.X))
