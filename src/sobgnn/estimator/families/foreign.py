"""Classifiers of others as families: any scikit-learn classifier learns by folds and gets a share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from sobgnn.estimator.families.contract import Family, FittedFamily, Learned
from sobgnn.estimator.labels import Labels, one_label_per_class_allowed
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import NOT_SAVED

# The probability that a classifier which predicts only classes is taken to give them.
_SURE = 0.9


@dataclass(frozen=True)
class ForeignClassifier(Family):
    """A classifier that follows scikit-learn's contract, as a family.

    Clones of it learn from the labeled rows of X without each fold, and from all labels. ``sample_weight`` is passed if
    its ``fit`` takes it. A ``random_state`` of None is set, so that the same seed gives the same predictions. Instead
    of ``predict_proba`` it may have ``decision_function``, or ``predict`` alone. It is itself not changed.
    """

    name: str  # type: ignore[misc]  # of this one, and not of the class
    estimator: Any
    graph: Any = field(default=None, init=False)

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Fit one clone without each fold, and one with all labels."""
        generator, X = points.generator(self.name), points.rows
        shares = labels.shares()

        def fitted(fit: int) -> FittedForeign:
            share, used = shares[fit], shares[fit] > 0
            made = clone(self.estimator)
            settings = made.get_params()
            unset = [key for key in sorted(settings) if key.endswith("random_state") and settings[key] is None]
            made.set_params(**{key: int(generator.integers(2**31)) for key in unset})
            # Some classifiers want the numbers 0, 1, … without a gap, and a fold may lack a class.
            present, codes = np.unique(labels.codes[used], return_inverse=True)
            weight = {"sample_weight": share[used] * used.sum()} if has_fit_parameter(made, "sample_weight") else {}
            with _named(self.name, made, "fit"), one_label_per_class_allowed():
                made.fit(X[labels.index[used]], codes, **weight)
            points.report(self.name, fit + 1, labels.folds + 1)
            return FittedForeign(self.name, labels.classes, made, present)

        out_of_fold = labels.each_fold(lambda fold, held: fitted(fold).probabilities(X[labels.index[held]]))
        return Learned(fitted(labels.folds), out_of_fold)


@dataclass(frozen=True)
class FittedForeign(FittedFamily):
    """A classifier of others, fitted to the numbers 0, 1, … of the ``present`` classes; it cannot be saved."""

    name: str
    classes: int
    estimator: Any = field(metadata=NOT_SAVED)
    present: npt.NDArray[np.int64]

    def probabilities(self, X: Any) -> npt.NDArray[np.float64]:
        """Class probabilities [M, C] of rows X [M, F]; 0 for classes that it has not seen."""
        out = np.zeros((X.shape[0], self.classes))
        with _named(self.name, self.estimator, "predict"):
            own = self._own(X)
            seen = self.present[np.asarray(self.estimator.classes_, dtype=np.int64)]
            good = own.shape == (X.shape[0], len(seen)) and np.isfinite(own).all() and (own >= 0).all()
            if not good:
                raise ValueError("its probabilities are not finite, or of another shape")
        total = own.sum(axis=1, keepdims=True)
        out[:, seen] = np.where(total > 0, own / np.where(total > 0, total, 1.0), 1 / len(seen))
        return out

    def _own(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities of its own classes."""
        if hasattr(self.estimator, "predict_proba"):
            return np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
        if hasattr(self.estimator, "decision_function"):
            scores = np.asarray(self.estimator.decision_function(X), dtype=np.float64)
            return np.asarray(softmax(np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores, axis=1))
        classes = np.asarray(self.estimator.classes_)
        hit = np.asarray(self.estimator.predict(X))[:, None] == classes
        return np.where(hit, _SURE, (1 - _SURE) / max(1, len(classes) - 1))

    def predict(self, view: View) -> Tensor:
        """[M, C]."""
        return torch.from_numpy(self.probabilities(view.rows)).float().to(view.points.device)


@contextmanager
def _named(name: str, estimator: Any, did: str) -> Iterator[None]:
    """Errors of a classifier of others in one line, with its name."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"The family {name!r} ({type(estimator).__name__}) could not {did}: {reason}") from error
