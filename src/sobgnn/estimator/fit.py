"""The fit itself: every family learns, is smoothed and gets its share; together they predict every point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.blend import PRIOR_COUNTS, Blend, blend_error, cross_fit, fit_blend, result_temperature
from sobgnn.estimator.families import FAMILIES, FittedFamily, make_family
from sobgnn.estimator.families.contract import Family, Refits
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import GIVEN, NEIGHBORS, Problem
from sobgnn.estimator.smoothing import STRENGTHS, Smoothing, best_smoothing, smoothed
from sobgnn.graphs.assortativity import assortativity

# Prior weight of each family, if labels are held out and if none can be; and the same for tables whose columns are
# mostly categories.
PRIOR = {
    "sobolev": 2.0, "mlp": 1.0, "diffusion": 2.0, "poisson": 2.0, "linear": 2.0, "logistic": 1.0, "gaussian": 1.0,
    "kernel": 1.0, "oblique": 1.0, "forests": 5.0, "boosting": 1.0,
}  # fmt: skip
FEW_LABELS_PRIOR = {"sobolev": 1.0, "mlp": 1.0, "diffusion": 6.0, "poisson": 12.0, "linear": 1.0, "forests": 4.0}
TABLE_PRIOR = {**PRIOR, "sobolev": 1.0, "diffusion": 0.5, "forests": 8.0}
FEW_LABELS_TABLE_PRIOR = {**FEW_LABELS_PRIOR, "diffusion": 3.0, "forests": 12.0}
# How much the prior of families on a given graph grows, in labels, with the assortativity of its edges; the
# assortativity from which they are trusted; and by how much their summed squared error must be less below it.
GIVEN_TRUST = {"pagerank": 60.0, "sobolev": 20.0}
_TRUSTED, _GUARD = 0.2, 1.0


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
        family: The family.
        view: The graph that it learns on; ``None`` for a family without one.
        fitted: What it learned.
        smoothing: How its probabilities are smoothed over a graph; ``None`` for a family that is never smoothed.
        around: Its smoothed probabilities of the training points, [N, C], which new points are moved toward; ``None``
            if it is not smoothed.
    """

    family: Family
    view: str | None
    fitted: FittedFamily
    smoothing: Smoothing | None = None
    around: Tensor | None = None

    @property
    def title(self) -> str:
        """The family's name, with the graph's if it learns on a given graph."""
        return self.family.name if self.view in (None, NEIGHBORS) else f"{self.family.name} ({self.view})"


@dataclass(frozen=True)
class Fit:
    """The outcome of :func:`fit_families`.

    Attributes:
        members: Families with a share, in the order of the blend.
        blend: Their shares and temperatures.
        temperature: Divides the logits of the result.
        distributions: Probabilities of every point before the temperature, [N, C].
        out_of_fold: Out-of-fold probabilities of the judged labels after the temperature, [J, C]: those of a fold are
            blended as the labels of the others decide.
        alone: Each family's own out-of-fold accuracy, by title, including families without a share.
    """

    members: list[Member]
    blend: Blend
    temperature: float
    distributions: Tensor
    out_of_fold: npt.NDArray[np.float64]
    alone: dict[str, float]


def fit_families(
    problem: Problem,
    labels: Labels,
    names: Sequence[str],
    strengths: Sequence[float] = STRENGTHS,
) -> Fit:
    """Fit every family, decide how each is smoothed and how much it counts, and predict every point.

    Args:
        problem: Points and graphs.
        labels: Labels and their folds.
        names: Names of the families; one that learns on a graph is fitted once for each graph.
        strengths: Values from which the strength of smoothing is chosen.
    """
    members, parts = [], []
    for name in names:
        for view in _views_of(name, problem):
            family = make_family(name, view)
            fitted = family.fit(problem, labels)
            probabilities = fitted.probabilities()
            smoothing = None
            if family.smooths:
                # A family without a graph is smoothed over neighbors, never over a given graph, which may mislead.
                over = view or NEIGHBORS
                spread = problem.views[over].spread
                strength, probabilities = best_smoothing(spread, probabilities, labels, strengths)
                smoothing = Smoothing(over, strength)
            # A separate copy: new points read it row by row, and the other signals need not be kept.
            kept = probabilities[-1].contiguous() if smoothing and smoothing.strength else None
            members.append(Member(family, view, fitted, smoothing, kept))
            parts.append(probabilities)
    if not members:
        raise ValueError(f"`families` {list(names)} need a given graph. Pass graph=, or name other families.")
    problem.tell("blending", 1, 1)
    own = [labels.out_of_fold(part) for part in parts]
    codes = labels.codes[labels.judged]
    alone = {
        member.title: float((part.argmax(axis=1) == codes).mean()) if len(codes) else float("nan")
        for member, part in zip(members, own, strict=True)
    }
    decide = blend_rule(problem, labels, members, parts)
    blend, temperature = decide(own, labels)
    out_of_fold = cross_fit(own, labels, decide)
    # A family without a share would only slow down predictions of new points.
    places = [place for place, share in enumerate(blend.shares) if share]
    members, parts = [members[place] for place in places], [parts[place] for place in places]
    blend = Blend(tuple(blend.shares[p] for p in places), tuple(blend.temperatures[p] for p in places))
    return Fit(members, blend, temperature, blend([part[-1] for part in parts]), out_of_fold, alone)


