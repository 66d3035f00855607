"""Spreading over a graph: of labels, by diffusion, and of sources, by the Poisson equation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn._system.process import give_back
from sobgnn.graphs.edges import SMALLEST_WEIGHT
from sobgnn.graphs.graph import Graph, locality_order
from sobgnn.operators import SobolevOperators
from sobgnn.propagation import propagate_into

# Diffusion ends with at most this error, relative to the solution in the 2-norm of every column. At 5 labels per class
# of digits, mnist and page-blocks it moves probabilities by 1e-4 in the mean and no prediction; 1e-2 moves predictions.
_TOLERANCE = 1e-3
# Steps of the Poisson equation, and the maximum if sources need more than that to reach the points around them.
_MOST_STEPS, _MOST_ON_LONG_WAYS = 100, 2000
# Share of a potential that is lost over an edge.
_LEAK = 1e-4
# Number of nodes from which what is spread does not fit in the cache.
_MANY_NODES = 20_000
_SORTED_ROWS = 1024
# Columns of a potential that are solved at once: those of a thousand classes would not fit in the cache.
_COLUMNS = 32
# Maximum of nodes times sets of labels times classes that are spread at once; the iteration holds several copies.
_MOST_AT_ONCE = 50_000_000


class Smoother(SobolevOperators):
    r"""The operator of :func:`diffuse`: :math:`D^{-1/2} A D^{-1/2}`, no self-loops.

    Attributes:
        order: int64 [N], if nodes have been reordered to keep neighbors close in memory: position p holds node
            ``order[p]``. On a CPU, scattered reads dominate the cost of a step, and there are many steps.
    """

    def __init__(self, graph: Graph, order: Tensor | None = None) -> None:
        if order is None and graph.num_nodes >= _MANY_NODES and graph.device.type == "cpu":
            order = torch.from_numpy(locality_order(graph))
            graph = graph.permute(order.numpy())
        self.order = order
        super().__init__(graph, alpha=1, epsilon=0.0)

    def powered(self, power: int) -> Smoother:
        """The operator of the graph's Hadamard power, with nodes in the same order."""
        # Weights are scaled by a power of two, which is exact, so that powers of the largest neither overflow nor
        # vanish.
        unit = torch.frexp(self.graph.weight.max()).exponent if self.graph.num_edges else torch.tensor(0)
        weight = torch.ldexp(self.graph.weight, -unit).pow(power).clamp(min=SMALLEST_WEIGHT)
        return Smoother(Graph(self.graph.indptr, self.graph.indices, weight), self.order)

    def to(self, device: torch.device | str) -> Smoother:
        """The same on another device, in the same order."""
        return Smoother(self.graph.to(device), None if self.order is None else self.order.to(device))

    def in_order(self, rows: Tensor) -> Tensor:
        """Rows [N, ...] of the nodes, in the operator's order."""
        return rows if self.order is None else rows[self.order]

    def of_nodes(self, rows: Tensor) -> Tensor:
        """Rows in the operator's order [N, ...], as rows of the nodes."""
        return rows if self.order is None else torch.empty_like(rows).index_copy_(0, self.order, rows)


