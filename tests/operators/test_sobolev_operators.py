from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch_geometric.data import Data

from sobgnn.operators import EdgeOperators, SobolevOperators, SobolevRows
from tests.oracle import epsilons, graphs, random_graph, sobolev_operator

TINY = float(np.finfo(np.float32).tiny)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Random graphs here include those of weight 1 throughout, which have a test of their own.
pytestmark = pytest.mark.filterwarnings("ignore:All edge weights are 1:UserWarning")
alphas = st.sampled_from([1, 2, 3, 6, 17, 64])


def stack(graph, alpha, epsilon):
    """Every order by its definition, float64 [α, N, N]."""
    return np.stack([sobolev_operator(graph, rho, epsilon) for rho in range(1, alpha + 1)])


def signal(n, width, dtype, alpha=None, seed=0):
    shape = (n, width) if alpha is None else (n, alpha, width)
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def assert_propagated(result, entries, H, rho_of_signal=False):
    """Agreement relative to Σ |entry| |signal|; entries below float32's range may be zeros."""
    dtype = H.dtype
    assert result.dtype == dtype
    assert torch.isfinite(result).all()
    pattern = "ran,nah->rah" if rho_of_signal else "ran,nh->rah"
    blocks = np.moveaxis(entries, 0, 1)  # [R, α, N]
    values = H.double().numpy()
    expected = np.einsum(pattern, blocks, values)
    size = np.einsum(pattern, blocks, np.abs(values)) + 10 * TINY * np.abs(values).sum() / TOLERANCE[dtype]
    worst = np.max(np.abs(result.double().numpy() - expected) / size, initial=0.0)
    assert worst <= TOLERANCE[dtype]


# ---------------------------------------------------------------------------------- against the definition


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(graph=graphs(), alpha=alphas, epsilon=epsilons)
@example(graph=random_graph(0, 12, 1.0, (-30.0, 6.0)), alpha=64, epsilon=0.0)
@example(graph=random_graph(1, 12, 1.0, (-30.0, 6.0)), alpha=64, epsilon=10.0)
def test_propagation_agrees_with_the_dense_definition(dtype, graph, alpha, epsilon):
    H = signal(graph.num_nodes, 3, dtype)
    result = SobolevOperators(graph, alpha, epsilon).propagate(H)
    assert result.shape == (graph.num_nodes, alpha, 3)
    assert_propagated(result, stack(graph, alpha, epsilon), H)


@given(graph=graphs(), alpha=alphas, epsilon=epsilons, data=st.data())
def test_matrices_agree_with_the_dense_definition_entry_by_entry(graph, alpha, epsilon, data):
    rho = data.draw(st.integers(1, alpha))
    matrix = SobolevOperators(graph, alpha, epsilon).matrix(rho)
    assert matrix.dtype == np.float64
    assert np.all(np.isfinite(matrix.data))
    entries, expected = matrix.toarray(), sobolev_operator(graph, rho, epsilon)
    np.testing.assert_array_equal(entries, entries.T)
    clear = expected > 1.001 * TINY
    np.testing.assert_allclose(entries[clear], expected[clear], rtol=1e-10)
    assert np.all(entries[expected < 0.999 * TINY] == 0)  # exact zeros, no denormals


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 1.0])
def test_every_edge_of_order_64_stays_within_the_proven_bound_in_float32(epsilon):
    # docs/paper.md: 131 roundings, of which 64 stand for the one in the base. A second one there would show.
    graph = random_graph(5, 300, 0.9, (-0.3, 0.0))
    result = SobolevOperators(graph, 64, epsilon).propagate(torch.eye(300))[:, 63].double().numpy()
    expected = sobolev_operator(graph, 64, epsilon)
    clear = (expected > 1.1 * TINY) & ~np.eye(300, dtype=bool)
    assert np.max(np.abs(result[clear] / expected[clear] - 1)) <= 132 * 2**-24