def refit_families(problem: Problem, labels: Labels, before: Fit) -> Fit:
    """Learn from changed labels with earlier decisions: smoothing, shares and temperatures.

    Nothing is held out, and families that can do so start from what they learned before, so this takes a fraction of
    the time of :func:`fit_families`; out-of-fold scores are those of ``before``.
    """
    everything = replace(labels, fold=np.full(len(labels.fold), -1))
    members, parts = [], []
    for member in before.members:
        family = member.family
        fitted = (
            family.refit(problem, everything, member.fitted)
            if isinstance(family, Refits)
            else family.fit(problem, everything)
        )
        probabilities = fitted.probabilities()
        if member.smoothing is not None and member.smoothing.strength:
            spread = problem.views[member.smoothing.view].spread
            probabilities = smoothed(spread, probabilities, everything, member.smoothing.strength)
        around = probabilities[-1].contiguous() if member.around is not None else None
        members.append(replace(member, fitted=fitted, around=around))
        parts.append(probabilities[-1])
    return replace(before, members=members, distributions=before.blend(parts))


def _views_of(name: str, problem: Problem) -> Sequence[str | None]:
    """The graphs that a family is fitted on; ``None`` for one that learns without a graph."""
    kind = FAMILIES[name]
    if not kind.on_graph:
        return (None,)
    return [view for view in problem.views if view == GIVEN or not kind.given_only]


def expected_of(problem: Problem, labels: Labels) -> dict[str, float]:
    """The prior weights of families by name; families that are not listed have 1."""
    if problem.mostly_categories:
        return TABLE_PRIOR if labels.folds else FEW_LABELS_TABLE_PRIOR
    return PRIOR if labels.folds else FEW_LABELS_PRIOR


def blend_rule(
    problem: Problem, labels: Labels, members: Sequence[Member], parts: Sequence[Tensor]
) -> Callable[[Sequence[npt.NDArray[np.float64]], Labels], tuple[Blend, float]]:
    """How out-of-fold probabilities [J, C] of all members decide a blend and its result's temperature.

    Members on a given graph take part only if out-of-fold labels support them.

    Args:
        problem: Points and graphs.
        labels: All labels.
        members: The families; their names, graphs and trust are used.
        parts: Their smoothed probabilities, [folds + 1, N, C] each.
    """
    weights = np.array([expected_of(problem, labels).get(member.family.name, 1.0) for member in members])
    weights *= [getattr(member.fitted, "trust", 1.0) for member in members]
    given = np.array([member.view == GIVEN for member in members])
    counts, trust = PRIOR_COUNTS * weights / weights.sum(), 1.0
    if given.any() and not given.all():
        without = torch.stack([part[-1] for part, on in zip(parts, given, strict=True) if not on]).mean(dim=0)
        trust = max(0.0, assortativity(problem.views[GIVEN].graph, without.argmax(dim=1).cpu().numpy(), labels.index))
        # A few labels cannot show how far to trust the edges; how often edges connect points of one class can.
        counts = np.where(given, 1.0, PRIOR_COUNTS * weights / weights[~given].sum())
        counts += trust * np.array(
            [GIVEN_TRUST.get(m.family.name, 0.0) if on else 0.0 for m, on in zip(members, given, strict=True)]
        )
    some = [place for place, on in enumerate(given) if not on]

    def decide(own: Sequence[npt.NDArray[np.float64]], judged: Labels) -> tuple[Blend, float]:
        blend = fit_blend(own, judged, counts)
        if trust < _TRUSTED and judged.folds:
            fewer = fit_blend([own[place] for place in some], judged, counts[some])
            shares, temperatures = np.zeros(len(members)), np.ones(len(members))
            shares[some], temperatures[some] = fewer.shares, fewer.temperatures
            less = Blend(tuple(shares.tolist()), tuple(temperatures.tolist()))
            if blend_error(own, less, judged) - blend_error(own, blend, judged) <= _GUARD:
                blend = less
        return blend, result_temperature(own, blend, judged)

    return decide


class Teller:
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
