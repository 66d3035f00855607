"""Fitted attributes of the estimator: its predictor, its out-of-fold scores, and a label for every point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from sobgnn.estimator.accuracy import estimate_accuracy
from sobgnn.estimator.blend import log_loss
from sobgnn.estimator.describing import embedding, filter_importance
from sobgnn.estimator.fit import Fit
from sobgnn.estimator.frequencies import Frequencies, class_frequencies, shift_priors
from sobgnn.estimator.labels import Labels, class_weights
from sobgnn.estimator.points import Placed
from sobgnn.estimator.predictor import Predictor
from sobgnn.estimator.state import NAN_ALLOWED, check_array
from sobgnn.estimator.warm import Kept, out_of_fold_before

# Temperature of the result for tables of categories if nothing is held out: families that agree on such tables are
# often wrong together, and no label shows it.
UNJUDGED_TEMPERATURE = 2.0


@dataclass(frozen=True)
class Outcome:
    """What a fit found out beside its predictor; each field is an attribute of the estimator, see :data:`ATTRIBUTES`.

    Attributes:
        labeled: Rows of X that have a label, [L].
        codes: Their classes, [L].
        folds: The fold in which each was held out, [L]; -1: never.
        out_of_fold: Their out-of-fold probabilities, [L, C]; NaN for labels never held out.
        accuracy, interval, log_loss: The probable accuracy on unlabeled points, its 95 % interval [2], and the log
            loss, from these; NaN if nothing was held out.
        class_prior: The assumed class frequencies, [C].
        family_accuracy: Each family's own out-of-fold accuracy, by title.
        filter_importance: Increase of the networks' log loss without each order.
        embedding: [N, at most 32].
        n_iter: Training steps made.
    """

    labeled: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    folds: npt.NDArray[np.int64]
    out_of_fold: npt.NDArray[np.float64] = field(metadata=NAN_ALLOWED)
    accuracy: float = field(metadata=NAN_ALLOWED)
    interval: npt.NDArray[np.float64]
    log_loss: float = field(metadata=NAN_ALLOWED)
    class_prior: npt.NDArray[np.float64]
    family_accuracy: dict[str, float] = field(metadata=NAN_ALLOWED)
    filter_importance: dict[str, float]
    embedding: npt.NDArray[np.float32]
    n_iter: int

    def check(self, count: int, classes: int) -> None:
        """Raise ValueError if the fields, which may be those of a file, are impossible."""
        (known,) = self.codes.shape
        check_array(self.labeled, (known,), "labels")
        check_array(self.folds, (known,), "folds")
        check_array(self.out_of_fold, (known, classes), "out-of-fold probabilities")
        check_array(self.interval, (2,), "interval", most=1.0 + 1e-6)
        check_array(self.class_prior, (classes,), "class frequencies", most=1.0 + 1e-6)
        check_array(self.embedding, (count, self.embedding.shape[-1]), "embedding")
        shares = [self.accuracy, *self.family_accuracy.values()]
        seen = self.out_of_fold[np.isfinite(self.out_of_fold).all(axis=1)]
        good = (
            known > 0
            and bool(((self.codes >= 0) & (self.codes < classes)).all())
            and bool(((self.labeled >= 0) & (self.labeled < count)).all())
            and len(np.unique(self.labeled)) == known
            and bool(((seen >= 0) & (seen <= 1 + 1e-3)).all())
            and bool((self.class_prior >= 0).all())
            and all(np.isnan(share) or 0 <= share <= 1 + 1e-6 for share in shares)
            and (np.isnan(self.log_loss) or 0 <= self.log_loss < 1e3)
            and self.n_iter > 0
        )
        if not good:
            raise ValueError("its labels, scores and points contradict each other")


# The estimator's attributes that are fields of the outcome.
ATTRIBUTES = {
    "labelled_": "labeled", "labelled_codes_": "codes", "folds_": "folds", "out_of_fold_probabilities_": "out_of_fold",
    "out_of_fold_accuracy_": "accuracy", "out_of_fold_interval_": "interval", "out_of_fold_log_loss_": "log_loss",
    "class_prior_": "class_prior", "family_accuracy_": "family_accuracy", "filter_importance_": "filter_importance",
    "embedding_": "embedding", "n_iter_": "n_iter",
}  # fmt: skip


def outcome_of(
    estimator: Any, fit: Fit, placed: Placed, labels: Labels, before: Kept | None
) -> tuple[Predictor, Outcome, Frequencies]:
    """The predictor of a fit, what else it found out, and the class frequencies that were assumed.

    Args:
        estimator: A :class:`~sobgnn.SobolevClassifier` whose ``classes_`` are set; only its parameters are read and, if
            this is a warm refit, its earlier out-of-fold scores.
        fit: What its families learned.
        placed: The points they learned on.
        labels: The labels they learned from.
        before: The earlier fit, if this one is a warm refit, which holds nothing out.
    """
    points = placed.points
    nothing = np.zeros((0, 0), np.float32)
    predictor = Predictor(placed, fit.members, fit.blend, fit.temperature, np.ones(labels.classes), nothing)
    if before is not None and estimator.class_priors == "auto" and labels.chosen:
        frequencies = before.frequencies
    else:
        unlabeled = np.delete(predictor.finished(fit.distributions), labels.index, axis=0)
        frequencies = class_frequencies(
            estimator.class_priors, estimator.classes_, unlabeled, fit.out_of_fold, labels,
            held_out=None if before is None else before.labels, calibrated=len(fit.members) > 1,
        )  # fmt: skip
    odds = class_weights(estimator.class_weight, estimator.classes_, labels.codes)
    ratio = frequencies.factor * odds
    decided = labels if before is None else before.labels
    unjudged = not decided.folds and len(fit.members) > 1 and points.mostly_categories
    doubt = UNJUDGED_TEMPERATURE if unjudged else 1.0
    # A temperature of the shifted probabilities: (p^(1/T) r)^(1/T') = p^(1/TT') r^(1/T'). It changes no label.
    ratio = ratio ** (1 / doubt)
    predictor = replace(predictor, ratio=ratio / ratio.mean(), temperature=fit.temperature * doubt)
    predictor = replace(predictor, distributions=predictor.finished(fit.distributions))
    if before is None:
        out_of_fold = np.full((len(labels.index), labels.classes), np.nan)
        out_of_fold[labels.judged] = fit.out_of_fold
        shown = shift_priors(fit.out_of_fold, predictor.ratio)
        # Where labels are no sample of the points, classes count as they are assumed or known to be common.
        sampled = not labels.chosen and not isinstance(estimator.class_priors, Mapping)
        own = np.bincount(labels.codes, minlength=labels.classes) / len(labels.codes)
        accuracy, interval, loss = scores(shown, labels, own if sampled else frequencies.assumed)
    else:  # nothing was held out this time
        out_of_fold = out_of_fold_before(estimator, labels)
        accuracy, loss = estimator.out_of_fold_accuracy_, estimator.out_of_fold_log_loss_
        interval = estimator.out_of_fold_interval_
    steps = [curves["epoch"][-1] for curves in history_of(predictor).values() if curves.get("epoch")]
    outcome = Outcome(
        labels.index, labels.codes, np.where(labels.judged & (before is None), labels.fold, -1), out_of_fold, accuracy,
        interval, loss, frequencies.assumed, fit.alone,
        filter_importance(fit.members, points, labels) if before is None else {},
        embedding(fit.members, points), max([1, *(int(step) for step in steps)]),
    )  # fmt: skip
    return predictor, outcome, frequencies


def scores(
    shown: npt.NDArray[np.float64], labels: Labels, frequencies: npt.NDArray[np.float64]
) -> tuple[float, npt.NDArray[np.float64], float]:
    """The probable accuracy, its interval [2] and the log loss of out-of-fold probabilities [J, C].

    Classes are weighted by their frequencies [C].
    """
    accuracy, interval, weight = estimate_accuracy(shown, labels, frequencies)
    losses = log_loss(shown, labels.codes[labels.judged])
    return accuracy, np.array(interval), float(np.average(losses, weights=weight)) if len(losses) else float("nan")


def shown_out_of_fold(estimator: Any, *, weighted: bool = True) -> npt.NDArray[np.float64]:
    """Out-of-fold probabilities with the class factors that predictions have, [L, C]; NaN for labels never held out.

    Args:
        estimator: A fitted :class:`~sobgnn.SobolevClassifier`.
        weighted: Whether the factors include ``class_weight``, which sets what an error costs, not what is probable.
    """
    factor = estimator.predictor_.ratio
    if not weighted:
        factor = factor / class_weights(estimator.class_weight, estimator.classes_, estimator.labelled_codes_)
    return shift_priors(estimator.out_of_fold_probabilities_, factor)


def history_of(predictor: Predictor) -> dict[str, dict[str, list[float]]]:
    """Training curves by family; empty for families without any."""
    return {member.title: getattr(member.fitted, "history", {}) for member in predictor.members}


def set_attributes(estimator: Any, predictor: Predictor, outcome: Outcome) -> None:
    """Set the estimator's fitted attributes: those of the outcome, and those that follow from it and the predictor."""
    for name, own in ATTRIBUTES.items():
        setattr(estimator, name, getattr(outcome, own))
    estimator.predictor_ = predictor
    estimator.neighbor_scale_, estimator.scale_ = predictor.placed.scales
    estimator.temperature_ = predictor.temperature
    estimator.history_ = history_of(predictor)
    estimator.family_shares_ = {
        member.title: share for member, share in zip(predictor.members, predictor.blend.shares, strict=True)
    }
    estimator.graph_ = next(iter(predictor.points.graphs.values())).graph.to("cpu")
    # Strong and weak components of a symmetric graph are the same; the strong ones need no transposed copy.
    _, component = connected_components(estimator.graph_.to_scipy(copy=False), connection="strong")
    estimator.component_labelled_ = np.isin(component, component[outcome.labeled])
    distributions = predictor.distributions.copy()
    distributions[outcome.labeled] = np.eye(len(estimator.classes_), dtype=distributions.dtype)[outcome.codes]
    estimator.label_distributions_ = distributions
    estimator.transduction_ = estimator.classes_[distributions.argmax(axis=1)]


def outcome_from(estimator: Any) -> Outcome:
    """The outcome that :func:`set_attributes` has set."""
    return Outcome(**{own: getattr(estimator, name) for name, own in ATTRIBUTES.items()})
