"""The fit itself: every family learns and gets its share; together they predict every point. And warm refits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.blend import PRIOR_COUNTS, Blend, cross_fit, fit_blend, result_temperature
from sobgnn.estimator.families import AUTO, FAMILIES, FITTED, Family, FittedFamily, Learned
from sobgnn.estimator.families.foreign import ForeignClassifier
from sobgnn.estimator.frequencies import Frequencies
from sobgnn.estimator.labels import UNLABELED, Labels
from sobgnn.estimator.placed import Placed
from sobgnn.estimator.points import GIVEN, NEIGHBORS, Points
from sobgnn.estimator.state import one_of
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.summary import assortativity

# Prior weight of each family, if labels are held out and if none can be; and the same for tables whose columns are
# mostly categories.
PRIOR = {
    "sobolev": 2.0, "diffusion": 2.0, "poisson": 2.0, "linear": 2.0, "logistic": 1.0, "gaussian": 3.0, "kernel": 1.0,
    "forests": 5.0,
}  # fmt: skip
FEW_LABELS_PRIOR = {"sobolev": 1.0, "diffusion": 6.0, "poisson": 12.0, "linear": 1.0, "forests": 4.0}
TABLE_PRIOR = {**PRIOR, "sobolev": 1.0, "diffusion": 0.5, "gaussian": 1.0, "forests": 8.0}
FEW_LABELS_TABLE_PRIOR = {**FEW_LABELS_PRIOR, "diffusion": 3.0, "forests": 12.0}
# How much the prior of families on a given graph grows, in labels, with the assortativity of its edges.
GIVEN_TRUST = {"pagerank": 40.0, "sobolev": 20.0}
# Share of the labels that may change before the blend is decided again.
_MOST_CHANGED = 0.2


@dataclass(frozen=True)
class FitProgress:
    """Progress of a fit.

    Args:
        stage: What is being done: ``"neighbors"``, a family's name, ``"blending"``, ``"trials"``.
        done: Steps of the stage that are done.
        total: Maximum number of steps of the stage.
        train_loss: Mean over the members, while networks train.
        validation_loss: Loss on the labels that they hold out, if any.
        validation_accuracy: Accuracy, likewise.
    """

    stage: str
    done: int
    total: int
    train_loss: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None


Hook = Callable[[FitProgress], "bool | None"]


@dataclass(frozen=True)
class Member:
    """One family in a fitted estimator.

    Attributes:
        name: The family's name.
        graph: The graph that it learns on; ``None`` for a family without one.
        fitted: What it learned.
    """

    name: str
    graph: str | None
    fitted: FittedFamily = field(metadata=one_of(*FITTED))

    @property
    def title(self) -> str:
        """The family's name, with the graph's if it learns on a given graph."""
        return self.name if self.graph in (None, NEIGHBORS) else f"{self.name} ({self.graph})"


@dataclass(frozen=True)
class Fit:
    """The outcome of :func:`fit_families`.

    Attributes:
        members: Families with a share, in the order of the blend.
        blend: Their shares and temperatures.
        temperature: Divides the logits of the result.
        distributions: Probabilities of every point before the temperature, [N, C].
        out_of_fold: Out-of-fold probabilities of the evaluated labels after the temperature, [J, C]: those of a fold
            are blended as the labels of the others decide.
        alone: Each family's own out-of-fold accuracy, by title, including families without a share.
    """

    members: tuple[Member, ...]
    blend: Blend
    temperature: float
    distributions: Tensor
    out_of_fold: npt.NDArray[np.float64]
    alone: dict[str, float]


def default_families(points: Points, labels: Labels) -> list[str]:
    """The families that "auto" means; those for given graphs are skipped where there is none."""
    return [family.name for family in AUTO if family.worth_it is None or family.worth_it(points, labels)]


def chosen_families(option: Any, points: Points, labels: Labels) -> list[Family]:
    """The families that ``families=`` chooses, one for each graph that they learn on.

    Args:
        option: ``"auto"``, or a list of it, names, and pairs of a name and a classifier.
        points: Points and graphs.
        labels: The labels.
    """
    chosen: dict[str, list[Family]] = {}
    for entry in [option] if isinstance(option, str) else option:
        if isinstance(entry, tuple):
            chosen[entry[0]] = [ForeignClassifier(*entry)]
            continue
        for name in default_families(points, labels) if entry == "auto" else [entry]:
            kind = FAMILIES[name]
            graphs = [graph for graph in points.graphs if graph == GIVEN or kind.graphs == "any"]
            chosen[name] = [kind(graph) for graph in (graphs if kind.graphs != "none" else [None])]
    families = [family for several in chosen.values() for family in several]
    if not families:
        raise ValueError(f"`families` {list(option)} need a given graph. Pass graph=, or name other families.")
    return families


def fit_families(points: Points, labels: Labels, families: Sequence[Family]) -> Fit:
    """Fit every family, decide how much each counts, and predict every point."""
    learned = [family.fit(points, labels) for family in families]
    members = [Member(f.name, f.graph, part.fitted) for f, part in zip(families, learned, strict=True)]
    points.report("blending", 1, 1)
    whole = [member.fitted.predict(points) for member in members]
    own, codes = [part.out_of_fold for part in learned], labels.codes[labels.judged]
    decide = blend_rule(points, labels, members, learned, whole)
    blend, temperature = decide(own, labels)
    right = [float((part.argmax(axis=1) == codes).mean()) if len(codes) else float("nan") for part in own]
    # A family without a share would only slow down predictions of new points.
    places = [place for place, share in enumerate(blend.shares) if share]
    kept = Blend(tuple(blend.shares[p] for p in places), tuple(blend.temperatures[p] for p in places))
    return Fit(
        members=tuple(members[place] for place in places),
        blend=kept,
        temperature=temperature,
        distributions=kept([whole[place] for place in places]),
        out_of_fold=cross_fit(own, labels, decide),
        alone=dict(zip([member.title for member in members], right, strict=True)),
    )


def refit_families(points: Points, labels: Labels, families: Sequence[Family], before: Fit) -> Fit:
    """Learn from changed labels with earlier decisions: shares and temperatures.

    Nothing is held out, and families that can do so start from what they learned before, so this takes a fraction of
    the time of :func:`fit_families`; out-of-fold scores are those of ``before``.
    """
    everything = replace(labels, fold=np.full(len(labels.fold), -1))
    by_name = {(family.name, family.graph): family for family in families}
    members = tuple(
        replace(member, fitted=by_name[member.name, member.graph].fit(points, everything, member.fitted).fitted)
        for member in before.members
    )
    whole = [member.fitted.predict(points) for member in members]
    return replace(before, members=members, distributions=before.blend(whole))


def expected_of(points: Points, labels: Labels) -> dict[str, float]:
    """The prior weights of families by name; families that are not listed have 1."""
    if points.mostly_categories:
        return TABLE_PRIOR if labels.folds else FEW_LABELS_TABLE_PRIOR
    return PRIOR if labels.folds else FEW_LABELS_PRIOR


def blend_rule(
    points: Points, labels: Labels, members: Sequence[Member], learned: Sequence[Learned], whole: Sequence[Tensor]
) -> Callable[[Sequence[npt.NDArray[np.float64]], Labels], tuple[Blend, float]]:
    """How out-of-fold probabilities [J, C] of all members decide a blend and its result's temperature.

    Args:
        points: Points and graphs.
        labels: All labels.
        members: The families; their names and graphs are used.
        learned: What they learned.
        whole: What they predict of every point, [N, C] each.
    """
    weights = np.array([expected_of(points, labels).get(member.name, 1.0) for member in members])
    weights *= [part.prior_factor for part in learned]
    given = np.array([member.graph == GIVEN for member in members])
    counts = PRIOR_COUNTS * weights / weights.sum()
    if given.any() and not given.all():
        without = torch.stack([part for part, on in zip(whole, given, strict=True) if not on]).mean(dim=0)
        trust = max(0.0, assortativity(points.graphs[GIVEN].graph, without.argmax(dim=1).cpu().numpy(), labels.index))
        # A few labels cannot show how far to trust the edges; how often edges connect points of one class can.
        grown = np.array([GIVEN_TRUST.get(member.name, 0.0) for member in members])
        counts = np.where(given, 1.0 + trust * grown, PRIOR_COUNTS * weights / weights[~given].sum())

    def decide(own: Sequence[npt.NDArray[np.float64]], judged: Labels) -> tuple[Blend, float]:
        blend = fit_blend(own, judged, counts)
        return blend, result_temperature(own, blend, judged)

    return decide


class Report:
    """Passes progress to a hook; once the hook asks to stop, every later stage is asked to stop at its first report."""

    def __init__(self, hook: Hook | None) -> None:
        self.hook = hook
        self.stopped = False

    def __call__(self, stage: str, done: int, total: int, *scores: float | None) -> bool:
        """Report a step; True asks the stage to stop."""
        if self.hook is not None:
            at = FitProgress(stage, done, total, *scores)
            self.stopped = bool(self.hook(at)) or self.stopped
        return self.stopped


@dataclass(frozen=True)
class Kept:
    """A fit and its inputs.

    Attributes:
        fingerprint: Hash of everything but the labels, by :func:`fingerprint`.
        labels: The labels that its decisions are based on.
        latest: Those of the latest fit, a refit if they are others.
    """

    fingerprint: str
    placed: Placed
    fit: Fit
    labels: Labels
    classes: npt.NDArray[Any]
    frequencies: Frequencies
    latest: Labels

    def holds(self, codes: npt.NDArray[np.int64], classes: npt.NDArray[Any]) -> bool:
        """Whether classes [C] are the same and codes [N] differ in a few labels from when the decisions were made."""
        if not np.array_equal(self.classes, classes):
            return False
        before = np.full(len(codes), UNLABELED)
        before[self.labels.index] = self.labels.codes
        return int((before != codes).sum()) <= _MOST_CHANGED * len(self.labels.index)

    def unchanged(self, labels: Labels, out_of_fold: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The latest fit's out-of-fold probabilities, of labels that have not changed since, [L, C]; NaN for others."""
        found = np.full((len(labels.index), labels.classes), np.nan)
        _, here, there = np.intersect1d(labels.index, self.latest.index, assume_unique=True, return_indices=True)
        same = labels.codes[here] == self.latest.codes[there]
        found[here[same]] = out_of_fold[there[same]]
        return found


def fingerprint(X: Any, graph: Graph | None, settings: Mapping[str, Any], weight: Any = None) -> str:
    """A hash of points, graph, parameters and the weights of rows."""
    digest = hashlib.blake2b(digest_size=16)
    parts = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
    if graph is not None:
        parts += [part.numpy() for part in (graph.indptr, graph.indices, graph.weight)]
    if weight is not None:
        parts.append(weight)
    shapes = [(part.shape, str(part.dtype)) for part in parts]
    digest.update(repr((X.shape, shapes, sorted(settings.items()))).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).data.cast("B") if np.size(part) else b"")
    return digest.hexdigest()
