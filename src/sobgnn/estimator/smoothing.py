"""Smoothing of probabilities over a graph with known labels fixed, and its choice for each family."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.blend import fit_temperature, sharpen
from sobgnn.estimator.labels import Labels
from sobgnn.graphs.adjacency import SMALLEST_WEIGHT
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.locality import locality_order
from sobgnn.operators import SobolevOperators
from sobgnn.propagation import backends
from sobgnn.runtime.process import give_back

# The iteration ends when the remaining share of its start is below this, or after this many steps.
_REST, _MOST_STEPS = 1e-3, 100
# Maximum number of steps if labels need more than that to reach the points around them.
_MOST_ON_LONG_WAYS = 2000
# Share of a potential that is lost over an edge.
_LEAK = 1e-4
# Number of nodes from which a signal does not fit in the cache.
_MANY_NODES = 20_000
# Strengths that are tried for smoothing a family's probabilities, and the one that is used if nothing is held out.
STRENGTHS = (0.0, 0.6)
USUAL_STRENGTH = 0.6
_SORTED_ROWS = 1024


class Spread(SobolevOperators):
    r"""The operator of :func:`smooth`: :math:`D^{-1/2} A D^{-1/2}`, no self-loops.

    Attributes:
        order: int64 [N], if nodes have been reordered to keep neighbors close in memory: position p holds node
            ``order[p]``. On a CPU, scattered reads dominate the cost of a step, and there are many steps.
    """

    def __init__(self, graph: Graph) -> None:
        self.order: Tensor | None = None
        if graph.num_nodes >= _MANY_NODES and graph.device.type == "cpu":
            order = locality_order(graph)
            graph, self.order = graph.permute(order), torch.from_numpy(order)
        super().__init__(graph, alpha=1, epsilon=0.0)

    def powered(self, power: int) -> Spread:
        """The operator of the graph's Hadamard power, with nodes in the same order."""
        # Weights are scaled by a power of two, which is exact, so that powers of the largest neither overflow nor
        # vanish.
        unit = torch.frexp(self.graph.weight.max()).exponent if self.graph.num_edges else torch.tensor(0)
        weight = torch.ldexp(self.graph.weight, -unit).pow(power).clamp(min=SMALLEST_WEIGHT)
        other = object.__new__(Spread)
        other.order = self.order
        SobolevOperators.__init__(other, Graph(self.graph.indptr, self.graph.indices, weight), alpha=1, epsilon=0.0)
        return other

    def to(self, device: torch.device | str) -> Spread:
        """The same on another device, in the same order."""
        moved = object.__new__(Spread)
        moved.__dict__.update(super().to(device).__dict__)
        moved.order = None if self.order is None else self.order.to(device)
        return moved


@torch.no_grad()
def smooth(
    spread: Spread, start: Tensor, strength: float, fixed: Tensor | None = None, *, from_labels: bool = False
) -> Tensor:
    r"""Move probabilities toward those of the neighbors.

    .. math:: P \leftarrow (1 - a) P_0 + a D^{-1/2} A D^{-1/2} P, \qquad P_i = P_{0,i} \text{ at fixed nodes}.

    At the end each row is divided by its sum; a row of zeros becomes uniform. An isolated node keeps its probabilities.

    Args:
        spread: :class:`Spread` of a graph of N nodes.
        start: P_0, [N, C], or [N, B, C] for B signals at once.
        strength: a, in [0, 1).
        fixed: bool [N], or [N, B].
        from_labels: Whether all other rows are zeros; the iteration then continues until labels have reached them.
    """
    if strength == 0:
        return start
    if spread.order is not None:
        start, fixed = start[spread.order], None if fixed is None else fixed[spread.order]
    alone = spread.graph.degree == 0
    fixed = alone if fixed is None else fixed | (alone if fixed.ndim == 1 else alone.unsqueeze(1))
    fixed = fixed.reshape(*fixed.shape, *[1] * (start.ndim - fixed.ndim))
    current = _iterate(spread, start, strength, fixed, from_labels)
    current = _even_where_zero(current)
    if spread.order is None:
        return current
    out = torch.empty_like(current).index_copy_(0, spread.order, current)
    del start, fixed, current
    give_back()
    return out


