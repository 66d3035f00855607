"""Heads: the estimator's families learn from the labeled rows, and score every shard block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.blend import Blend, cross_fit, sharpen
from sobgnn.estimator.families import FAMILIES, Learned
from sobgnn.estimator.families.spreading import SpreadLabels
from sobgnn.estimator.fit import Member, blend_rule, default_families
from sobgnn.estimator.fitted import scores
from sobgnn.estimator.frequencies import class_frequencies, shift_priors
from sobgnn.estimator.labels import Labels, class_weights
from sobgnn.estimator.points import NEIGHBORS, Points
from sobgnn.estimator.validation import Networks
from sobgnn.sharded.neighbors import firsts
from sobgnn.sharded.propagate import Hops
from sobgnn.sharded.sample import read_labels_in_folds, read_state, write_state
from sobgnn.sharded.steps import Run

Array = npt.NDArray[Any]

# Families that shards can have: the others need the whole graph.
NAMES = ("sobolev", "diffusion", "linear", "gaussian", "kernel", "forests")
# Rows that are scored at once.
_ROWS = 1 << 14


@dataclass(frozen=True)
class Heads:
    """What predicts: families, their blend, the result's temperature, and factors of the class probabilities."""

    members: tuple[Member, ...]
    blend: Blend
    temperature: float
    ratio: npt.NDArray[np.float64]

    def __call__(self, view: Any, spread: Tensor) -> npt.NDArray[np.float32]:
        """Class probabilities of a view's rows [R, C]; ``spread`` are the diffused labels that it reads."""
        fitted = [
            replace(member.fitted, spread=spread) if isinstance(member.fitted, SpreadLabels) else member.fitted
            for member in self.members
        ]
        return self.finished(self.blend([one.predict(view) for one in fitted]))

    def finished(self, probabilities: Tensor) -> npt.NDArray[np.float32]:
        """Apply the temperature and the class factors to blended probabilities [R, C]."""
        sharpened = sharpen(probabilities.double(), self.temperature).numpy()
        return shift_priors(sharpened, self.ratio).astype(np.float32)


@dataclass(frozen=True)
class Block:
    """Rows of a shard, as families read them: a :class:`~sobgnn.estimator.points.View`.

    Args:
        features: The points and every order of them after each hop, [1 + 2α, R, D].
    """

    features: Tensor
    rows: None = None

    @property
    def points(self) -> Tensor:
        """The networks' input [R, D]."""
        return self.features[0]

    @property
    def columns(self) -> npt.NDArray[np.float32]:
        """What trees and kernels read: the same."""
        return self.features[0].numpy()

    @property
    def training(self) -> Points:
        """Nobody asks for all training points, which no process holds."""
        raise NotImplementedError

    def joined(self, graph: str) -> None:
        """``None``: these are training points."""

    def blocks(self, graph: str, hops: int, rows: Tensor) -> Tensor:
        """Blocks [1 + hops · α, R, D]."""
        orders = (len(self.features) - 1) // 2
        return self.features[: 1 + hops * orders, rows]

    def row_blocks(self) -> Iterator[Tensor]:
        """All rows at once."""
        yield torch.arange(len(self.points))


@dataclass(frozen=True)
class ChosenPoints(Points):
    """The chosen rows as training points, whose hops are known; N is the number of all points.

    Args:
        features: [1 + 2α, M, D].
        total: N, which decides what families do with very many points.
    """

    features: Tensor = field(default_factory=lambda: torch.empty(0))
    total: int = 0

    @property
    def count(self) -> int:
        """Number of all points."""
        return self.total

    @property
    def _values(self) -> npt.NDArray[np.int64]:
        some = self.columns[np.random.default_rng(0).permutation(len(self.columns))[:1000]]
        return np.asarray(1 + (np.diff(np.sort(some, axis=0), axis=0) > 0).sum(axis=0))

    def blocks(self, graph: str, hops: int, rows: Tensor) -> Tensor:
        """Blocks [1 + hops · α, R, D] of chosen rows."""
        return Block(self.features).blocks(graph, hops, rows)


def number_nodes(run: Run, _: int) -> None:
    """The nodes of the chosen rows, and of the labels."""
    first, store = firsts(run), run.store
    nodes = np.empty(len(store.load("chosen")), np.int64)
    for shard in range(run.shards):
        at, number = store.load(f"chosen-{shard}").T
        nodes[number] = first[shard] + at
    store.save("label-nodes", nodes[read_labels_in_folds(run).index])


def see(run: Run, shard: int) -> None:
    """The chosen rows of a shard after each hop."""
    at, hops = run.store.load(f"chosen-{shard}")[:, 0], Hops(run, shard)
    parts = [hops.blocks(at[start : start + _ROWS]) for start in range(0, len(at), _ROWS)]
    alpha, width = run.plan["settings"]["alpha"], hops.points.shape[1]
    features = torch.cat(parts, dim=1) if parts else torch.empty(1 + 2 * alpha, 0, width)
    run.store.save(f"seen-{shard}", features.transpose(0, 1).contiguous().numpy())


