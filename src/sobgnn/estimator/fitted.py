"""What a fit leaves: everything that predicts new points, and what the estimator's attributes show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from sobgnn._system.process import limit_threads
from sobgnn.estimator.blend import Blend, log_loss, sharpen
from sobgnn.estimator.fit import Fit, Kept, Member
from sobgnn.estimator.frequencies import Frequencies, class_frequencies, shift_priors
from sobgnn.estimator.labels import Labels, class_weights
from sobgnn.estimator.placed import Placed
from sobgnn.estimator.points import Points
from sobgnn.estimator.state import NAN_ALLOWED, shaped
from sobgnn.estimator.trust import estimate_accuracy

_Array = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]

_POINTS_PER_BATCH, _ROWS_FINISHED = 16384, 1024
# Multiplications in a batch's neighbor search from which several threads pay off. A smaller batch takes a few hundred
# short operations, in which threads would mostly wait for one another.
_THREADED_PRODUCTS = 2e10
# Temperature of the result for tables of categories if nothing is held out: families that agree on such tables are
# often wrong together, and no label shows it.
UNJUDGED_TEMPERATURE = 2.0
_SHARE = 1 + 1e-3


@dataclass(frozen=True)
class Predictor:
    """Predicts new points.

    Attributes:
        temperature: Divides the logits of the result.
        ratio: Factors of the class probabilities, [C], from the class frequencies and class weights.
    """

    placed: Placed
    members: tuple[Member, ...]
    blend: Blend
    temperature: float
    ratio: _Array = field(metadata=shaped("classes", least=np.finfo(float).tiny, most=1e30))

    @property
    def points(self) -> Points:
        """The training points."""
        return self.placed.points

    @property
    def many(self) -> int | None:
        """Minimum number of new points at once for which cells are used; ``None``: the search is always exact."""
        return self.placed.search.many

    def spacing(self) -> npt.NDArray[np.float32] | None:
        """Distances of training points to the nearest other one; ``None`` if there is no other point."""
        return self.placed.search.spacing()

    def finished(self, probabilities: Tensor) -> npt.NDArray[np.float32]:
        """Apply the temperature and the class factors to blended probabilities [M, C]."""
        out = np.empty(probabilities.shape, np.float32)
        for start in range(0, len(out), _ROWS_FINISHED):  # of many classes, float64 copies of all rows would be large
            rows = slice(start, start + _ROWS_FINISHED)
            sharpened = sharpen(probabilities[rows].double().cpu(), self.temperature).numpy()
            out[rows] = shift_priors(sharpened, self.ratio)
        return out

    @torch.no_grad()
    def __call__(
        self,
        X: Any,
        edges: sp.csr_array | None = None,
        progress: Callable[[int, int], None] | None = None,
        nearest: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Class probabilities [M, C] of new points X [M, F], raw, dense or sparse; O(k) each.

        For at least :attr:`many` new points, neighbors are found by cells, which are built at the first such call and
        cached. They are the same every time, so predictions depend only on X.

        Args:
            X: Finite.
            edges: Edges to the training points in the given graph, CSR [M, N] of positive weights; without them new
                points have no edges in it.
            progress: Called with (points done, points in all).
            nearest: Receives each point's distance to the nearest training point, [M].
        """
        count = X.shape[0]
        out = np.empty((count, self.points.classes), np.float32)
        many = self.many is not None and count >= self.many
        work = float(min(count, _POINTS_PER_BATCH)) * self.placed.search.places.numel()
        with limit_threads(1 if work < _THREADED_PRODUCTS else torch.get_num_threads()):
            for start in range(0, count, _POINTS_PER_BATCH):
                rows = slice(start, min(start + _POINTS_PER_BATCH, count))
                new, distance = self.placed.beside(X[rows], None if edges is None else edges[rows], many)
                out[rows] = self.finished(self.blend([member.fitted.predict(new) for member in self.members]))
                if nearest is not None:
                    nearest[rows] = distance
                if progress is not None:
                    progress(rows.stop, count)
        return out

    def check(self, sizes: Mapping[str, int], points: Points) -> None:
        """Raise ValueError if shares or temperatures are invalid."""
        shares = np.array(self.blend.shares)
        temperatures = np.array([*self.blend.temperatures, self.temperature])
        good = len(shares) == len(self.blend.temperatures) == len(self.members) > 0
        good = good and bool((shares >= 0).all()) and abs(shares.sum() - 1) < 1e-3
        if not good or not ((temperatures > 1e-3) & (temperatures < 1e3)).all():
            raise ValueError("its shares or temperatures are invalid")


