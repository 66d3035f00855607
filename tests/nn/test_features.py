"""GCNConv and SobolevConv side by side, feature by feature; docs/layer.md shows the table that this makes.

Print it: python -m pytest tests/nn/test_features.py -k table -s
"""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import Explainer, GNNExplainer, GraphMaskExplainer, PGExplainer
from torch_geometric.nn import GCNConv, MessagePassing, global_mean_pool, to_hetero

from sobgnn import SobolevConv

PAGE = Path(__file__).parents[2] / "docs" / "layer.md"
NODES = 20


def edges():
    """A ring with chords; weights the same in both directions."""
    i = torch.arange(NODES)
    one_way = torch.cat([torch.stack([i, (i + step) % NODES]) for step in (1, 3)], dim=1)
    weight = 0.1 + 0.8 * torch.rand(one_way.shape[1], generator=torch.Generator().manual_seed(0))
    return torch.cat([one_way, one_way.flip(0)], dim=1), torch.cat([weight, weight])


def rows(count=NODES, size=6, seed=0):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def by_keyword(make):
    edge_index, edge_weight = edges()
    make(6, 4)(x=rows(), edge_index=edge_index, edge_weight=edge_weight)


def edge_index_class(make):
    edge_index, edge_weight = edges()
    conv = make(6, 4)
    given = EdgeIndex(edge_index, sparse_size=(NODES, NODES))
    torch.testing.assert_close(conv(rows(), given, edge_weight), conv(rows(), edge_index, edge_weight))


def sparse_adjacency(make):
    edge_index, edge_weight = edges()
    conv = make(6, 4)
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), edge_weight, (NODES, NODES)).coalesce().to_sparse_csr()
    torch.testing.assert_close(conv(rows(), matrix), conv(rows(), edge_index, edge_weight), rtol=1e-4, atol=1e-5)


def weight_gradient(make):
    edge_index, edge_weight = edges()
    edge_weight.requires_grad_()
    make(6, 4)(rows(), edge_index, edge_weight).square().sum().backward()
    assert edge_weight.grad.abs().sum() > 0


def learned_loops(make):
    conv = make(6, 4, learn_epsilon=True)
    conv(rows(), *edges()).square().sum().backward()
    assert conv.log_epsilon.grad.abs() > 0


def explain(model, algorithm, kind, **masks):
    """The edge mask of node 3."""
    edge_index, edge_weight = edges()
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    given = {"explanation_type": kind, "edge_mask_type": "object", "model_config": config}
    explainer = Explainer(model, algorithm, **given, **masks)
    call = {"x": rows(), "edge_index": edge_index, "edge_weight": edge_weight}
    if kind == "phenomenon":
        call["target"] = torch.zeros(NODES, dtype=torch.long)
    if isinstance(algorithm, PGExplainer):
        for epoch in range(2):
            algorithm.train(epoch, explainer.model, index=3, **call)
    mask = explainer(index=3, **call).edge_mask
    assert mask.shape == edge_weight.shape
    return mask


def explainer(make):
    mask = explain(make(6, 4), GNNExplainer(epochs=3), "model", node_mask_type="attributes")
    assert mask.max() > 0


def learned_explainer(make):
    explain(make(6, 4), PGExplainer(epochs=2), "phenomenon")


def mask_explainer(make):
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.first, model.second = make(6, 6), make(6, 4)
    model.forward = lambda x, edge_index, edge_weight: model.second(model.first(x, edge_index, edge_weight), edge_index)
    explain(model, GraphMaskExplainer(2, epochs=3, log=False), "phenomenon", node_mask_type="attributes")


def functional_gradient(make):
    conv = make(6, 4)
    weights = {name: value.detach() for name, value in conv.named_parameters()}

    def loss(weights, x):
        return functional_call(conv, weights, (x, *edges())).square().sum()

    got, to_x = torch.func.grad(loss, argnums=(0, 1))(weights, rows())
    assert to_x.abs().sum() > 0
    conv(rows(), *edges()).square().sum().backward()
    for name, value in conv.named_parameters():
        torch.testing.assert_close(got[name], value.grad, rtol=1e-4, atol=1e-4)