def learn(run: Run, _: int) -> dict[str, Any]:
    """Fit every family on the labeled rows, decide how much each counts, and how common the classes are."""
    plan, store, settings = run.plan, run.store, run.plan["settings"]
    labels, count = read_labels_in_folds(run), len(store.load("chosen"))
    shards = range(run.shards)
    number = np.concatenate([store.load(f"chosen-{shard}")[:, 1] for shard in shards])
    order = np.argsort(number)
    features = torch.from_numpy(np.concatenate([store.load(f"seen-{shard}") for shard in shards])[order])
    features = features.transpose(0, 1).contiguous()
    diffused = torch.empty(labels.folds + 1, count, 0)
    if diffuses(run):
        batches = [low for low, _high in plan_batches(run, labels)]
        parts = [np.concatenate([store.load(f"spread-chosen-{low}-{s}") for s in shards])[order] for low in batches]
        diffused = torch.from_numpy(np.concatenate(parts, axis=1)).transpose(0, 1)
    points = ChosenPoints(
        points=features[0], graphs={NEIGHBORS: None}, classes=labels.classes, networks=Networks.of(settings),  # type: ignore[dict-item]
        columns=features[0].numpy(), seed=int(np.random.default_rng([plan["seed"], 3]).integers(2**31)),
        features=features, total=int(firsts(run)[-1]),
    )  # fmt: skip
    names = [name for name in default_families(points, labels) if name in NAMES]
    if settings["families"] != "auto":
        names = list(settings["families"])
    members, learned = [], []
    for name in names:
        kind = FAMILIES[name]
        family = kind(NEIGHBORS if kind.graphs != "none" else None)
        if name == "diffusion":
            one = Learned(SpreadLabels(NEIGHBORS, torch.empty(0, labels.classes)), labels.out_of_fold(diffused))
        else:
            one = family.fit(points, labels)
        members.append(Member(name, family.graph, one.fitted))
        learned.append(one)
    own = [one.out_of_fold for one in learned]
    decide = blend_rule(points, labels, members, learned, [])
    blend, temperature = decide(own, labels)
    out_of_fold = cross_fit(own, labels, decide)
    places = [place for place, part in enumerate(blend.shares) if part]
    blend = Blend(tuple(blend.shares[p] for p in places), tuple(blend.temperatures[p] for p in places))
    heads = Heads(tuple(members[p] for p in places), blend, temperature, np.ones(labels.classes))
    heads, found = with_frequencies(
        heads, settings, heads(Block(features), diffused[-1].contiguous()), out_of_fold, labels
    )
    write_state(store, "heads", heads)
    codes = labels.codes[labels.judged]
    right = {name: part.argmax(axis=1) == codes for name, part in zip(names, own, strict=True)}
    return found | {
        "shares": dict(zip([m.name for m in heads.members], blend.shares, strict=True)), "temperature": temperature,
        "alone": {name: float(part.mean()) for name, part in right.items() if len(part)},
    }  # fmt: skip


def with_frequencies(
    heads: Heads, settings: dict[str, Any], chosen: npt.NDArray[np.float32], out_of_fold: Array, labels: Labels
) -> tuple[Heads, dict[str, Any]]:
    """The heads with factors of the classes, and the probable accuracy, as the estimator decides and estimates them."""
    names = np.arange(labels.classes)
    unlabeled = np.delete(chosen, labels.index, axis=0)
    several = len(heads.members) > 1
    frequencies = class_frequencies(settings["class_priors"], names, unlabeled, out_of_fold, labels, calibrated=several)
    ratio = frequencies.factor * class_weights(settings["class_weight"], names, labels.codes)
    heads = replace(heads, ratio=ratio / ratio.mean())
    share = np.bincount(labels.codes, minlength=labels.classes) / len(labels.codes)
    common = frequencies.assumed if labels.chosen else share
    accuracy, interval, loss = scores(shift_priors(out_of_fold, heads.ratio), labels, common)
    measured = {"accuracy": accuracy, "log_loss": loss}
    found = {name: None if np.isnan(value) else float(value) for name, value in measured.items()}
    return heads, found | {"interval": interval.tolist(), "frequencies": frequencies.assumed.tolist()}


def diffuses(run: Run) -> bool:
    """Whether one of the families is diffusion."""
    families = run.plan["settings"]["families"]
    return families == "auto" or "diffusion" in families


def plan_batches(run: Run, labels: Labels) -> list[tuple[int, int]]:
    """Fits that are diffused at once, from first to last: as many as fit in memory."""
    most = max(1, int(run.plan["spread"]) // (int(firsts(run)[-1]) * labels.classes))
    fits = labels.folds + 1
    return [(low, min(low + most, fits)) for low in range(0, fits, most)]


def score(run: Run, shard: int) -> dict[str, Any]:
    """Class probabilities of a shard's rows, in one pass; written with their ids as Parquet."""
    store, hops = run.store, Hops(run, shard)
    heads, classes = read_state(Heads, store, "heads"), len(run.plan["classes"])
    spread = store.load(f"spread-{shard}") if diffuses(run) else np.empty((len(hops.points), 0), np.float32)
    out = np.empty((len(hops.points), classes), np.float32)
    for start in range(0, len(out), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(out)))
        out[rows] = heads(Block(hops.blocks(rows)), torch.from_numpy(np.array(spread[rows])))
    first = firsts(run)
    labeled, codes = store.load("label-nodes") - first[shard], store.load("label-order-codes")
    own = (labeled >= 0) & (labeled < len(out))
    out[labeled[own]] = np.eye(classes, dtype=np.float32)[codes[own]]
    write_table(run, f"predictions/part-{shard:05}.parquet", store.load(f"ids-{shard}"), out)
    return {"rows": len(out)}


def write_table(run: Run, name: str, ids: Array, probabilities: npt.NDArray[np.float32]) -> None:
    """Write ids, labels and a column of probabilities for each class as Parquet."""
    import polars as pl

    classes = run.plan["classes"]
    labels = pl.Series("label", classes)[probabilities.argmax(axis=1)]
    identity = run.plan["source"]["identity"] or "row"
    identity = "id" if identity == "label" else identity
    columns = {f"probability_{label}": probabilities[:, code] for code, label in enumerate(classes)}
    with run.store.writing(name) as file:
        pl.DataFrame({identity: ids, "label": labels, **columns}).write_parquet(file)
