"""Sparse Sobolev terms, inner products and norms of graph signals."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.graphs.convert import check_graph
from sobgnn.graphs.graph import Graph, as_numpy
from sobgnn.operators import check_epsilon, shift_diagonal

Array = npt.NDArray[np.float64]
Operator = Literal["adjacency", "laplacian", "normalized_laplacian"]


def sparse_sobolev_term(graph: Graph, rho: int, epsilon: float, operator: Operator = "laplacian") -> sp.csr_array:
    r"""The sparse Sobolev term :math:`(M + \epsilon I)^{(\rho)}`, float64 CSR [N, N].

    The power is entrywise (Hadamard). M is :math:`A`, :math:`L = D - A` or
    :math:`\Delta = I - D^{-1/2} A D^{-1/2}` by ``operator``.

    Examples:
        >>> import torch
        >>> from sobgnn import Graph, sobolev
        >>> pair = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5, 0.5]))
        >>> sobolev.sparse_sobolev_term(pair, rho=2, epsilon=1.0).toarray().tolist()  # L + I, squared entrywise
        [[2.25, 0.25], [0.25, 2.25]]
    """
    check_order(rho)
    term = shift_diagonal(matrix_of(graph, operator), check_epsilon(epsilon))
    with np.errstate(over="raise"):
        try:
            term.data **= rho
        except FloatingPointError:
            raise ValueError(
                f"Entries to the power rho={rho} leave the range of float64. Rescale weights and epsilon to at most 1."
            ) from None
    return term


def sobolev_inner(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    graph: Graph,
    rho: float,
    epsilon: float,
    operator: Operator = "laplacian",
    kind: Literal["sparse", "dense"] = "sparse",
) -> Any:
    r"""The inner product of two graph signals that a Sobolev term defines.

    .. math:: \langle x, y \rangle_{(\rho),\epsilon} = x^\top (M + \epsilon I)^{(\rho)} y

    ``kind="dense"`` takes the matrix power :math:`(M + \epsilon I)^\rho` instead, for any real ρ, through the
    spectrum: for small graphs.

    Shapes: x, y [N] give a float; [N, h] give h values, one per column.

    Examples:
        >>> import torch
        >>> from sobgnn import Graph, sobolev
        >>> pair = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5, 0.5]))
        >>> sobolev.sobolev_inner([1.0, 0.0], [0.0, 1.0], pair, rho=2, epsilon=1.0)
        0.25
    """
    left, right = _signal(x, graph), _signal(y, graph)
    if left.shape != right.shape:
        raise ValueError(f"Both signals must have one shape, but got {left.shape} and {right.shape}.")
    product = _product(left, _form(graph, rho, epsilon, operator, kind), right)
    return float(product) if product.ndim == 0 else product


def sobolev_norm(
    x: npt.ArrayLike,
    graph: Graph,
    rho: float,
    epsilon: float,
    operator: Operator = "laplacian",
    kind: Literal["sparse", "dense"] = "sparse",
) -> Any:
    r"""The norm :math:`\lVert x \rVert = \langle x, x \rangle^{1/2}` of :func:`sobolev_inner`.

    A norm for ε > 0 with either Laplacian, a semi-norm for ε = 0. The adjacency's quadratic form can be
    negative: where it is, there is no norm, and this raises.

    Examples:
        >>> import torch
        >>> from sobgnn import Graph, sobolev
        >>> pair = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5, 0.5]))
        >>> sobolev.sobolev_norm([1.0, 0.0], pair, rho=2, epsilon=1.0)
        1.5
    """
    signal = _signal(x, graph)
    # Signals of about 1, by a power of two that changes no digit: squares neither vanish nor overflow.
    unit = np.ldexp(1.0, np.frexp(np.abs(signal).max(axis=0, initial=0.0))[1] - 1)
    signal = signal / unit
    form = _form(graph, rho, epsilon, operator, kind)
    square = _product(signal, form, signal)
    # What rounding alone could have produced is zero; anything lower is a form that is not a norm. No eigenvalue is
    # larger than the largest row sum of absolute values.
    with np.errstate(over="ignore"):
        slack = 1e-12 * np.square(signal).sum(axis=0) * np.abs(form).sum(axis=1).max(initial=0.0)
    if np.any(square < -slack):
        raise ValueError(
            f"x has a negative squared length ({square.min():.3g}) under {operator!r} with epsilon={epsilon}: the "
            "form is not positive. Raise epsilon or use a Laplacian."
        )
    with np.errstate(over="ignore"):
        norm = np.sqrt(np.maximum(square, 0.0)) * unit
    return float(norm) if norm.ndim == 0 else norm


def matrix_of(graph: Graph, operator: Operator = "laplacian") -> sp.csr_array:
    r"""A, :math:`L = D - A` or :math:`\Delta = I - D^{-1/2} A D^{-1/2}`, float64 CSR [N, N].

    Δ has zero rows at isolated nodes.

    Examples:
        >>> import torch
        >>> from sobgnn import Graph, sobolev
        >>> pair = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5, 0.5]))
        >>> sobolev.matrix_of(pair, "laplacian").toarray().tolist()
        [[0.5, -0.5], [-0.5, 0.5]]
    """
    A = check_graph(graph).to_scipy(copy=False).astype(np.float64)
    if operator == "adjacency":
        return A
    degree = A.sum(axis=1)
    if operator == "laplacian":
        return (sp.diags_array(degree) - A).tocsr()
    if operator == "normalized_laplacian":
        with np.errstate(divide="ignore"):
            inverse = np.where(degree > 0, 1 / np.sqrt(degree), 0.0)
        scaled = sp.diags_array(inverse) @ A @ sp.diags_array(inverse)
        return (sp.diags_array((degree > 0).astype(np.float64)) - scaled).tocsr()
    raise ValueError(f'`operator` must be "adjacency", "laplacian" or "normalized_laplacian", but got {operator!r}.')


def check_order(rho: int) -> int:
    """Return ``rho`` if it is an integer of at least 1, else raise."""
    if isinstance(rho, bool) or not isinstance(rho, (int, np.integer)) or rho < 1:
        raise ValueError(f"`rho` must be an integer of at least 1, but got {rho!r}.")
    return int(rho)


def _signal(x: npt.ArrayLike, graph: Graph) -> Array:
    values = as_numpy(x, "x")
    if values.dtype.kind not in "fiub":
        raise TypeError(f"A graph signal must hold real numbers, but got {values.dtype}.")
    if values.ndim not in (1, 2) or values.shape[0] != check_graph(graph).num_nodes:
        raise ValueError(
            f"A graph signal must have shape [N] or [N, h], but got {list(values.shape)} for {graph.num_nodes} nodes."
        )
    return values.astype(np.float64, copy=False)


def _product(x: Array, form: Any, y: Array) -> Array:
    """x^T form y, for each column."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.asarray((x * (form @ y)).sum(axis=0))
    if not np.isfinite(product).all() and np.isfinite(x).all() and np.isfinite(y).all():
        raise ValueError("The product leaves the range of float64. Rescale signals, weights and epsilon.")
    return product


