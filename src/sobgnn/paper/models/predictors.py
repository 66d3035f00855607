r"""Models that are given points and some labels: equations on the graph, scikit-learn's classifiers, our estimator.

With W the graph's weights, D its degrees and L = D - W, the functions u [N, C] solve

.. math::
    \text{Laplace} &: \quad u_i = e_{y_i} \text{ at labeled } i, \qquad (L u)_i = 0 \text{ elsewhere;} \\
    \text{Poisson} &: \quad L u = \sum_{i \text{ labeled}} (e_{y_i} - \bar{y}) \, \delta_i, \qquad \sum_i d_i u_i = 0 ,

with :math:`\bar{y}` the mean of the labels. With few labels Laplace learning gives nearly the same values everywhere,
with spikes at the labels; the mean-shifted form subtracts each class's mean over all points and adds its share of the
labels. Poisson learning treats labels as sources and sinks instead (Calder, Cook, Thorpe and Slepčev, ICML 2020).
PoissonMBO, from the same paper, continues from its solution: it diffuses, assigns every point to a class again, and
preserves the class sizes. These are computed in float64, on the graph's device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.graphs.graph import Graph
from sobgnn.paper.models.contract import Labels, Predictor, Setting, Source, uniform

_STEPS, _TOLERANCE = 500, 1e-5
# Components with labels of only one class have sources without sinks; a little damping lets them leak.
_DAMPING = 1e-6
# PoissonMBO's outer steps, diffusion steps in each, and number and size of the steps for the factors that preserve
# class sizes, with the bounds of these factors.
_OUTER, _INNER, _SIZING, _SIZING_STEP, _FACTORS = 20, 40, 100, 1.0, (0.5, 2.0)


def laplace(graph: Graph, y: Labels, power: float) -> Tensor:
    """Laplace learning on the graph of these powers of the weights: u [N, C]."""
    W, _, damped = _weights(graph, power)
    labels = _one_hot(y, W.device)
    rest = torch.from_numpy(y < 0).to(W.device)[:, None]
    # Points that no label reaches have no values: damping gives them 0.
    return labels + _solve(W, damped, rest * (W @ labels), rest)


def shifted_laplace(graph: Graph, y: Labels, power: float) -> Tensor:
    """Laplace learning, each class's values shifted to its share of the labels."""
    u = laplace(graph, y, power)
    return u - u.mean(dim=0) + _shares(y, u.device)


def poisson(graph: Graph, y: Labels, power: float) -> Tensor:
    """Poisson learning: u [N, C]."""
    W, degree, damped = _weights(graph, power)
    u = _solve(W, damped, _sources(y, W.device))
    centered: Tensor = u - (degree[:, None] * u).sum(dim=0) / max(float(degree.sum()), 1e-300)
    return centered


def poisson_mbo(graph: Graph, y: Labels, power: float, sizes: npt.NDArray[np.float64] | None = None) -> Tensor:
    r"""PoissonMBO, with class sizes as given [C], or each class's share of the labels: one-hot rows [N, C].

    .. math:: u \leftarrow u - \frac{1}{\max_i d_i} (L u - s) \quad \text{40 times, then} \quad
        u_i \leftarrow e_{c(i)}, \; c(i) = \arg\max_c r_c u_{ic}

    with s the sources of Poisson learning and r such that classes have their sizes; repeated 20 times.
    """
    W, degree, _ = _weights(graph, power)
    sources, u = _sources(y, W.device), poisson(graph, y, power)
    wanted = _shares(y, W.device) if sizes is None else torch.from_numpy(sizes).to(W.device)
    step = 1 / max(float(degree.max()), 1e-300)
    for _ in range(_OUTER):
        for _ in range(_INNER):
            u = u - step * (degree[:, None] * u - W @ u - sources)
        u = torch.eye(len(wanted), dtype=u.dtype, device=u.device)[_sized(u, wanted)]
    return u


def _sized(u: Tensor, sizes: Tensor) -> Tensor:
    """The class of each row's largest r_c u_c, with factors r that bring classes near their sizes, which sum to 1."""
    factors = torch.ones_like(sizes)
    classes = torch.arange(len(sizes), device=u.device)
    best, least = u.argmax(dim=1), torch.tensor(torch.inf, dtype=u.dtype, device=u.device)
    for _ in range(_SIZING):
        found = (u * factors).argmax(dim=1)
        lacking = sizes - (found[:, None] == classes).sum(dim=0) / len(u)
        missed = lacking.abs().sum()
        best, least = torch.where(missed < least, found, best), torch.minimum(missed, least)
        factors = (factors + _SIZING_STEP * lacking).clip(*_FACTORS)
    return best


def _sources(y: Labels, device: torch.device) -> Tensor:
    """The labels, centered, at labeled points, and 0 elsewhere, [N, C]."""
    source = _one_hot(y, device)
    known = torch.from_numpy(y >= 0).to(device)
    source[known] -= _shares(y, device)
    return source


