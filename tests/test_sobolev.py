from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sobgnn.graphs.graph import Graph
from sobgnn.sobolev import sobolev_inner, sobolev_norm, sparse_sobolev_term
from tests.oracle import adjacency, graph_of, graphs, laplacian, normalized_laplacian

DENSE = {"adjacency": adjacency, "laplacian": laplacian, "normalized_laplacian": normalized_laplacian}
operators = st.sampled_from(list(DENSE))
laplacians = pytest.mark.parametrize("operator", ["laplacian", "normalized_laplacian"])


def two_signals(n, seed=0):
    return np.random.default_rng(seed).standard_normal((2, n))


# ------------------------------------------------------------------------------------------- terms


@pytest.mark.parametrize("rho", [1, 2, 5])
@pytest.mark.parametrize("operator", list(DENSE))
def test_term_is_the_hadamard_power_and_not_the_matrix_power(path5, rho, operator):
    shifted = DENSE[operator](path5) + 0.5 * np.eye(5)
    term = sparse_sobolev_term(path5, rho, 0.5, operator).toarray()
    np.testing.assert_allclose(term, shifted**rho, rtol=1e-12)
    if rho > 1:  # else the two powers agree and the test proves nothing
        assert not np.allclose(term, np.linalg.matrix_power(shifted, rho))


@given(graph=graphs(), rho=st.integers(1, 12), epsilon=st.floats(0, 10), operator=operators)
def test_terms_agree_with_the_dense_definition_and_keep_the_pattern(graph, rho, epsilon, operator):
    term = sparse_sobolev_term(graph, rho, epsilon, operator)
    expected = (DENSE[operator](graph) + epsilon * np.eye(graph.num_nodes)) ** rho
    np.testing.assert_allclose(term.toarray(), expected, rtol=1e-10, atol=np.finfo(float).tiny)
    assert np.all(np.isfinite(term.data))
    assert term.nnz <= graph.num_edges + graph.num_nodes


# ----------------------------------------------------------------------------------- products and norms


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@given(graph=graphs(), rho=st.integers(1, 4), epsilon=st.floats(0, 10), operator=operators)
def test_inner_products_are_those_of_the_definitions(kind, graph, rho, epsilon, operator):
    x, y = two_signals(graph.num_nodes)
    shifted = DENSE[operator](graph) + epsilon * np.eye(graph.num_nodes)
    power = shifted**rho if kind == "sparse" else np.linalg.matrix_power(shifted, rho)
    size = np.abs(x) @ (np.linalg.matrix_power(np.abs(shifted), rho) if kind == "dense" else np.abs(power)) @ np.abs(y)
    product = sobolev_inner(x, y, graph, rho, epsilon, operator, kind)
    assert isinstance(product, float)
    assert product == pytest.approx(x @ power @ y, abs=1e-10 * size + 1e-300)


@laplacians
def test_epsilon_zero_is_a_semi_norm_that_does_not_see_constants(graph30, operator):
    flat = np.ones(30) if operator == "laplacian" else np.sqrt(adjacency(graph30).sum(axis=1))
    assert sobolev_norm(flat, graph30, 1, 0.0, operator) == pytest.approx(0, abs=1e-6)
    assert sobolev_norm(flat, graph30, 1, 0.5, operator) == pytest.approx(np.sqrt(0.5 * flat @ flat))


@laplacians
@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_fractional_orders_do_not_see_constants_either_whatever_the_weights(graph30, operator, rho):
    flat = np.ones(30) if operator == "laplacian" else np.sqrt(adjacency(graph30).sum(axis=1))
    wave, small = np.arange(30.0), graph30.with_weight(graph30.weight * 2.0**-60)
    norm = sobolev_norm(wave, graph30, rho, 0.0, operator, kind="dense")
    assert sobolev_norm(flat, graph30, rho, 0.0, operator, kind="dense") < 1e-6 * norm
    scale = 2.0 ** (-30 * rho) if operator == "laplacian" else 1.0
    assert sobolev_norm(wave, small, rho, 0.0, operator, kind="dense") == pytest.approx(scale * norm)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_norms_of_huge_and_of_tiny_signals_are_those_of_their_scale(path5, kind):
    x = two_signals(5)[0]
    norm = sobolev_norm(x, path5, 2, 0.5, kind=kind)
    scales = np.array([1.0, 1e-300, 1e-200, 1e200, 1e300, 0.0])
    np.testing.assert_allclose(sobolev_norm(x[:, None] * scales, path5, 2, 0.5, kind=kind), norm * scales, rtol=1e-12)
    for epsilon in (1e-300, 1e-40, 0.0):
        assert sobolev_norm(x, path5, 2, epsilon, kind=kind) == pytest.approx(sobolev_norm(x, path5, 2, 0.0, kind=kind))
    assert sobolev_norm(x, path5, 2, 1e100, kind=kind) == pytest.approx(1e100 * np.linalg.norm(x))


@pytest.mark.parametrize("rho", [0.5, 1, 1.7, 3, -1])
def test_the_dense_norm_is_that_of_the_papers_definition_for_any_real_order(graph30, rho):
    # ‖x‖ = ‖(L + εI)^{ρ/2} x‖, the half power by the spectrum.
    x, _ = two_signals(30)
    eigenvalues, U = np.linalg.eigh(laplacian(graph30) + 0.3 * np.eye(30))
    expected = np.linalg.norm((U * eigenvalues ** (rho / 2)) @ U.T @ x)
    assert sobolev_norm(x, graph30, rho, 0.3, kind="dense") == pytest.approx(expected)


