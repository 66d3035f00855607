r"""Learning by differential equations on the graph: Laplace learning, its mean-shifted form, Poisson learning, its MBO.

With W the weights, D its degrees and L = D - W, the functions u [N, C] solve

.. math::
    \text{Laplace} &: \quad u_i = e_{y_i} \text{ at labeled } i, \qquad (L u)_i = 0 \text{ elsewhere;} \\
    \text{Poisson} &: \quad L u = \sum_{i \text{ labeled}} (e_{y_i} - \bar{y}) \, \delta_i, \qquad \sum_i d_i u_i = 0 ,

with :math:`\bar{y}` the mean of the labels. With few labels Laplace learning gives nearly the same values everywhere,
with spikes at the labels; the mean-shifted form subtracts each class's mean over all points and adds its share of the
labels. Poisson learning treats labels as sources and sinks instead (Calder, Cook, Thorpe and Slepčev, ICML 2020).
PoissonMBO, of the same paper, goes on from its solution: it diffuses, makes every point one of a class again, and keeps
the classes' sizes while it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.baselines.space import Setting
from sobgnn.graphs.graph import Graph

Array = npt.NDArray[np.float64]

_STEPS, _TOLERANCE = 500, 1e-5
# Parts of the graph that hold labels of one class alone have sources without sinks; a little damping lets them leak.
_DAMPING = 1e-6
# PoissonMBO's outer steps, diffusion steps in each, and at most so many steps, of so large a size, for the factors that
# keep the sizes, within bounds.
_OUTER, _INNER, _SIZING, _SIZING_STEP, _FACTORS = 20, 40, 100, 1.0, (0.5, 2.0)


def laplace(X: npt.NDArray[Any], graph: Graph, y: npt.NDArray[Any], setting: Setting) -> npt.NDArray[Any]:
    """Labels for all points by Laplace learning."""
    return _decide(_harmonic(graph, y, float(setting["power"])), y)


def shifted_laplace(X: npt.NDArray[Any], graph: Graph, y: npt.NDArray[Any], setting: Setting) -> npt.NDArray[Any]:
    """Labels for all points by Laplace learning, each class's values shifted to the mean that its labels have."""
    u = _harmonic(graph, y, float(setting["power"]))
    return _decide(u - u.mean(axis=0) + _one_hot(y)[y >= 0].mean(axis=0), y)


def poisson(X: npt.NDArray[Any], graph: Graph, y: npt.NDArray[Any], setting: Setting) -> npt.NDArray[Any]:
    """Labels for all points by Poisson learning."""
    return _decide(_potential(graph, y, float(setting["power"])), y)


def poisson_mbo(
    X: npt.NDArray[Any], graph: Graph, y: npt.NDArray[Any], setting: Setting, sizes: Array | None = None
) -> npt.NDArray[Any]:
    r"""Labels for all points by PoissonMBO, classes of the given sizes [C], or as large as their share of the labels.

    .. math:: u \leftarrow u - \frac{1}{\max_i d_i} (L u - s) \quad \text{40 times, then} \quad
        u_i \leftarrow e_{c(i)}, \; c(i) = \arg\max_c r_c u_{ic}

    with s the sources of Poisson learning and r such that classes have their sizes; 20 times.
    """
    power = float(setting["power"])
    W, degree = _weights(graph, power)
    source = _sources(y)
    u = _potential(graph, y, power)
    sizes = _one_hot(y)[y >= 0].mean(axis=0) if sizes is None else sizes
    step = 1 / max(float(degree.max(initial=0.0)), 1e-300)
    for _ in range(_OUTER):
        for _ in range(_INNER):
            u = u - step * (degree[:, None] * u - W @ u - source)
        u = np.eye(len(sizes))[_sized(u, sizes)]
    return _decide(u, y)


def _sized(u: Array, sizes: Array) -> npt.NDArray[np.int64]:
    """The class of each row's largest r_c u_c, the factors r bringing classes near their sizes, which sum to 1."""
    factors = np.ones(len(sizes))
    best, least = u.argmax(axis=1), np.inf
    for _ in range(_SIZING):
        found = (u * factors).argmax(axis=1)
        lacking = sizes - np.bincount(found, minlength=len(sizes)) / len(u)
        if np.abs(lacking).sum() < least:
            best, least = found, float(np.abs(lacking).sum())
        factors = (factors + _SIZING_STEP * lacking).clip(*_FACTORS)
    return np.asarray(best)


def _sources(y: npt.NDArray[Any]) -> Array:
    """The labels, centered, at labeled points, and 0 elsewhere, [N, C]."""
    known = y >= 0
    source = _one_hot(y)
    source[known] -= source[known].mean(axis=0)
    return source


def _potential(graph: Graph, y: npt.NDArray[Any], power: float) -> Array:
    W, degree = _weights(graph, power)
    u = _solve(W, degree * (1 + _DAMPING) + _tiny(degree), _sources(y))
    centered: Array = u - (degree[:, None] * u).sum(axis=0) / max(degree.sum(), 1e-300)
    return centered


def _harmonic(graph: Graph, y: npt.NDArray[Any], power: float) -> Array:
    W, degree = _weights(graph, power)
    known = y >= 0
    u = _one_hot(y)
    rest = ~known
    right = W[rest][:, known] @ u[known]
    # Points that no label reaches have no values of their own: damping gives them 0.
    u[rest] = _solve(W[rest][:, rest], degree[rest] * (1 + _DAMPING) + _tiny(degree), right)
    return u


def _weights(graph: Graph, power: float) -> tuple[sp.csr_array, Array]:
    """The graph's weights raised to a power, and their sums."""
    W = graph.to_scipy().astype(np.float64).power(power)
    return W, np.asarray(W.sum(axis=1)).ravel()


def _tiny(degree: Array) -> float:
    return 1e-12 * max(float(degree.max(initial=0.0)), 1e-300)


def _one_hot(y: npt.NDArray[Any]) -> Array:
    table = np.zeros((len(y), int(y.max()) + 1))
    table[np.flatnonzero(y >= 0), y[y >= 0]] = 1.0
    return table


def _decide(u: Array, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The class of the highest value; labeled points keep theirs."""
    labels: npt.NDArray[Any] = np.where(y >= 0, y, u.argmax(axis=1))
    return labels


def _solve(W: sp.csr_array, diagonal: Array, right: Array) -> Array:
    """(diag - W) u = right for every column, by conjugate gradients with the diagonal as preconditioner."""
    u = np.zeros_like(right)
    residual = right.copy()
    z = residual / diagonal[:, None]
    direction = z.copy()
    rho = (residual * z).sum(axis=0)
    first = rho.copy()
    for _ in range(_STEPS):
        if (rho <= _TOLERANCE**2 * first).all():
            break
        image = diagonal[:, None] * direction - W @ direction
        curve = (direction * image).sum(axis=0)
        step = np.divide(rho, curve, out=np.zeros_like(rho), where=curve > 0)
        u += step * direction
        residual -= step * image
        z = residual / diagonal[:, None]
        after = (residual * z).sum(axis=0)
        direction = z + np.divide(after, rho, out=np.zeros_like(rho), where=rho > 0) * direction
        rho = after
    return u