def second_gradient(make):
    conv, x = make(6, 4), rows().requires_grad_()
    (to_x,) = torch.autograd.grad(conv(x, *edges()).square().sum(), x, create_graph=True)
    to_x.square().sum().backward()  # a penalty on the gradient
    assert all(value.grad.abs().sum() > 0 for name, value in conv.named_parameters() if "bias" not in name)


def batch_of_signals(make):
    conv, x = make(6, 4), torch.stack([rows(seed=seed) for seed in range(3)])
    out = conv(x, *edges())
    out.sum().backward()
    torch.testing.assert_close(out, torch.stack([conv(one, *edges()) for one in x]), rtol=1e-4, atol=1e-5)


def repeated_edges(make):
    edge_index, edge_weight = edges()
    conv = make(6, 4)
    out = conv(rows(), torch.cat([edge_index, edge_index], dim=1), torch.cat([edge_weight, edge_weight]))
    torch.testing.assert_close(out, conv(rows(), edge_index, 2 * edge_weight))


def weights_of_zero(make):
    edge_index, edge_weight = edges()
    edge_weight.view(2, -1)[:, 0] = 0
    kept = edge_weight > 0
    conv = make(6, 4)
    torch.testing.assert_close(
        conv(rows(), edge_index, edge_weight), conv(rows(), edge_index[:, kept], edge_weight[kept])
    )


def without_bias_and_loops(make):
    conv = make(6, 4, bias=False, add_self_loops=False)
    assert conv(torch.zeros(NODES, 6), *edges()).eq(0).all()
    alone = torch.tensor([[0, 1], [1, 0]])
    assert conv(rows(), alone, torch.ones(2))[2:].eq(0).all()


def scripted(make):
    torch.jit.script(make(6, 4))


def directed(make):
    edge_index, edge_weight = edges()
    half = edge_index.shape[1] // 2
    make(6, 4, **only(make, normalize="row"))(rows(), edge_index[:, :half], edge_weight[:half])


def two_sets(make):
    edge_index = torch.tensor([[0, 3, 7, 9], [0, 1, 1, 4]])
    out = make(6, 4, **only(make, normalize="row"))((rows(), rows(5)), edge_index, torch.ones(4), size=(NODES, 5))
    assert out.shape == (5, 4)


def hetero(make):
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = make((-1, -1), 8, **only(make, normalize="row"))
            self.second = make((-1, -1), 3, **only(make, normalize="row"))

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index), edge_index)

    data = HeteroData()
    data["paper"].x, data["author"].x = rows(12, 5), rows(9, 7)
    data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(9), torch.arange(9)])
    data["paper", "by", "author"].edge_index = torch.stack([torch.arange(12), torch.arange(12) % 9])
    out = to_hetero(Network(), data.metadata())(data.x_dict, data.edge_index_dict)
    assert out["paper"].shape == (12, 3)


def batch_readout(make):
    edge_index, edge_weight = edges()
    graphs = [Data(x=rows(seed=seed), edge_index=edge_index, edge_weight=edge_weight) for seed in range(3)]
    batch = Batch.from_data_list(graphs)
    conv = make(6, 4)
    pooled = global_mean_pool(conv(batch.x, batch.edge_index, batch.edge_weight), batch.batch)
    alone = conv(graphs[1].x, edge_index, edge_weight).mean(dim=0)
    torch.testing.assert_close(pooled[1], alone, rtol=1e-4, atol=1e-5)


def sampled(make):
    """What NeighborLoader hands over: edges that point towards the seeds only."""
    edge_index = torch.tensor([[3, 4, 5, 6, 7], [0, 0, 1, 3, 4]])
    make(6, 4, **only(make, normalize="row"))(rows(8), edge_index, torch.rand(5) + 0.1)[:2].sum().backward()


def lazy(make):
    conv = make(-1, 4)
    conv(rows(), *edges())
    other = make(-1, 4)
    other.load_state_dict(conv.state_dict())
    torch.testing.assert_close(other(rows(), *edges()), conv(rows(), *edges()))


def low_precision(dtype):
    def run(make):
        conv = make(6, 4)
        with torch.autocast("cpu", dtype):
            out = conv(rows(), *edges())
        out.float().sum().backward()
        torch.testing.assert_close(out.float(), conv(rows(), *edges()), rtol=0.05, atol=0.05)

    return run


def sparse_features(make):
    make(6, 4)(rows().relu().to_sparse(), *edges())


