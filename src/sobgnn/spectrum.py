"""The theory, executable: Theorem 1, condition numbers, positive definiteness, eigenvalue penalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from sobgnn.graphs.convert import check_graph
from sobgnn.graphs.graph import Graph
from sobgnn.sobolev import check_order, matrix_of

Array = npt.NDArray[np.float64]

# A spectrum is computed densely, up to here: more points would take hours and tens of gigabytes.
_MOST_NODES = 5_000


def hadamard_square_from_spectrum(L: Any) -> Array:
    r"""Theorem 1: the Hadamard square of a symmetric matrix from its eigenvalue decomposition.

    .. math:: L \circ L = P_N^\top (U \otimes U)(\Lambda \otimes \Lambda)(U^\top \otimes U^\top) P_N

    Shapes: L dense or scipy sparse [N, N]; the result is dense [N, N]. For small graphs: the time is N⁴.

    Examples:
        >>> import numpy as np
        >>> from sobgnn import spectrum
        >>> L = np.array([[2.0, -1.0], [-1.0, 3.0]])
        >>> bool(np.allclose(spectrum.hadamard_square_from_spectrum(L), L * L))
        True
    """
    return hadamard_power_from_spectrum(L, 2)


def hadamard_power_from_spectrum(L: Any, rho: int) -> Array:
    r"""Theorem 1 for any ρ >= 1: :math:`L^{(\rho)}` from eigenvalue decompositions, dense [N, N].

    .. math:: L^{(\rho)} = P_N^\top (U^{\otimes\rho}) (\Lambda^{\otimes\rho}) (U^{\otimes\rho})^\top P_N

    The theorem is applied ρ - 1 times to the pair :math:`S = L^{(\rho-1)} = V \Sigma V^\top` and L:
    :math:`S \circ L = P_N^\top (V \otimes U)(\Sigma \otimes \Lambda)(V \otimes U)^\top P_N`. What :math:`P_N` selects
    from V ⊗ U are the N rows :math:`v_i \otimes u_i` (a row-wise Khatri–Rao product), and they are taken by
    columns of V, so nothing of N² × N² is formed.
    """
    check_order(rho)
    dense = _symmetric(L, "L").toarray()
    # Entries of at most 1, by a power of two that changes no digit: only the result can overflow.
    exponent = int(np.frexp(np.abs(dense).max())[1])
    eigenvalues, U = np.linalg.eigh(np.ldexp(dense, -exponent))
    power = (U * eigenvalues) @ U.T
    for _ in range(rho - 1):
        sigma, V = np.linalg.eigh(power)
        power = np.zeros_like(dense)
        for value, v in zip(sigma, V.T, strict=True):
            rows = v[:, None] * U
            power += value * ((rows * eigenvalues) @ rows.T)
        power = (power + power.T) / 2  # symmetric to the last bit, as the next decomposition expects
    with np.errstate(over="ignore"):
        power = np.ldexp(power, rho * exponent)
    if not np.isfinite(power).all():
        raise ValueError(f"Entries of L to the power rho={rho} leave the range of float64. Rescale L to at most 1.")
    return np.asarray(power)


def partial_permutation(n: int, rho: int = 2) -> sp.csr_array:
    r"""The partial permutation :math:`P_N \in \{0, 1\}^{N^\rho \times N}` of Theorem 1.

    Column i has its one at the row :math:`i (1 + N + \dots + N^{\rho-1})`, where the ρ-fold Kronecker product
    keeps the entries with all ρ indices equal to i.
    """
    check_order(rho)
    if n < 1 or n**rho >= 2**63:
        raise ValueError(f"`n` must be at least 1 and n**rho below 2**63, but got n={n}, rho={rho}.")
    rows = np.arange(n, dtype=np.int64) * sum(n**k for k in range(rho))
    return sp.csc_array((np.ones(n), rows, np.arange(n + 1)), shape=(n**rho, n)).tocsr()


def condition_number(M: Any) -> float:
    r"""The condition number :math:`\kappa(M) = \max_i |\lambda_i| / \min_i |\lambda_i|` of a symmetric matrix.

    Infinite where the smallest eigenvalue is lost in the rounding of the largest: below N · 2⁻⁵² of it. For
    L + εI it is :math:`(\lambda_{\max} + \epsilon) / \epsilon`.

    Args:
        M: Dense or scipy sparse [N, N], N at most 5 000.

    Examples:
        >>> import numpy as np
        >>> from sobgnn import spectrum
        >>> round(spectrum.condition_number(np.diag([1.0, 4.0])), 6)
        4.0
    """
    magnitudes = np.abs(_eigenvalues(_symmetric(M, "M")))
    largest, smallest = float(magnitudes.max()), float(magnitudes.min())
    return float("inf") if smallest <= len(magnitudes) * np.finfo(np.float64).eps * largest else largest / smallest


def is_positive_definite(M: Any) -> bool:
    r"""Whether :math:`x^\top M x > 0` for every x ≠ 0, of a symmetric dense or scipy sparse matrix [N, N].

    Strict diagonal dominance, which every :math:`(L + \epsilon I)^{(\rho)}` with ε > 0 has, answers in one
    pass over the entries; else the smallest eigenvalue does, for N of at most 5 000. One that rounding cannot tell
    from 0 counts as 0.

    Examples:
        >>> import numpy as np
        >>> from sobgnn import spectrum
        >>> spectrum.is_positive_definite(np.array([[1.0, 2.0], [2.0, 1.0]]))
        False
    """
    matrix = _symmetric(M, "M")
    n, eps = matrix.shape[0], np.finfo(np.float64).eps
    diagonal = matrix.diagonal()
    if np.any(diagonal <= 0):
        return False
    others = np.abs(matrix).sum(axis=1) - diagonal
    rounding = 4 * eps * (np.diff(matrix.indptr) + 1) * diagonal
    if np.all(diagonal - others > rounding):
        return True
    eigenvalues = _eigenvalues(matrix)
    return bool(eigenvalues[0] > n * eps * np.abs(eigenvalues).max())


@dataclass(frozen=True)
class EigenvaluePenalization:
    r"""The curves of Figure 1: how each power of the Laplacian weighs the frequencies of a signal.

    Attributes:
        rhos: The powers, [R].
        non_sparse: Eigenvalues of :math:`L^\rho` over their maximum, [R, n], ascending along each row.
        sparse: Eigenvalues of the Hadamard power :math:`L^{(\rho)}` over their maximum, likewise.
    """

    rhos: tuple[int, ...]
    non_sparse: Array
    sparse: Array


def eigenvalue_penalization(
    graph: Graph, rhos: Sequence[int] = (1, 2, 3, 4, 5), n_eigenvalues: int | None = None
) -> EigenvaluePenalization:
    r"""The normalized eigenvalues of :math:`L^\rho` and :math:`L^{(\rho)}`, of the combinatorial Laplacian.

    Args:
        graph: At most 5 000 nodes, unless ``n_eigenvalues`` is given.
        rhos: Powers, integers of at least 1.
        n_eigenvalues: Only the largest ones, past 5 000 nodes by Lanczos; all if left out.

    Examples:
        >>> from sobgnn import knn_graph, spectrum
        >>> curves = spectrum.eigenvalue_penalization(knn_graph([[0.0], [1.0], [3.0]], k=1), rhos=(1, 2))
        >>> curves.sparse.shape, bool((curves.sparse[:, -1] == 1).all())
        ((2, 3), True)
    """
    rhos = tuple(check_order(rho) for rho in rhos)
    n = check_graph(graph).num_nodes
    if n_eigenvalues is None and n > _MOST_NODES:
        raise ValueError(
            f"All eigenvalues are for graphs of at most {_MOST_NODES} nodes, but got {n}. Pass n_eigenvalues=100 "
            "for the largest ones."
        )
    if n_eigenvalues is not None and not 1 <= n_eigenvalues <= n:
        raise ValueError(f"`n_eigenvalues` must be between 1 and {n} nodes, but got {n_eigenvalues}.")
    L = matrix_of(graph, "laplacian")
    if L.nnz:
        L = L / L.diagonal().max()  # the curves stay as they are, and no power overflows
    first = _top_eigenvalues(L, n_eigenvalues)
    non_sparse, sparse = [], []
    for rho in rhos:
        term = L.copy()
        term.data **= rho
        non_sparse.append(_over_maximum(first) ** rho)
        sparse.append(_over_maximum(first if rho == 1 else _top_eigenvalues(term, n_eigenvalues)))
    shape = (len(rhos), len(first))
    return EigenvaluePenalization(rhos, np.reshape(non_sparse, shape), np.reshape(sparse, shape))


def _eigenvalues(matrix: sp.csr_array) -> Array:
    """All eigenvalues, ascending."""
    n = matrix.shape[0]
    if n > _MOST_NODES:
        raise ValueError(
            f"A spectrum is computed for at most {_MOST_NODES} rows, but got {n}. Take a part of the graph."
        )
    return np.asarray(np.linalg.eigvalsh(matrix.toarray()))


def _top_eigenvalues(matrix: sp.csr_array, count: int | None) -> Array:
    """The largest eigenvalues (all if ``count`` is None) of a positive semi-definite matrix, ascending."""
    n = matrix.shape[0]
    if count is None or n <= _MOST_NODES:
        values = _eigenvalues(matrix)[-(count or n) :]
    elif matrix.nnz:
        # From the same start every time.
        start = np.random.default_rng(0).standard_normal(n)
        values = np.sort(eigsh(matrix, count, which="LA", v0=start, return_eigenvectors=False))
    else:
        values = np.zeros(count)
    return np.asarray(np.maximum(values, 0.0))  # below 0 by rounding alone


def _over_maximum(values: Array) -> Array:
    top = float(values[-1]) if values.size else 0.0
    return np.asarray(values / top) if top > 0 else np.zeros_like(values)


def _symmetric(M: Any, name: str) -> sp.csr_array:
    """M as float64 CSR, checked to be square, finite and symmetric; the caller's matrix is left as it is."""
    if isinstance(M, Graph):
        raise TypeError(
            f"{name} must be a matrix, but got a Graph. Pass one of its matrices, sobolev.matrix_of(graph)."
        )
    M = M if sp.issparse(M) else np.asarray(M)
    if M.ndim != 2 or M.shape[0] != M.shape[1] or M.shape[0] == 0:
        raise ValueError(f"{name} must be a square matrix of at least one row, but got shape {M.shape}.")
    if M.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, but got {M.dtype}.")
    rounding = np.finfo(M.dtype).eps if M.dtype.kind == "f" else 0.0
    matrix = sp.csr_array(M, dtype=np.float64)
    if not np.all(np.isfinite(matrix.data)):
        raise ValueError(f"{name} must be finite, but has NaN or infinite entries.")
    gap = np.abs(matrix - matrix.T)
    if gap.nnz and gap.data.max() > max(1e-12, 4 * rounding) * np.abs(matrix.data).max():
        raise ValueError(f"{name} must be symmetric, but differs from its transpose by up to {gap.data.max():.3g}.")
    return matrix