def _iterate(spread: Spread, start: Tensor, strength: float, fixed: Tensor, from_labels: bool) -> Tensor:
    """Iterate from start [N, ...]; entries where ``fixed`` [N, ...], broadcast, is True are reset in each step."""
    flat = start.flatten(1)
    held = fixed.expand_as(start).reshape(-1).nonzero().flatten()
    known, base = flat.reshape(-1)[held], flat * (1 - strength)
    current, buffer, moved = flat, torch.empty_like(flat), torch.empty_like(flat).unsqueeze(1)
    stencil = spread.stencil(flat.dtype)
    least = min(_MOST_STEPS, math.ceil(math.log(_REST) / math.log(strength)))
    for _ in _steps(least, buffer) if from_labels else range(least):
        # Into existing memory: the system would have to clear the memory of a large new tensor at every step.
        backends.run(stencil, current, moved)
        # One pass over memory; few entries are fixed.
        current = torch.add(base, moved[:, 0], alpha=strength, out=buffer)
        current.view(-1)[held] = known
    return current.view_as(start)


def _steps(least: int, result: Tensor) -> Iterator[int]:
    """Steps of an iteration from zeros that advances by one edge per step: ``least``, or more for longer paths.

    Whenever an entry of the result, which every step fills, is nonzero for the first time, the iteration continues to
    four times the steps made so far: an entry that was just reached is far from the solution.
    """
    unreached, last, step = 0, least, 0
    while step < last:
        yield step
        step += 1
        if step >= least - 1 and (unreached or step < least):
            before, unreached = unreached, int((result == 0).sum())
            if step >= least and unreached < before:
                last = min(_MOST_ON_LONG_WAYS, 4 * step)


def _even_where_zero(signal: Tensor) -> Tensor:
    """Divide rows by their sum, in place; rows of zeros become uniform."""
    total = signal.sum(dim=-1, keepdim=True)
    tiny = torch.finfo(signal.dtype).tiny
    return signal.div_(total.clamp(min=tiny)).masked_fill_(total < tiny, 1 / signal.shape[-1])


def strongest(graph: Graph, most: int) -> Graph:
    """The graph of edges that are among the ``most`` heaviest of at least one of their ends."""
    csr = graph.to("cpu").to_scipy(copy=False)
    count, indptr = csr.shape[0], csr.indptr
    keep = np.zeros(csr.nnz, dtype=bool)
    for start in range(0, count, _SORTED_ROWS):  # as many rows as can be sorted within the cache
        ends = indptr[start : start + _SORTED_ROWS + 1]
        rows, first = np.repeat(np.arange(len(ends) - 1), np.diff(ends)), ends[0]
        order = np.lexsort((-csr.data[first : ends[-1]], rows))  # row by row, the heaviest first
        keep[first + order[np.arange(len(rows)) - (ends[rows] - first) < most]] = True
    heads = np.concatenate([[0], np.cumsum(np.minimum(np.diff(indptr), most))]).astype(indptr.dtype)
    part = sp.csr_array((csr.data[keep], csr.indices[keep], heads), shape=csr.shape)
    return Graph.from_scipy(part.maximum(part.T.tocsr()).tocsr())


@torch.no_grad()
def diffuse(spread: Spread, strength: float, index: Tensor, codes: Tensor, classes: int) -> Tensor:
    r"""Spread only the labels over the graph: :func:`smooth` from zeros at all nodes without a label.

    At a node that no label reaches, all classes are equally probable.

    Args:
        spread: :class:`Spread` of a graph of N nodes.
        strength: a, in (0, 1).
        index: Labeled nodes [L].
        codes: Their classes [L], or [B, L] with -1 for an unknown label, for B signals at once.
        classes: C.

    Returns:
        [N, C], or [N, B, C].
    """
    many = codes if codes.ndim == 2 else codes.unsqueeze(0)
    start = torch.zeros(spread.graph.num_nodes, len(many), classes, dtype=torch.float32, device=index.device)
    known = many >= 0
    signal, label = known.nonzero(as_tuple=True)
    start[index[label], signal, many[known]] = 1
    fixed = torch.zeros(start.shape[:2], dtype=torch.bool, device=index.device)
    fixed[index[label], signal] = True
    out = smooth(spread, start, strength, fixed, from_labels=True)
    return out if codes.ndim == 2 else out[:, 0]