def test_orders_without_weights_are_said_to_differ_where_they_do(ring8):
    for epsilon in (0.0, 1.0):
        with pytest.warns(UserWarning, match="and alpha > 1 adds nothing"):
            SobolevOperators(ring8, 2, epsilon)
    with pytest.warns(UserWarning, match="and its orders differ by their self-loops alone"):
        ops = SobolevOperators(ring8, 2, 0.5)
    assert not np.allclose(ops.matrix(1).toarray(), ops.matrix(2).toarray())


# --------------------------------------------------------------------------------------------- rows


@given(graph=graphs(), data=st.data(), layers=st.integers(1, 3))
def test_a_receptive_field_gives_what_all_nodes_give(graph, data, layers):
    n, alpha = graph.num_nodes, 2
    picked = data.draw(st.lists(st.integers(0, n - 1), unique=True, min_size=1))
    ops, H = SobolevOperators(graph, alpha, 0.5), signal(n, 3, torch.float64)
    field = ops.receptive_field(torch.tensor(picked), layers)
    assert len(field) == layers
    whole, part = H, H[field[0].columns]
    for rows in field:
        whole, part = ops.propagate(whole).sum(1), rows.propagate(part).sum(1)
    torch.testing.assert_close(part, whole[torch.tensor(picked)], rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------------ memory and devices


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_propagation_on_cuda_agrees_with_the_dense_definition(graph30, dtype):
    H = signal(30, 4, dtype)
    result = SobolevOperators(graph30.to("cuda"), 8, 0.3).propagate(H.cuda())
    assert_propagated(result.cpu(), stack(graph30, 8, 0.3), H)


# ---------------------------------------------------------------------------------------------- bad input


def rows_of(index):
    return lambda graph: SobolevOperators(graph, 2).rows(index)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([lambda g: SobolevOperators(g, 0)], "`alpha` must be at least 1, but got 0"),
        ([lambda g, a=a: SobolevOperators(g, a) for a in (2.0, True)], "`alpha` must be an integer, but got"),
        (
            [lambda g, e=e: SobolevOperators(g, 2, e) for e in (-1e-9, -1, float("nan"), float("inf"), "1", None)],
            "`epsilon` must be finite and at least 0, but got",
        ),
        (
            [lambda g, rho=rho: SobolevOperators(g, 2).matrix(rho) for rho in (0, 3, -1)],
            "`rho` must be an integer between 1 and alpha=2, but got",
        ),
        (
            [lambda g: SobolevOperators(g.edges()[0]), lambda g: SobolevOperators(g.edges())],
            r"must be a sobgnn\.Graph, but got .*Graph\.from_edges\(edge_index",
        ),
        ([lambda g: SobolevOperators(g.to_scipy())], r"but got csr_array\. Make one with Graph\.from_scipy"),
        (
            [lambda g: SobolevOperators(Data(edge_index=g.edges()[0]))],
            r"but got Data\. Make one with Graph\.from_edges\(data\.edge_index",
        ),
        ([rows_of(torch.tensor([True, False]))], "one entry per node, but got 2 for 5 nodes"),
        ([rows_of(torch.tensor([0, 5])), rows_of(torch.tensor([-1]))], r"must lie in \[0, 5\), but got"),
        ([rows_of(torch.tensor([0.5])), rows_of([0, 1])], "must be a tensor of node numbers"),
        ([lambda g: SobolevOperators(g).receptive_field(torch.tensor([0]), 0)], "`num_layers` must be at least 1"),
        (
            [lambda g: SobolevRows(SobolevOperators(g, 2), torch.tensor([1]), torch.tensor([0, 1])).csr()],
            "`columns` must hold every row and neighbor",
        ),
    ],
)
def test_what_is_no_operator_is_refused_with_a_way_out(path5, calls, message):
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=message):
            call(path5)