@torch.no_grad()
def diffuse(smoother: Smoother, strength: float, index: Tensor, codes: Tensor, classes: int) -> Tensor:
    r"""Spread labels over the graph.

    .. math:: P \leftarrow (1 - a) Y + a D^{-1/2} A D^{-1/2} P, \qquad P_i = Y_i \text{ at labeled nodes}

    with a one-hot row of Y for each labeled node and zeros elsewhere, to its fixed point. There each row is divided by
    its sum; at a node that no label reaches, all classes are equally probable.

    Args:
        smoother: :class:`Smoother` of a graph of N nodes.
        strength: a, in (0, 1).
        index: Labeled nodes [L].
        codes: Their classes [L], or [B, L] with -1 for an unknown label, for B sets of labels at once.
        classes: C.

    Returns:
        [N, C], or [N, B, C].
    """
    many = codes if codes.ndim == 2 else codes.unsqueeze(0)
    if len(many) > 1 and smoother.num_nodes * len(many) * classes > _MOST_AT_ONCE:
        each = torch.empty(smoother.num_nodes, len(many), classes, dtype=torch.float32, device=index.device)
        for place, own in enumerate(many):
            each[:, place] = diffuse(smoother, strength, index, own, classes)
        return each
    start = torch.zeros(smoother.graph.num_nodes, len(many), classes, dtype=torch.float32, device=index.device)
    known = many >= 0
    part, label = known.nonzero(as_tuple=True)
    start[index[label], part, many[known]] = 1
    fixed = torch.zeros(start.shape[:2], dtype=torch.bool, device=index.device)
    fixed[index[label], part] = True
    start, fixed = smoother.in_order(start), smoother.in_order(fixed)
    fixed |= (smoother.graph.degree == 0).unsqueeze(1)
    current = _fixed_point(smoother, start, strength, fixed)
    total = current.sum(dim=-1, keepdim=True)
    tiny = torch.finfo(current.dtype).tiny
    current = current.div_(total.clamp(min=tiny)).masked_fill_(total < tiny, 1 / classes)
    out = smoother.of_nodes(current)
    if smoother.order is not None:
        del start, fixed, current
        give_back()
    return out if codes.ndim == 2 else out[:, 0]


def _fixed_point(smoother: Smoother, start: Tensor, strength: float, fixed: Tensor) -> Tensor:
    r"""The fixed point of :func:`diffuse` by Chebyshev's acceleration of its steps, from start [N, B, C].

    .. math:: P_{t+1} = (1 - w_t) P_{t-1} + w_t \, a D^{-1/2} A D^{-1/2} P_t, \qquad
        w_0 = 1, \; w_1 = \frac{1}{1 - a^2 / 2}, \; w_{t+1} = \frac{1}{1 - a^2 w_t / 4}

    and rows where ``fixed`` [N, B] is True are set to their start after each step. As all eigenvalues of the operator
    lie in [-1, 1], t steps leave an error of at most :math:`2 r^t` with :math:`r = (1 - \sqrt{1 - a^2}) / a`: 38 steps
    for 1e-3 at a = 0.98, where plain steps, :math:`a^t`, take 342. Unlike conjugate gradients, it bounds the error also
    in a part of the graph that few labels reach, where the rows are small until they are divided by their sums, and the
    number of steps does not depend on sums over all nodes, which differ between processors.
    """
    current = start.flatten(1)
    held = fixed.unsqueeze(2).expand_as(start).reshape(-1).nonzero().flatten()
    known = current.reshape(-1)[held]
    previous, moved = current.clone(), torch.empty_like(current).unsqueeze(1)
    csr = smoother.csr(current.dtype)
    schedule = chebyshev(strength)
    weight, counted = next(schedule)
    with contextlib.suppress(StopIteration):
        while True:
            # Into existing memory: the system would have to clear the memory of a large new tensor at every step.
            propagate_into(csr, current, moved)
            previous.mul_(1 - weight).add_(moved[:, 0], alpha=weight * strength).view(-1)[held] = known
            current, previous = previous, current
            weight, counted = schedule.send(int(torch.count_nonzero(current)) if counted else 0)
    return current.clamp_(min=0).view_as(start)


def chebyshev(strength: float) -> Generator[tuple[float, bool], int, None]:
    """The weights w of the steps of :func:`diffuse`, and whether the number of entries that are not 0 is to be sent.

    There are enough steps for the tolerance after the last one that reached an entry: a step takes labels one edge
    further, and an entry that was just reached is far from the solution.
    """
    rate = strength / (1 + math.sqrt(1 - strength**2))
    enough = math.ceil(math.log(_TOLERANCE / 2) / math.log(rate))
    weight, step, last, reached = 1.0, 0, enough, 0
    while step < last:
        now = yield weight, last == step + enough
        weight = 1 / (1 - strength**2 * (weight / 4 if step else 1 / 2))
        step += 1
        if last == step - 1 + enough and now > reached:
            last, reached = step + enough, now