@torch.no_grad()
def poisson_potential(spread: Spread, index: Tensor, sources: Tensor) -> Tensor:
    r"""The potential u, [N, C], of sources [L, C] at the nodes ``index`` [L], whose columns sum to 0.

    .. math:: (D - a A) \, u = s, \qquad a = 1 - 10^{-4},

    where a < 1 gives a solution also in components whose sources do not sum to 0. It is solved as
    :math:`(I - a D^{-1/2} A D^{-1/2}) \, D^{1/2} u = D^{-1/2} s` by conjugate gradients, each column separately, in
    float64: single precision would leave differences of a thousandth between processors.
    """
    root = spread.scale(torch.float64).prod(dim=1, keepdim=True)  # D^{-1/2}; 0 at isolated nodes
    place = index
    if spread.order is not None:
        where = torch.empty_like(spread.order)
        where[spread.order] = torch.arange(len(where), device=where.device)
        place = where[index]
    right = torch.zeros(spread.num_nodes, sources.shape[1], dtype=torch.float64, device=sources.device)
    right[place] = sources * root[place]
    u = (root * _conjugate_gradients(spread, right)).float()
    return u if spread.order is None else torch.empty_like(u).index_copy_(0, spread.order, u)


def _conjugate_gradients(spread: Spread, right: Tensor) -> Tensor:
    """Solve (I - a D^{-1/2} A D^{-1/2}) v = right, [N, h], with step sizes that do not depend on other columns."""
    stencil, moved = spread.stencil(right.dtype), torch.empty_like(right).unsqueeze(1)
    v, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    size = residual.square().sum(dim=0)
    zero = torch.zeros_like(size)
    for _ in _steps(_MOST_STEPS, v):
        backends.run(stencil, direction, moved)
        image = torch.sub(direction, moved[:, 0], alpha=1 - _LEAK)
        curve = (direction * image).sum(dim=0)
        step = torch.where(curve > 0, size / curve, zero)
        v.addcmul_(direction, step)
        residual.addcmul_(image, step, value=-1)
        after = residual.square().sum(dim=0)
        direction = torch.addcmul(residual, direction, torch.where(size > 0, after / size, zero))
        size = after
    return v


def with_labels(probabilities: Tensor, index: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities [N, C] with those of labeled nodes replaced by their label, and a mask of these nodes [N]."""
    start = probabilities.clone()
    start[index] = 0
    start[index, codes] = 1
    fixed = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    fixed[index] = True
    return start, fixed


class Smoothing(NamedTuple):
    """How a family's probabilities are smoothed.

    Attributes:
        view: The name of the graph.
        strength: a, in [0, 1); 0 leaves them as they are.
    """

    view: str
    strength: float


def smoothed(spread: Spread, probabilities: Tensor, labels: Labels, strength: float) -> Tensor:
    """Every signal's probabilities [folds + 1, N, C], smoothed with the labels that it sees held fixed."""
    if strength == 0:
        return probabilities
    index, codes = labels.tensors(probabilities.device)
    known = torch.from_numpy(labels.known()).to(probabilities.device)
    pairs = [with_labels(own, index[seen], codes[seen]) for own, seen in zip(probabilities, known, strict=True)]
    start, fixed = (torch.stack(part, dim=1) for part in zip(*pairs, strict=True))
    return smooth(spread, start, strength, fixed).transpose(0, 1)


def best_smoothing(
    spread: Spread, probabilities: Tensor, labels: Labels, strengths: Sequence[float] = STRENGTHS
) -> tuple[float, Tensor]:
    """The strength of smoothing with the least out-of-fold squared error, and the probabilities smoothed by it.

    Each candidate is evaluated at its own best temperature, since smoothing flattens probabilities. If nothing is held
    out, the usual strength is used.

    Args:
        spread: The operator to smooth with.
        probabilities: A family's probabilities, [folds + 1, N, C].
        labels: Which labels each signal sees.
        strengths: Values of a.
    """
    if not labels.folds:
        strength = strengths[0] if len(strengths) == 1 else USUAL_STRENGTH
        return strength, smoothed(spread, probabilities, labels, strength)
    best: tuple[float, float, Tensor] | None = None
    for strength in strengths:
        result = smoothed(spread, probabilities, labels, strength)
        error = squared_error(labels.out_of_fold(result), labels)
        if best is None or error < best[0]:
            best = error, strength, result
    assert best is not None  # there is always a strength
    return best[1:]


def squared_error(probabilities: npt.NDArray[np.float64], labels: Labels) -> float:
    """The summed squared error of out-of-fold probabilities [J, C] at their best temperature."""
    codes, weight = labels.codes[labels.judged], labels.weight[labels.judged]
    tempered = sharpen(torch.from_numpy(probabilities), fit_temperature(probabilities, codes, weight)).numpy()
    errors = np.square(tempered - np.eye(labels.classes)[codes]).sum(axis=1)
    return float(weight @ errors)