@dataclass(frozen=True)
class Outcome:
    """What a fit found out beside its predictor: attributes of the estimator, which describes them."""

    distributions: npt.NDArray[np.float32] = field(metadata=shaped("points", "classes", least=0, most=_SHARE))
    labelled: _Codes = field(metadata=shaped("labels", least=0))
    labelled_codes: _Codes = field(metadata=shaped("labels", least=0))
    folds: _Codes = field(metadata=shaped("labels"))
    out_of_fold_probabilities: _Array = field(
        metadata={**NAN_ALLOWED, **shaped("labels", "classes", least=0, most=_SHARE)}
    )
    out_of_fold_accuracy: float = field(metadata=NAN_ALLOWED)
    out_of_fold_interval: _Array = field(metadata=shaped(2, most=_SHARE))
    out_of_fold_log_loss: float = field(metadata=NAN_ALLOWED)
    class_prior: _Array = field(metadata=shaped("classes", least=0, most=_SHARE))
    family_accuracy: dict[str, float] = field(metadata=NAN_ALLOWED)
    filter_importance: dict[str, float]
    embedding: npt.NDArray[np.float32] = field(metadata=shaped("points", "components", most=np.inf))
    n_iter: int

    def check(self, sizes: Mapping[str, int], points: Any) -> None:
        """Raise ValueError if labels are of other points or classes, or scores impossible."""
        shares = [self.out_of_fold_accuracy, *self.family_accuracy.values()]
        good = (
            len(self.labelled) > 0
            and bool((self.labelled_codes < sizes["classes"]).all() and (self.labelled < sizes["points"]).all())
            and len(np.unique(self.labelled)) == len(self.labelled)
            and all(np.isnan(share) or 0 <= share <= _SHARE for share in shares)
            and (np.isnan(self.out_of_fold_log_loss) or 0 <= self.out_of_fold_log_loss < 1e3)
            and self.n_iter > 0
        )
        if not good:
            raise ValueError("its labels, scores and points contradict each other")


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
    points, decided = placed.points, labels if before is None else before.labels
    predictor = Predictor(placed, fit.members, fit.blend, fit.temperature, np.ones(labels.classes))
    if before is not None and estimator.class_priors == "auto" and labels.chosen:
        frequencies = before.frequencies
    else:
        unlabeled = np.delete(predictor.finished(fit.distributions), labels.index, axis=0)
        frequencies = class_frequencies(
            estimator.class_priors, estimator.classes_, unlabeled, fit.out_of_fold, labels,
            held_out=decided, calibrated=len(fit.members) > 1,
        )  # fmt: skip
    ratio = frequencies.factor * class_weights(estimator.class_weight, estimator.classes_, labels.codes)
    unjudged = not decided.folds and len(fit.members) > 1 and points.mostly_categories
    doubt = UNJUDGED_TEMPERATURE if unjudged else 1.0
    # A temperature of the shifted probabilities: (p^(1/T) r)^(1/T') = p^(1/TT') r^(1/T'). It changes no label.
    ratio = ratio ** (1 / doubt)
    predictor = replace(predictor, ratio=ratio / ratio.mean(), temperature=fit.temperature * doubt)
    if before is None:
        out_of_fold = np.full((len(labels.index), labels.classes), np.nan)
        out_of_fold[labels.judged] = fit.out_of_fold
        # Where labels are no sample of the points, classes count as they are assumed or known to be common.
        sampled = not labels.chosen and not isinstance(estimator.class_priors, Mapping)
        own = np.bincount(labels.codes, minlength=labels.classes) / len(labels.codes)
        shown = shift_priors(fit.out_of_fold, predictor.ratio)
        accuracy, interval, loss = scores(shown, labels, own if sampled else frequencies.assumed)
    else:  # nothing was held out this time
        out_of_fold = before.unchanged(labels, estimator.out_of_fold_probabilities_)
        accuracy, loss = estimator.out_of_fold_accuracy_, estimator.out_of_fold_log_loss_
        interval = estimator.out_of_fold_interval_
    networks: list[Any] = [member.fitted for member in fit.members if hasattr(member.fitted, "hidden")]
    steps = [network.history["epoch"][-1] for network in networks if network.history.get("epoch")]
    able = [network for network in networks if hasattr(network, "importance")] if before is None else []
    outcome = Outcome(
        predictor.finished(fit.distributions), labels.index, labels.codes,
        np.where(labels.judged & (before is None), labels.fold, -1), out_of_fold, accuracy, interval, loss,
        frequencies.assumed, fit.alone, able[0].importance(points, labels) if able else {},
        _embedding(networks[0].hidden(points) if networks else points.points), max([1, *(int(step) for step in steps)]),
    )  # fmt: skip
    return predictor, outcome, frequencies