def test_columns_are_signals_of_their_own_and_tensors_are_read(graph30):
    X = np.stack(two_signals(30), axis=1)
    norms = sobolev_norm(torch.from_numpy(X).requires_grad_(), graph30, 2, 0.5)
    assert norms.shape == (2,)
    assert norms == pytest.approx([sobolev_norm(X[:, 0], graph30, 2, 0.5), sobolev_norm(X[:, 1], graph30, 2, 0.5)])


# ---------------------------------------------------------------------------- where the paper is loose


def test_the_papers_sparse_norm_is_not_the_one_its_inner_product_induces(path5):
    # Definition 2 writes ‖(L + εI)^(ρ/2) x‖; for ρ = 2 that is ‖(L + εI) x‖, the non-sparse norm, while the inner
    # product gives xᵀ (L + εI)^(2) x. Ours is the second.
    x, _ = two_signals(5)
    shifted = laplacian(path5) + 0.5 * np.eye(5)
    written, induced = np.linalg.norm(shifted @ x), np.sqrt(x @ shifted**2 @ x)
    assert not np.isclose(written, induced, rtol=0.05)
    assert sobolev_norm(x, path5, 2, 0.5) == pytest.approx(induced)
    assert sobolev_norm(x, path5, 2, 0.5, kind="dense") == pytest.approx(written)


# ---------------------------------------------------------------------------------------------- bad input


ONES, LARGE = np.ones(5), Graph.from_edges([[0, 1], [1, 0]], num_nodes=5001)


def term(rho=1, epsilon=1.0, operator="laplacian"):
    return lambda graph: sparse_sobolev_term(graph, rho, epsilon, operator)


def norm(x=ONES, rho=1, epsilon=1.0, kind="sparse"):
    return lambda graph: sobolev_norm(x, graph, rho, epsilon, kind=kind)


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ("`rho` must be an integer of at least 1, but got", [term(rho=rho) for rho in (0, -1, 1.5, True, "2")]),
        ("`rho` must be a finite number", [norm(rho=rho) for rho in (np.nan, np.inf, "2")]),
        ("`rho` must be a finite number", [norm(rho=rho, kind="dense") for rho in (np.nan, np.inf, "2")]),
        (r"`rho` must be an integer for the sparse kind, but got 1\.5", [norm(rho=1.5)]),
        ("`epsilon` must be finite and at least 0", [term(epsilon=epsilon) for epsilon in (-0.1, np.nan, np.inf)]),
        ("`epsilon` must be finite and at least 0", [norm(epsilon=-0.1, kind="dense")]),
        ('`operator` must be "adjacency", "laplacian" or "normalized_laplacian"', [term(operator="random_walk")]),
        ('`kind` must be "sparse" or "dense", but got \'full\'', [norm(kind="full")]),
        (
            r"must have shape \[N\] or \[N, h\], but got .* for 5 nodes",
            [norm(x) for x in (np.ones(4), np.ones((4, 5)), np.ones((5, 2, 2)), 1.0)],
        ),
        ("A graph signal must hold real numbers, but got", [norm(x) for x in (["a"] * 5, [1j] * 5, [None] * 5)]),
        ("Both signals must have one shape", [lambda graph: sobolev_inner(ONES, np.ones((5, 1)), graph, 1, 1.0)]),
        (r"leave the range of float64\. Rescale weights and epsilon to at most 1", [term(64, 1e30)]),
        (
            r"the range of float64\. Rescale",
            [
                lambda graph, kind=kind: sobolev_inner(1e200 * ONES, ONES * 1e200, graph, 1, 1.0, kind=kind)
                for kind in ("sparse", "dense")
            ],
        ),
        (r"the range of float64\. Rescale", [norm(rho=2, epsilon=1e200, kind=kind) for kind in ("sparse", "dense")]),
        (r'at most 5000 nodes, but got 5001\. Use kind="sparse"', [lambda _: norm(np.ones(5001), kind="dense")(LARGE)]),
        ("not positive definite", [norm(rho=-1, epsilon=0.0, kind="dense")]),
    ],
)
def test_what_has_no_term_product_or_norm_is_refused(path5, message, calls):
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=message):
            call(path5)


def test_tensors_of_any_precision_are_read(path5):
    x = torch.tensor([1.0, 2.0, -1.0, 0.5, 3.0])
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert sobolev_norm(x.to(dtype), path5, 2, 1.0) == sobolev_norm(x.numpy(), path5, 2, 1.0)


def test_a_form_that_is_no_norm_is_refused_where_it_is_negative():
    graph = graph_of([[0, 1], [1, 0]])
    assert sobolev_norm([1.0, 1.0], graph, 1, 0.5, "adjacency") == pytest.approx(np.sqrt(3))
    with pytest.raises(ValueError, match=r"negative squared length .* Raise epsilon or use a Laplacian"):
        sobolev_norm([1.0, -1.0], graph, 1, 0.5, "adjacency")
    with pytest.raises(ValueError, match="negative squared length"):  # beside a column that is much larger
        sobolev_norm([[1e9, 1.0], [1e9, -1.0]], graph, 1, 0.5, "adjacency")
    star = np.zeros((51, 51))
    star[0, 1:] = star[1:, 0] = 1
    for rho in (1, 8):  # whatever powers of the degrees may be
        with pytest.raises(ValueError, match="negative squared length"):
            sobolev_norm([1.0, -1.0, *[0.0] * 49], graph_of(star), rho, 0.0, "adjacency")
    with pytest.raises(ValueError, match="negative squared length"):  # however small the weights
        sobolev_norm([1.0, -1.0], graph_of([[0, 1e-14], [1e-14, 0]]), 1, 0.0, "adjacency")