def _weights(graph: Graph, power: float) -> tuple[Tensor, Tensor, Tensor]:
    """The graph's weights raised to a power, sparse [N, N], their sums [N], and these with a little damping."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
        powers = Graph(graph.indptr, graph.indices, graph.weight.double().pow(power)).to_torch()
    ones = torch.ones((graph.num_nodes, 1), dtype=powers.dtype, device=graph.device)
    degree = (powers @ ones)[:, 0]
    return powers, degree, degree * (1 + _DAMPING) + 1e-12 * max(float(degree.max()), 1e-300)


def _one_hot(y: Labels, device: torch.device) -> Tensor:
    table = np.zeros((len(y), int(y.max()) + 1))
    table[np.flatnonzero(y >= 0), y[y >= 0]] = 1.0
    return torch.from_numpy(table).to(device)


def _shares(y: Labels, device: torch.device) -> Tensor:
    """Each class's share of the labels, [C]."""
    counts = np.bincount(y[y >= 0])
    return torch.from_numpy(counts / counts.sum()).to(device)


def _solve(W: Tensor, diagonal: Tensor, right: Tensor, rows: Tensor | None = None) -> Tensor:
    """Solve (diag - W) u = right for every column, by conjugate gradients with the diagonal as preconditioner.

    If ``rows`` [N, 1] are given, u is 0 outside them, and ``right`` and the equations there are left out.
    """
    diagonal = diagonal[:, None]
    u = torch.zeros_like(right)
    residual = right.clone()
    z = residual / diagonal
    direction = z.clone()
    rho = (residual * z).sum(dim=0)
    first = rho.clone()
    zero = torch.zeros_like(rho)
    for _ in range(_STEPS):
        if bool((rho <= _TOLERANCE**2 * first).all()):
            break
        image = diagonal * direction - W @ direction
        if rows is not None:
            image = rows * image
        curve = (direction * image).sum(dim=0)
        step = torch.where(curve > 0, rho / curve, zero)
        u += step * direction
        residual -= step * image
        z = residual / diagonal
        after = (residual * z).sum(dim=0)
        direction = z + torch.where(rho > 0, after / rho, zero) * direction
        rho = after
    return u


def _features(source: Source) -> npt.NDArray[np.float32]:
    return np.asarray(source.X.cpu().numpy())


def _logistic(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    X, known = _features(source), y >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak penalty need not converge to be tried
        model = LogisticRegression(C=float(setting["C"]), max_iter=200).fit(X[known], y[known])
    return np.asarray(model.predict(X))


def _svm(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    from sklearn.svm import SVC

    X, known = _features(source), y >= 0
    scale = 1 / (X.shape[1] * float(X.var()))  # scikit-learn's gamma="scale", of all points
    model = SVC(C=float(setting["C"]), gamma=scale * float(setting["gamma"])).fit(X[known], y[known])
    return np.asarray(model.predict(X))


def _spreading(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    from sklearn.semi_supervised import LabelSpreading

    def kernel(a: Any, b: Any = None) -> Any:
        return source.graph.to_scipy().power(float(setting["power"]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # points that no label reaches give 0 / 0, and it may stop early
        model = LabelSpreading(kernel=kernel, alpha=float(setting["alpha"]), max_iter=100).fit(_features(source), y)
    return np.asarray(model.transduction_)


def _estimator(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    """With its default arguments: it builds its own graph, and nothing is searched."""
    from sobgnn.estimator.classifier import SobolevClassifier

    fitted = SobolevClassifier(random_state=seed, device=source.X.device).fit(_features(source), y)
    return np.asarray(fitted.transduction_)


_POWER = {"power": uniform(0.5, 6.0)}  # the exponent of the graph's weights


def _on_graph(values: Callable[..., Tensor], *, sizes: bool = False) -> Predictor:
    """The class of the highest value; labeled points keep theirs."""

    def predict(source: Source, y: Labels, setting: Setting, seed: int, **told: Any) -> Labels:
        u = values(source.graph, y, float(setting["power"]), **told)
        return np.where(y >= 0, y, u.argmax(dim=1).cpu().numpy())

    return Predictor(predict, _POWER, sizes)


LAPLACE, SHIFTED_LAPLACE, POISSON = _on_graph(laplace), _on_graph(shifted_laplace), _on_graph(poisson)
POISSON_MBO, POISSON_MBO_SIZES = _on_graph(poisson_mbo), _on_graph(poisson_mbo, sizes=True)
LOGISTIC = Predictor(_logistic, {"C": uniform(1e-3, 1e2, log=True)})
SVM = Predictor(_svm, {"C": uniform(1e-1, 1e3, log=True), "gamma": uniform(0.03, 3.0, log=True)})
SPREADING = Predictor(_spreading, {"alpha": uniform(0.05, 0.99), **_POWER})
ESTIMATOR = Predictor(_estimator)