def scores(shown: _Array, labels: Labels, frequencies: _Array) -> tuple[float, _Array, float]:
    """The probable accuracy, its interval [2] and the log loss of out-of-fold probabilities [J, C].

    Classes are weighted by their frequencies [C].
    """
    accuracy, interval, weight = estimate_accuracy(shown, labels, frequencies)
    losses = log_loss(shown, labels.codes[labels.judged])
    return accuracy, np.array(interval), float(np.average(losses, weights=weight)) if len(losses) else float("nan")


def _embedding(hidden: Tensor, width: int = 32) -> npt.NDArray[np.float32]:
    """Principal components [N, at most 32] of hidden rows."""
    mean = hidden.mean(dim=0)
    products = hidden.new_zeros((hidden.shape[1], hidden.shape[1]), dtype=torch.float64)
    for rows in torch.split(hidden, 1 << 14):  # a centered copy of all rows would be the largest array of a fit
        centered = rows - mean
        products += (centered.T @ centered).double()
    _, vectors = torch.linalg.eigh(products)
    basis = vectors[:, -width:].flip(1).float()
    kept: npt.NDArray[np.float32] = (
        torch.cat([(rows - mean) @ basis for rows in torch.split(hidden, 1 << 14)]).cpu().numpy()
    )
    return kept


def shown_out_of_fold(estimator: Any, *, weighted: bool = True) -> _Array:
    """Out-of-fold probabilities with the class factors that predictions have, [L, C]; NaN for labels never held out.

    Args:
        estimator: A fitted :class:`~sobgnn.SobolevClassifier`.
        weighted: Whether the factors include ``class_weight``, which sets what an error costs, not what is probable.
    """
    factor = estimator.predictor_.ratio
    if not weighted:
        factor = factor / class_weights(estimator.class_weight, estimator.classes_, estimator.labelled_codes_)
    return shift_priors(estimator.out_of_fold_probabilities_, factor)


def set_attributes(estimator: Any, predictor: Predictor, outcome: Outcome) -> None:
    """Set the estimator's fitted attributes: those of the outcome, and those that follow from it and the predictor."""
    for name, value in vars(outcome).items():
        setattr(estimator, f"{name}_", value)
    del estimator.distributions_
    estimator.predictor_, estimator.outcome_ = predictor, outcome
    scales = predictor.placed.scales
    estimator.neighbor_scale_, estimator.scale_ = scales.neighbors, scales.networks
    estimator.temperature_ = predictor.temperature
    estimator.history_ = {member.title: getattr(member.fitted, "history", {}) for member in predictor.members}
    titles = [member.title for member in predictor.members]
    estimator.family_shares_ = dict(zip(titles, predictor.blend.shares, strict=True))
    estimator.graph_ = next(iter(predictor.points.graphs.values())).graph.to("cpu")
    # Strong and weak components of a symmetric graph are the same; the strong ones need no transposed copy.
    _, component = connected_components(estimator.graph_.to_scipy(copy=False), connection="strong")
    estimator.component_labelled_ = np.isin(component, component[outcome.labelled])
    distributions = outcome.distributions.copy()
    distributions[outcome.labelled] = np.eye(len(estimator.classes_), dtype=np.float32)[outcome.labelled_codes]
    estimator.label_distributions_ = distributions
    estimator.transduction_ = estimator.classes_[distributions.argmax(axis=1)]
