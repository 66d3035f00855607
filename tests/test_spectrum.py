from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sobgnn.graphs.graph import Graph
from sobgnn.sobolev import sparse_sobolev_term
from sobgnn.spectrum import (
    condition_number,
    eigenvalue_penalization,
    hadamard_power_from_spectrum,
    hadamard_square_from_spectrum,
    is_positive_definite,
    partial_permutation,
)
from tests.oracle import graph_of, graphs, laplacian, normalized_adjacency

# ------------------------------------------------------------------------------------------- Theorem 1


@pytest.mark.parametrize("rho", [1, 2, 3])
def test_the_theorem_holds_word_for_word_with_kronecker_products(path5, rho):
    L = laplacian(path5)
    eigenvalues, U = np.linalg.eigh(L)
    big_u, big_lambda = np.ones((1, 1)), np.ones((1, 1))
    for _ in range(rho):
        big_u, big_lambda = np.kron(big_u, U), np.kron(big_lambda, np.diag(eigenvalues))
    P = partial_permutation(5, rho)
    literal = P.T @ (big_u @ big_lambda @ big_u.T) @ P
    np.testing.assert_allclose(literal, L**rho, atol=1e-12)
    np.testing.assert_allclose(hadamard_power_from_spectrum(L, rho), literal, atol=1e-12)


@given(graph=graphs(), rho=st.integers(1, 6))
def test_hadamard_powers_come_from_the_spectrum_for_any_order(graph, rho):
    L = laplacian(graph)
    L /= max(1.0, np.abs(L).max())
    power = hadamard_power_from_spectrum(sp.csr_array(L), rho)
    np.testing.assert_allclose(power, L**rho, atol=1e-11 * max(np.abs(L).max() ** rho, 1e-300))


# -------------------------------------------------------------------------------- positive definiteness


@given(graph=graphs(), rho=st.integers(1, 5), epsilon=st.floats(0.01, 10))
def test_sobolev_terms_of_the_laplacian_are_positive_definite(graph, rho, epsilon):
    scale = max(1.0, float(graph.weight.max())) if graph.num_edges else 1.0
    graph = graph.with_weight((graph.weight / scale).clamp_min(1e-30))
    term = sparse_sobolev_term(graph, rho, epsilon)
    assert is_positive_definite(term)
    assert np.linalg.eigvalsh(term.toarray())[0] > 0


@given(graph=graphs(), rho=st.integers(1, 5), epsilon=st.floats(1.01, 10))
def test_sobolev_terms_of_the_normalized_adjacency_are_positive_definite_past_one(graph, rho, epsilon):
    term = (normalized_adjacency(graph) + epsilon * np.eye(graph.num_nodes)) ** rho
    assert is_positive_definite(term)
    assert np.linalg.eigvalsh(term)[0] > 0


@pytest.mark.parametrize("rho", [1, 3, 5])
@pytest.mark.parametrize("epsilon", [0.5, 0.99])
def test_a_single_edge_is_a_counter_example_for_smaller_epsilon(rho, epsilon):
    # A_N = [[0, 1], [1, 0]], so (1, -1) has the eigenvalue ε^ρ - 1 < 0.
    term = (normalized_adjacency(graph_of([[0, 3], [3, 0]])) + epsilon * np.eye(2)) ** rho
    assert not is_positive_definite(term)
    assert np.linalg.eigvalsh(term)[0] == pytest.approx(epsilon**rho - 1)


# ------------------------------------------------------------------------------------ condition numbers


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_condition_number_is_largest_plus_epsilon_over_epsilon_at_any_scale(graph30, epsilon, scale):
    largest = np.linalg.eigvalsh(laplacian(graph30))[-1]
    term = sparse_sobolev_term(graph30, 1, epsilon)
    assert condition_number(term * scale) == pytest.approx((largest + epsilon) / epsilon, rel=1e-8)


def test_condition_number_finds_the_smallest_magnitude_inside_an_indefinite_spectrum(graph30):
    matrix = sp.csr_array(normalized_adjacency(graph30)) + 0.2 * sp.eye_array(30)
    magnitudes = np.abs(np.linalg.eigvalsh(matrix.toarray()))
    assert condition_number(matrix) == pytest.approx(magnitudes.max() / magnitudes.min(), rel=1e-6)


def test_condition_number_of_a_singular_matrix_is_infinite(ring8):
    for matrix in (laplacian(ring8), sp.csr_array((4, 4)), np.zeros((40, 40))):
        assert condition_number(matrix) == np.inf


def test_matrices_symmetric_up_to_float32_are_symmetric():
    matrix = np.array([[1.0, 0.3], [0.3, 2.0]], np.float32)
    expected = condition_number(matrix)
    matrix[0, 1] = np.nextafter(matrix[0, 1], np.float32(1.0))
    assert condition_number(matrix) == pytest.approx(expected, rel=1e-6)
    assert is_positive_definite(matrix)
    with pytest.raises(ValueError, match="must be symmetric"):
        condition_number(matrix.astype(np.float64))


