"""Propagation and diffusion over shards: one exchange of rows a hop, and one a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.propagation import SobolevCSR, propagate_into
from sobgnn.sharded.graph import ALL, STRONG
from sobgnn.sharded.neighbors import firsts
from sobgnn.sharded.steps import Run

Array = npt.NDArray[Any]

# Rows that are propagated to at once.
ROWS = 1 << 15


def publish(run: Run, shard: int, kind: str, name: str, rows: Array) -> int:
    """Write the rows that other shards read, one after the other; returns their bytes."""
    first, wanted = firsts(run), _wanted(run, kind)
    parts = [rows[:0]]
    for other in range(run.shards):
        if other != shard:
            start = int(wanted[other, :shard].sum())
            halo = run.store.load(f"{kind}-halo-{other}", start, start + int(wanted[other, shard]))
            parts.append(rows[halo - first[shard]])
    return run.store.save(f"sent-{name}-{shard}", np.concatenate(parts))


class Inputs:
    """Rows of a pattern's columns: those of other shards before, the shard's own, and those after.

    Args:
        run: The run.
        shard: Whose columns.
        kind: Which pattern.
        name: What other shards have published.
        own: The shard's own rows.
    """

    def __init__(self, run: Run, shard: int, kind: str, name: str, own: Array) -> None:
        wanted = _wanted(run, kind)
        self.parts: list[Array] = []
        for other in range(run.shards):
            # What shard `other` wrote begins with the rows for the shards before this one.
            start = int(wanted[:shard, other].sum())
            self.parts.append(
                own
                if other == shard
                else run.store.load(f"sent-{name}-{other}", start, start + int(wanted[shard, other]))
            )
        self.ends = np.cumsum([len(part) for part in self.parts])

    def all(self) -> Tensor:
        """All rows."""
        return torch.from_numpy(np.concatenate(self.parts).astype(np.float32, copy=False))

    def take(self, columns: npt.NDArray[np.int64]) -> Tensor:
        """Rows of some columns, which ascend, in float32."""
        cuts = np.searchsorted(columns, np.concatenate([[0], self.ends]))
        starts = self.ends - [len(part) for part in self.parts]
        taken = [self.parts[0][:0]] + [
            part[columns[a:b] - start]
            for part, start, a, b in zip(self.parts, starts, cuts[:-1], cuts[1:], strict=True)
            if b > a
        ]
        return torch.from_numpy(np.concatenate(taken).astype(np.float32, copy=False))


class Pattern:
    """A shard's rows of a graph, mapped, and the scales of their columns.

    Args:
        run: The run.
        shard: Whose rows.
        kind: Which of the patterns.
    """

    def __init__(self, run: Run, shard: int, kind: str) -> None:
        name = {ALL: "scale", STRONG: "strong-scale"}[kind]
        parts = (run.store.load(f"{kind}-{shard}-{part}") for part in ("indptr", "columns", "weight"))
        self.indptr, self.columns, self.weight = parts
        self.own = np.array(run.store.load(f"{name}-{shard}"))
        self.scale = Inputs(run, shard, kind, name, self.own)

    def propagate(self, inputs: Inputs, rows: npt.NDArray[np.int64]) -> Tensor:
        """Every order at some rows, [R, α, D], of signals [C, D], or of each order's own, [C, α, D].

        Only the columns that these rows read are loaded.
        """
        lengths = np.diff(self.indptr)[rows] if len(rows) < len(self.own) else np.diff(self.indptr)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            entries: Any = slice(int(self.indptr[rows[0]]), int(self.indptr[rows[-1] + 1]))
        else:
            entries = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        columns, weight = np.array(self.columns[entries]), np.array(self.weight[entries])
        used = np.zeros(int(inputs.ends[-1]), bool)
        used[columns] = True
        place = np.cumsum(used, dtype=np.int32) - 1
        wanted = np.flatnonzero(used)
        x, scale = inputs.take(wanted), self.scale.take(wanted)
        csr = _csr(indptr, place[columns], weight, self.own[rows], scale)
        out = torch.empty(len(rows), self.own.shape[1] - 1, x.shape[-1])
        return propagate_into(csr, x, out)

    def csr(self) -> SobolevCSR:
        """All rows at once."""
        return _csr(self.indptr, self.columns, self.weight, self.own, self.scale.all())


def _csr(indptr: Array, columns: Array, weight: Array, own: Array, scale: Tensor) -> SobolevCSR:
    # The transpose serves gradients, which nobody asks for.
    nothing = torch.zeros(len(scale) + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), torch.zeros(0)
    rows = torch.from_numpy(indptr), torch.from_numpy(columns), torch.from_numpy(weight)
    return SobolevCSR(*rows, *nothing, torch.from_numpy(own), scale, 0.0)


def _wanted(run: Run, kind: str) -> npt.NDArray[np.int64]:
    """How many rows each shard reads of each other one, [S, S]."""
    return np.array([found["wanted"][kind] for found in run.found("halo")])


def share(run: Run, shard: int) -> dict[str, Any]:
    """Give other shards the points and scales that they read."""
    store = run.store
    sent = publish(run, shard, ALL, "points", store.load(f"points-{shard}"))
    sent += publish(run, shard, ALL, "scale", store.load(f"scale-{shard}"))
    return {"sent": sent + publish(run, shard, STRONG, "strong-scale", store.load(f"strong-scale-{shard}"))}


def first_hop(run: Run, shard: int) -> dict[str, Any]:
    """Every order of the points, [n, α, D], in the points' precision; the rows that other shards read of it."""
    points = run.store.load(f"points-{shard}")
    pattern, inputs = Pattern(run, shard, ALL), Inputs(run, shard, ALL, "points", points)
    out = np.empty((len(points), pattern.own.shape[1] - 1, points.shape[1]), points.dtype)
    for start in range(0, len(points), ROWS):
        rows = np.arange(start, min(start + ROWS, len(points)))
        out[rows] = pattern.propagate(inputs, rows).numpy()
    run.store.save(f"hop-{shard}", out)
    return {"sent": publish(run, shard, ALL, "hop", out)}