def compiled(make):
    torch._dynamo.reset()
    conv = make(6, 4)
    run = torch.compile(conv, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(run(rows(), *edges()), conv(rows(), *edges()))


def exported(make):
    n, e = torch.export.Dim("n", max=2**20), torch.export.Dim("e", max=2**20)
    shapes = {"x": {0: n}, "edge_index": {1: e}, "edge_weight": {0: e}}
    conv = make(6, 4).eval()
    program = torch.export.export(conv, (rows(), *edges()), dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(rows(), *edges()), conv(rows(), *edges()))


def cache_sees_another_graph(make):
    edge_index, edge_weight = edges()
    conv = make(6, 4, cached=True)
    first = conv(rows(), edge_index, edge_weight).clone()
    fresh = make(6, 4)
    fresh.load_state_dict(conv.state_dict())
    changed = edge_weight.clone()
    changed.view(2, -1)[:, 0] = 5.0
    got = conv(rows(), edge_index, changed)
    torch.testing.assert_close(got, fresh(rows(), edge_index, changed))
    assert not torch.allclose(got, first)


def copies(make):
    conv = make(6, 4)
    file = io.BytesIO()
    torch.save(conv, file)
    file.seek(0)
    for other in (copy.deepcopy(conv), torch.load(file, weights_only=False)):
        torch.testing.assert_close(other(rows(), *edges()), conv(rows(), *edges()))


def given_loops(make):
    edge_index, edge_weight = edges()
    loop = torch.tensor([[2], [2]])
    make(6, 4)(rows(), torch.cat([edge_index, loop], dim=1), torch.cat([edge_weight, torch.ones(1)]))


def message_passing(make):
    assert isinstance(make(6, 4), MessagePassing)


def only(make, **options):
    """Options that GCNConv does not have."""
    return options if make is SobolevConv else {}


FEATURES = {
    "`forward(x, edge_index, edge_weight)`, by keyword": by_keyword,
    "PyG's `EdgeIndex`": edge_index_class,
    "a torch sparse adjacency matrix": sparse_adjacency,
    "gradients for `edge_weight`": weight_gradient,
    "a learned weight of self-loops (`learn_epsilon`)": learned_loops,
    "`Explainer` with `GNNExplainer`": explainer,
    "`Explainer` with `PGExplainer`": learned_explainer,
    "`Explainer` with `GraphMaskExplainer`": mask_explainer,
    "`torch.func.grad` for parameters and x": functional_gradient,
    "gradients of gradients for parameters and x": second_gradient,
    "x of shape [B, N, F]": batch_of_signals,
    "a directed graph": directed,
    "two sets of nodes, `(x_src, x_dst)` and `size`": two_sets,
    "`to_hetero`": hetero,
    "a batch of graphs with readout": batch_readout,
    "a subgraph as `NeighborLoader` samples it": sampled,
    "`in_channels=-1`": lazy,
    "bfloat16 under autocast": low_precision(torch.bfloat16),
    "float16 under autocast": low_precision(torch.float16),
    "sparse x": sparse_features,
    "`torch.compile(fullgraph=True)` from `edge_index`": compiled,
    "`torch.export` with sizes that vary": exported,
    "`cached=True` notices another graph": cache_sees_another_graph,
    "`copy.deepcopy` and `torch.save`": copies,
    "an instance of `MessagePassing`": message_passing,
    "self-loops inside `edge_index`": given_loops,
    "an edge listed twice": repeated_edges,
    "edge weights of 0": weights_of_zero,
    "`bias=False`, `add_self_loops=False`": without_bias_and_loops,
    "`torch.jit.script`": scripted,
}
MISSING = {"`torch.jit.script`"}


def works(feature, make) -> bool:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            feature(make)
        except Exception:
            return False
    return True


@pytest.mark.parametrize("name", FEATURES)
def test_sobolev_conv_has_the_feature(name):
    assert works(FEATURES[name], SobolevConv) != (name in MISSING)


def test_the_table_in_the_docs_is_what_both_layers_do():
    lines = ["| feature | GCNConv | SobolevConv |", "|---|---|---|"]
    for name, feature in FEATURES.items():
        marks = ("yes" if works(feature, make) else "no" for make in (GCNConv, SobolevConv))
        lines.append(f"| {name} | {' | '.join(marks)} |")
    table = "\n".join(lines)
    print(f"\n{table}")
    assert table in PAGE.read_text()
