"""Fitted attributes of the estimator: its predictor, its out-of-fold scores, and a label for every point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
from sobgnn.estimator.placing import Placed, as_tensor
from sobgnn.estimator.predictor import Predictor
from sobgnn.estimator.warm import Kept, out_of_fold_before

# Temperature of the result for tables of categories if nothing is held out: families that agree on such tables are
# often wrong together, and no label shows it.
UNJUDGED_TEMPERATURE = 2.0


def keep_outcome(estimator: Any, fit: Fit, placed: Placed, labels: Labels, before: Kept | None) -> Frequencies:
    """Set the estimator's fitted attributes, and return the class frequencies that were assumed.

    Args:
        estimator: A :class:`~sobgnn.SobolevClassifier` whose ``classes_`` are set.
        fit: What its families learned.
        placed: The points they learned on.
        labels: The labels they learned from.
        before: The earlier fit, if this one is a warm refit, which holds nothing out.
    """
    problem = placed.problem
    predictor = Predictor(
        placed.maps, problem, as_tensor(placed.places, problem.device), placed.attaching,
        fit.members, fit.blend, fit.temperature, np.ones(labels.classes), np.zeros((0, 0), np.float32),
    )  # fmt: skip
    if before is not None and estimator.class_priors == "auto" and labels.chosen:
        frequencies = before.frequencies
    else:
        unlabeled = np.delete(predictor.finished(fit.distributions), labels.index, axis=0)
        frequencies = class_frequencies(
            estimator.class_priors, estimator.classes_, unlabeled, fit.out_of_fold, labels,
            held_out=None if before is None else before.labels, calibrated=len(fit.members) > 1,
        )  # fmt: skip
    estimator.class_prior_ = frequencies.assumed
    odds = class_weights(estimator.class_weight, estimator.classes_, labels.codes)
    ratio = frequencies.factor * odds
    decided = labels if before is None else before.labels
    unjudged = not decided.folds and len(fit.members) > 1 and problem.mostly_categories
    doubt = UNJUDGED_TEMPERATURE if unjudged else 1.0
    # A temperature of the shifted probabilities: (p^(1/T) r)^(1/T') = p^(1/TT') r^(1/T'). It changes no label.
    ratio = ratio ** (1 / doubt)
    predictor = replace(predictor, ratio=ratio / ratio.mean(), temperature=fit.temperature * doubt)
    estimator.predictor_ = replace(predictor, distributions=predictor.finished(fit.distributions))
    estimator.temperature_ = predictor.temperature
    out_of_fold = np.full((len(labels.index), labels.classes), np.nan)
    if before is None:
        out_of_fold[labels.judged] = fit.out_of_fold
    else:  # nothing was held out this time
        out_of_fold = out_of_fold_before(estimator, labels)
    estimator.labelled_, estimator.labelled_codes_ = labels.index, labels.codes
    # A refit holds nothing out.
    estimator.folds_ = np.where(labels.judged & (before is None), labels.fold, -1)
    estimator.out_of_fold_probabilities_ = out_of_fold
    if before is None:
        _keep_scores(estimator, labels)
    estimator.family_accuracy_ = fit.alone
    estimator.history_ = {member.title: getattr(member.fitted, "history", {}) for member in fit.members}
    estimator.n_iter_ = max(
        [1, *(int(curves["epoch"][-1]) for curves in estimator.history_.values() if curves.get("epoch"))]
    )
    estimator.filter_importance_ = filter_importance(fit.members, labels)
    estimator.embedding_ = embedding(fit.members, problem.points)
    label_points(estimator)
    return frequencies


def _keep_scores(estimator: Any, labels: Labels) -> None:
    """Set the estimated accuracy, its interval and the out-of-fold log loss."""
    own = shown_out_of_fold(estimator)[labels.judged]
    frequencies = np.bincount(labels.codes, minlength=labels.classes) / len(labels.codes)
    # Where labels are no sample of the points, classes count as they are assumed or known to be common.
    if labels.chosen or isinstance(estimator.class_priors, Mapping):
        frequencies = estimator.class_prior_
    accuracy, interval, weight = estimate_accuracy(own, labels, frequencies)
    estimator.out_of_fold_accuracy_, estimator.out_of_fold_interval_ = accuracy, np.array(interval)
    losses = log_loss(own, labels.codes[labels.judged])
    estimator.out_of_fold_log_loss_ = float(np.average(losses, weights=weight)) if len(own) else float("nan")


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


def label_points(estimator: Any) -> None:
    """Set the attributes that follow from the estimator's predictor and the given labels."""
    views = estimator.predictor_.problem.views
    estimator.graph_ = next(iter(views.values())).graph.to("cpu")
    # Strong and weak components of a symmetric graph are the same; the strong ones need no transposed copy.
    _, component = connected_components(estimator.graph_.to_scipy(copy=False), connection="strong")
    estimator.component_labelled_ = np.isin(component, component[estimator.labelled_])
    distributions = estimator.predictor_.distributions.copy()
    distributions[estimator.labelled_] = np.eye(len(estimator.classes_), dtype=distributions.dtype)[
        estimator.labelled_codes_
    ]
    estimator.label_distributions_ = distributions
    estimator.transduction_ = estimator.classes_[distributions.argmax(axis=1)]
    members, blend = estimator.predictor_.members, estimator.predictor_.blend
    estimator.family_shares_ = {m.title: share for m, share in zip(members, blend.shares, strict=True)}