# ---------------------------------------------------------------------------------------------- Figure 1


def test_curves_of_a_ring_are_those_found_by_hand(ring8):
    curves = eigenvalue_penalization(ring8, rhos=(1, 2, 3))
    k = np.arange(8)
    first = np.sort(2 - 2 * np.cos(2 * np.pi * k / 8)) / 4
    for row, rho in enumerate(curves.rhos):
        np.testing.assert_allclose(curves.non_sparse[row], first**rho, atol=1e-12)
        # L^(ρ) has 2^ρ on its diagonal and (-1)^ρ beside it.
        hadamard = np.sort(2.0**rho + 2 * (-1) ** rho * np.cos(2 * np.pi * k / 8))
        np.testing.assert_allclose(curves.sparse[row], hadamard / hadamard[-1], atol=1e-12)


@given(graph=graphs())
def test_curves_rise_from_zero_or_more_to_one(graph):
    curves = eigenvalue_penalization(graph)
    assert curves.rhos == (1, 2, 3, 4, 5)
    for values in (curves.non_sparse, curves.sparse):
        assert values.shape == (5, graph.num_nodes)
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values, axis=1) >= 0)
        assert np.all(values >= 0)
        assert np.all(values[:, -1] == (1.0 if graph.num_edges else 0.0))


@pytest.mark.parametrize("nodes", [30, 10])  # a graph that is decomposed whole, and one whose top is found by Lanczos
def test_the_largest_eigenvalues_alone_are_the_end_of_the_whole_curve(graph30, monkeypatch, nodes):
    whole = eigenvalue_penalization(graph30, (1, 3))
    monkeypatch.setattr("sobgnn.spectrum._MOST_NODES", nodes)
    end = eigenvalue_penalization(graph30, (1, 3), n_eigenvalues=7)
    np.testing.assert_allclose(end.non_sparse, whole.non_sparse[:, -7:], rtol=1e-9)
    np.testing.assert_allclose(end.sparse, whole.sparse[:, -7:], rtol=1e-9)


# ---------------------------------------------------------------------------------------------- bad input

LARGE = Graph.from_edges(np.array([[0, 1], [1, 0]]), num_nodes=5001)


@pytest.mark.parametrize("function", [condition_number, is_positive_definite, hadamard_square_from_spectrum])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), "square matrix"),
        (np.zeros((0, 0)), "square matrix"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "must be symmetric"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "must be finite"),
        (np.array([[np.inf, 0.0], [0.0, 1.0]]), "must be finite"),
        (np.ones((2, 2, 2)), "square matrix"),
        (None, "square matrix"),
        (np.array([[1.0, 2j], [-2j, 1.0]]), "real numbers, but got complex128"),
    ],
)
def test_matrices_without_a_real_spectrum_are_refused(function, matrix, message):
    with pytest.raises((ValueError, TypeError), match=message):
        function(matrix)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: hadamard_power_from_spectrum(np.eye(2), 0), "`rho` must be an integer of at least 1, but got 0"),
        (lambda g: eigenvalue_penalization(g, (1, 2.5)), "`rho` must be an integer of at least 1"),
        (lambda g: eigenvalue_penalization(g, n_eigenvalues=6), "`n_eigenvalues` must be between 1 and 5"),
        (lambda g: eigenvalue_penalization(LARGE), "Pass n_eigenvalues"),
        (lambda g: condition_number(sp.eye_array(5001) + LARGE.to_scipy()), "at most 5000 rows, but got 5001"),
        (lambda g: is_positive_definite(sp.eye_array(5001) + 2 * LARGE.to_scipy()), "at most 5000 rows, but got 5001"),
        (lambda g: partial_permutation(10, 40), r"below 2\*\*63"),
        (lambda g: hadamard_square_from_spectrum(g), r"must be a matrix, but got a Graph.*sobolev\.matrix_of\(graph\)"),
        (lambda g: eigenvalue_penalization(np.eye(3)), r"must be a sobgnn\.Graph, but got ndarray"),
    ],
)
def test_orders_sizes_and_kinds_that_do_not_fit_are_refused_with_a_way_out(path5, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(path5)


def test_hadamard_powers_reach_to_the_end_of_float64_and_no_further():
    np.testing.assert_allclose(
        hadamard_square_from_spectrum(np.diag([1e150, 1e140])), np.diag([1e300, 1e280]), rtol=1e-12, atol=1e270
    )
    for rho in (2, 3):
        with pytest.raises(ValueError, match=f"to the power rho={rho} leave the range of float64. Rescale L"):
            hadamard_power_from_spectrum(np.diag([1e200, 1.0]), rho)