def _form(graph: Graph, rho: float, epsilon: float, operator: Operator, kind: str) -> Any:
    """(M + εI)^(ρ), sparse; or (M + εI)^ρ through M's spectrum, dense [N, N]: to look at, not a way to compute."""
    if not isinstance(rho, (int, float, np.integer, np.floating)) or not np.isfinite(rho):
        raise ValueError(f"`rho` must be a finite number, but got {rho!r}.")
    if kind == "sparse":
        if rho != int(rho):
            raise ValueError(f"`rho` must be an integer for the sparse kind, but got {rho}.")
        return sparse_sobolev_term(graph, int(rho), epsilon, operator)
    if kind != "dense":
        raise ValueError(f'`kind` must be "sparse" or "dense", but got {kind!r}.')
    limit = 5_000
    if graph.num_nodes > limit:
        raise ValueError(
            f'kind="dense" is for graphs of at most {limit} nodes, but got {graph.num_nodes}. Use kind="sparse".'
        )
    eigenvalues, U = np.linalg.eigh(matrix_of(graph, operator).toarray())
    shifted = eigenvalues + check_epsilon(epsilon)
    if rho != int(rho) or rho < 0:
        # Smaller magnitudes are rounding, whose power of a small rho would be large.
        floor = 4 * len(shifted) * np.finfo(np.float64).eps * float(np.abs(shifted).max(initial=0.0))
        if shifted.min() < -floor or (rho < 0 and shifted.min() <= floor):
            raise ValueError(f"M + epsilon I is not positive definite, so its power rho={rho} is not real or finite.")
        shifted = np.where(shifted <= floor, 0.0, shifted)
    with np.errstate(over="ignore", invalid="ignore"):
        return (U * shifted**rho) @ U.T