@pytest.mark.parametrize(
    ("H", "error", "message"),
    [
        (torch.ones(4, 3), ValueError, r"one row per node, .*, but got shape \[4, 3\] for 5 nodes"),
        (torch.ones(5), ValueError, r"one row per node, .*, but got shape \[5\]"),
        (torch.ones(5, 3, dtype=torch.long), TypeError, r"must be float32, .*, but got torch.int64.*\.float\(\)"),
        (torch.ones(5, 3, dtype=torch.complex64), TypeError, "must be float32, .*, but got torch.complex64"),
        (np.ones((5, 3)), TypeError, "must be a torch tensor, but got ndarray. Use torch.as_tensor"),
        (torch.ones(5, 3).to_sparse(), TypeError, r"must be dense, but got torch.sparse_coo.*\.to_dense\(\)"),
        (torch.ones(5, 3, device="meta"), ValueError, r"one device, but got meta and cpu. Move one with .to\(\)"),
    ],
)
def test_a_signal_that_does_not_fit_is_refused(path5, H, error, message):
    ops = SobolevOperators(path5, 2)
    with pytest.raises(error, match=message):
        ops.propagate(H)
    with pytest.raises(error, match=message):
        ops.rows(torch.tensor([0, 1])).propagate(H)


@pytest.mark.parametrize(("epsilon", "bound"), [(1e-300, 1e-30), (1e-45, 1e-30), (1e39, 1e30), (1e300, 1e30)])
def test_an_epsilon_past_float32_acts_as_one_that_outweighs_all_edges_or_none(graph30, epsilon, bound):
    x, some = signal(30, 4, torch.float32), torch.tensor([3, 9])
    ops, like = SobolevOperators(graph30, 3, epsilon), SobolevOperators(graph30, 3, bound)
    torch.testing.assert_close(ops.propagate(x), like.propagate(x))
    torch.testing.assert_close(ops.rows(some).propagate(x), like.rows(some).propagate(x))
    edges = EdgeOperators(*graph30.edges(), 30, 3, epsilon)
    torch.testing.assert_close(edges.propagate(x), like.propagate(x))


def test_float16_signals_are_summed_in_float32(graph30):
    ops, x = SobolevOperators(graph30, 3), signal(30, 4, torch.float16)
    torch.testing.assert_close(ops.propagate(x), ops.propagate(x.float()).half(), rtol=0, atol=0)


def test_learned_weights_are_read_anew_where_nothing_is_learned(path5):
    weight = torch.nn.Parameter(path5.weight.clone())
    ops = SobolevOperators(path5.with_weight(weight), 3)
    x = signal(5, 2, torch.float32)
    with torch.no_grad():
        ops.propagate(x)  # an evaluation
        weight.mul_(torch.tensor(0.5)).pow_(2)  # a step
        expected = SobolevOperators(path5.with_weight(weight.detach()), 3).propagate(x)
        torch.testing.assert_close(ops.propagate(x), expected)


def test_rows_may_be_a_mask(path5):
    ops, x = SobolevOperators(path5, 2), signal(5, 2, torch.float32)
    mask = torch.tensor([True, False, True, True, False])
    torch.testing.assert_close(ops.rows(mask).propagate(x), ops.propagate(x)[mask])
    field = ops.receptive_field(mask, 1)
    torch.testing.assert_close(field[0].propagate(x[field[0].columns]), ops.propagate(x)[mask])


def test_operators_first_used_in_inference_mode_can_train_later(path5):
    x = signal(5, 2, torch.float64)

    def gradient(ops, rows):
        leaf = x.clone().requires_grad_()
        (ops.propagate(leaf).square().sum() + rows.propagate(leaf).square().sum()).backward()
        return leaf.grad

    fresh, used = SobolevOperators(path5, 2), SobolevOperators(path5, 2)
    some = torch.tensor([0, 2])
    rows = used.rows(some)
    with torch.inference_mode():
        used.propagate(x), rows.propagate(x)
    torch.testing.assert_close(gradient(used, rows), gradient(fresh, fresh.rows(some)), rtol=0, atol=0)