def strongest(graph: Graph, most: int) -> Graph:
    """The graph of edges that are among the ``most`` heaviest of at least one of their ends."""
    csr = graph.to("cpu").to_scipy(copy=False)
    keep = heaviest(csr, most)
    heads = np.concatenate([[0], np.cumsum(np.minimum(np.diff(csr.indptr), most))]).astype(csr.indptr.dtype)
    part = sp.csr_array((csr.data[keep], csr.indices[keep], heads), shape=csr.shape)
    return Graph.from_scipy(part.maximum(part.T.tocsr()).tocsr())


def heaviest(csr: sp.csr_array, most: int) -> npt.NDArray[np.bool_]:
    """Which entries [E] of a matrix are among the ``most`` heaviest of their row."""
    count, indptr = csr.shape[0], csr.indptr
    keep = np.zeros(csr.nnz, dtype=bool)
    for start in range(0, count, _SORTED_ROWS):  # as many rows as can be sorted within the cache
        ends = indptr[start : start + _SORTED_ROWS + 1]
        rows, first = np.repeat(np.arange(len(ends) - 1), np.diff(ends)), ends[0]
        order = np.lexsort((-csr.data[first : ends[-1]], rows))  # row by row, the heaviest first
        keep[first + order[np.arange(len(rows)) - (ends[rows] - first) < most]] = True
    return keep


@torch.no_grad()
def poisson_potential(smoother: Smoother, index: Tensor, sources: Tensor) -> Tensor:
    r"""The potential u, [N, C], of sources [L, C] at the nodes ``index`` [L], whose columns sum to 0.

    .. math:: (D - a A) \, u = s, \qquad a = 1 - 10^{-4},

    where a < 1 gives a solution also in components whose sources do not sum to 0. It is solved as
    :math:`(I - a D^{-1/2} A D^{-1/2}) \, D^{1/2} u = D^{-1/2} s` by conjugate gradients, each column separately, in
    float64: single precision would leave differences of a thousandth between processors.
    """
    root = smoother.scale(torch.float64).prod(dim=1, keepdim=True)  # D^{-1/2}; 0 at isolated nodes
    place = index
    if smoother.order is not None:
        where = torch.empty_like(smoother.order)
        where[smoother.order] = torch.arange(len(where), device=where.device)
        place = where[index]
    out = torch.empty(smoother.num_nodes, sources.shape[1], dtype=torch.float32, device=sources.device)
    for start in range(0, sources.shape[1], _COLUMNS):
        some = slice(start, start + _COLUMNS)
        right = torch.zeros(len(out), len(out[0, some]), dtype=torch.float64, device=out.device)
        right[place] = sources[:, some] * root[place]
        out[:, some] = root * _conjugate_gradients(smoother, right)
    return smoother.of_nodes(out)


def _conjugate_gradients(smoother: Smoother, right: Tensor) -> Tensor:
    """Solve (I - a D^{-1/2} A D^{-1/2}) v = right, [N, h], with step sizes that do not depend on other columns.

    A step advances by one edge, and an entry that was just reached is far from the solution. So whenever some are
    nonzero for the first time, the iteration continues to four times the steps made so far.
    """
    csr, moved = smoother.csr(right.dtype), torch.empty_like(right).unsqueeze(1)
    v, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    size = residual.square().sum(dim=0)
    zero = torch.zeros_like(size)
    unreached, taken, last = 0, 0, _MOST_STEPS
    while taken < last:
        propagate_into(csr, direction, moved)
        image = torch.sub(direction, moved[:, 0], alpha=1 - _LEAK)
        curve = (direction * image).sum(dim=0)
        step = torch.where(curve > 0, size / curve, zero)
        v.addcmul_(direction, step)
        residual.addcmul_(image, step, value=-1)
        after = residual.square().sum(dim=0)
        direction = torch.addcmul(residual, direction, torch.where(size > 0, after / size, zero))
        size = after
        taken += 1
        if taken == _MOST_STEPS - 1 or (unreached and taken >= _MOST_STEPS):
            before, unreached = unreached, int((v == 0).sum())
            if taken >= _MOST_STEPS and unreached < before:
                last = min(_MOST_ON_LONG_WAYS, 4 * taken)
    return v