class Hops:
    """A shard's points after each hop: the first from its file, the second computed where it is asked for."""

    def __init__(self, run: Run, shard: int) -> None:
        self.points, self.hop = run.store.load(f"points-{shard}"), run.store.load(f"hop-{shard}")
        self._pattern, self._inputs = Pattern(run, shard, ALL), Inputs(run, shard, ALL, "hop", self.hop)

    def blocks(self, rows: npt.NDArray[np.int64]) -> Tensor:
        """The points and every order of them after each hop, [1 + 2α, R, D]."""
        x = torch.from_numpy(self.points[rows].astype(np.float32))
        orders = [torch.from_numpy(self.hop[rows].astype(np.float32)), self._pattern.propagate(self._inputs, rows)]
        return torch.cat([x.unsqueeze(0), *(order.transpose(0, 1) for order in orders)])


def one_hot(run: Run, nodes: Array, rows: Tensor, fits: slice) -> None:
    """Set rows [n, fits, C] of labeled nodes to their classes, in those of some fits that see the label.

    Args:
        run: The run.
        nodes: Numbers of the rows' nodes, ascending.
        rows: What is changed.
        fits: Which fits.
    """
    store = run.store
    labeled, codes, known = store.load("label-nodes"), store.load("label-order-codes"), store.load("label-known")[fits]
    place = np.searchsorted(nodes, labeled)
    here = np.flatnonzero(nodes[place.clip(max=len(nodes) - 1)] == labeled) if len(nodes) else np.empty(0, np.int64)
    fit, label = np.nonzero(known[:, here])
    row, number = torch.from_numpy(place[here][label]), torch.from_numpy(fit)
    rows[row, number] = 0
    rows[row, number, torch.from_numpy(codes[here][label])] = 1


def diffuse(run: Run, argument: str) -> dict[str, Any]:
    """One step of the iteration of :func:`sobgnn.estimator.spreading.diffuse`, for a shard and some fits.

    Args:
        run: The run.
        argument: The shard, first and last of the fits, the number of the step from 1, its weight, and the strength.
    """
    words = argument.split("_")
    shard, low, high, step = (int(word) for word in words[:4])
    weight, strength, fits, store = float(words[4]), float(words[5]), slice(low, high), run.store
    first, pattern, name = firsts(run), Pattern(run, shard, STRONG), f"state-{low}"
    nodes, shape = np.arange(first[shard], first[shard + 1]), (high - low, len(run.plan["classes"]))
    if step == 1:
        halo = store.load(f"{STRONG}-halo-{shard}")
        before = int(np.searchsorted(halo, first[shard]))
        x = torch.zeros(len(halo) + len(nodes), *shape)
        one_hot(run, np.concatenate([halo[:before], nodes, halo[before:]]), x, fits)
        x = x.flatten(1)
    else:
        x = Inputs(run, shard, STRONG, f"{name}-{step - 1}", store.load(f"{name}-{step - 1}-{shard}")).all()
    out = torch.empty(len(nodes), 1, x.shape[1])
    propagate_into(pattern.csr(), x, out)
    if step < 3:
        result = torch.zeros(len(nodes), *shape)
        one_hot(run, nodes, result, fits)
    else:
        result = torch.from_numpy(store.load(f"{name}-{step - 2}-{shard}")).view(-1, *shape)
    result = torch.mul(result, 1 - weight).add_(out.view_as(result), alpha=weight * strength)
    result[torch.from_numpy(np.flatnonzero(np.diff(pattern.indptr) == 0))] = 0  # no neighbor brings a label
    one_hot(run, nodes, result, fits)
    state = result.flatten(1).numpy()
    store.save(f"{name}-{step}-{shard}", state)
    return {"sent": publish(run, shard, STRONG, f"{name}-{step}", state), "reached": int(torch.count_nonzero(result))}


def keep_spread(run: Run, argument: str) -> None:
    """Probabilities that diffusion leaves: of a shard's nodes from all labels, of its chosen rows from every fit."""
    shard, low, high, step, fits = (int(word) for word in argument.split("_"))
    classes = len(run.plan["classes"])
    state = torch.from_numpy(np.array(run.store.load(f"state-{low}-{step}-{shard}"))).view(-1, high - low, classes)
    chosen = torch.from_numpy(run.store.load(f"chosen-{shard}")[:, 0])
    run.store.save(f"spread-chosen-{low}-{shard}", _normalized(state[chosen]).numpy())
    if high == fits:
        run.store.save(f"spread-{shard}", _normalized(state[:, -1]).numpy())


def _normalized(state: Tensor) -> Tensor:
    """Rows divided by their sums; where no label came, all classes are equally probable."""
    state = state.clamp(min=0)
    total, tiny = state.sum(dim=-1, keepdim=True), torch.finfo(state.dtype).tiny
    return (state / total.clamp(min=tiny)).masked_fill_(total < tiny, 1 / state.shape[-1])
