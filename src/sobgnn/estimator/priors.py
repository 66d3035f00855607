"""Class frequencies among all points, which may differ from each class's share of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.labels import Labels

_Array = npt.NDArray[np.float64]

# Points' worth of the frequencies that were assumed, as a share of the points; and steps of EM.
_STRENGTH, _STEPS = 0.5, 20
# A class is taken to be at most this many times more or less common than was assumed.
_MOST = 4.0
# Skill out of fold from which probabilities tell how common classes are. Below it the estimate follows the errors: on
# the data set actor, whose classes hardly anything tells apart, it cost 7 points.
LEAST_SKILL = 0.4
# A class's number of labels counts as full where it has this share of the largest one.
_FULL = 0.8


def label_frequencies(labels: Labels) -> _Array:
    """Each class's share of the labels, [C]."""
    counts = np.bincount(labels.codes, minlength=labels.classes)
    return np.asarray(counts / counts.sum())


def learnt_frequencies(labels: Labels) -> _Array:
    """Each class's share of the labels by their weights, [C]: the frequencies that the families have learned with."""
    counts = np.bincount(labels.codes, labels.weight, minlength=labels.classes)
    return np.asarray(counts / counts.sum())


def chosen_by_class(codes: npt.NDArray[np.int64], classes: int) -> bool:
    """Whether labels look as if a number had been chosen of each class, instead of points at random.

    That is the case where all classes have the same number, or, of three and more classes, at least half have nearly
    the largest number: then the number of a class's labels does not tell how common it is.
    """
    counts = np.bincount(codes, minlength=classes)
    return bool(counts.min() == counts.max() or (len(counts) > 2 and _full(counts).mean() >= 0.5))


def _full(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which classes have about as many labels as the one with the most, [C]."""
    return np.asarray(counts >= _FULL * counts.max())


def skill(out_of_fold: _Array, labels: Labels) -> float:
    """How far out-of-fold accuracy, classes counting alike, is from guessing (0) to perfect (1); 0 without any."""
    codes = labels.codes[labels.judged]
    if len(out_of_fold) != len(codes) or not len(codes):
        return 0.0
    right = out_of_fold.argmax(axis=1) == codes
    balanced = float(np.mean([right[codes == code].mean() for code in np.unique(codes)]))
    return (balanced - 1 / labels.classes) / (1 - 1 / labels.classes)


def estimate_priors(probabilities: _Array, assumed: _Array) -> _Array:
    r"""Class frequencies among points by expectation-maximization (Saerens et al., 2002), with a Dirichlet prior.

    .. math:: \pi \leftarrow \frac{A \pi_0 + \sum_i q_i}{A + N}, \qquad q_{ic} \propto p_{ic} \, \pi_c / \pi_{0,c}

    Args:
        probabilities: Of points whose class is not known, [N, C], calibrated.
        assumed: π_0, what the probabilities were learned with, [C].
    """
    count = len(probabilities)
    if not count:
        return assumed
    weight = _STRENGTH * count
    found = assumed
    for _ in range(_STEPS):
        shifted = shift_priors(probabilities, found / assumed)
        found = (weight * assumed + shifted.sum(axis=0)) / (weight + count)
        found = found.clip(assumed / _MOST, assumed * _MOST)
        found /= found.sum()
    return found


def shift_priors(probabilities: _Array, ratio: _Array) -> _Array:
    """Probabilities [N, C] under class frequencies that are ``ratio`` [C] times those they were learned with."""
    shifted = probabilities * ratio
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def decide_priors(option: object, classes: npt.NDArray[Any], probabilities: _Array | None, labels: Labels) -> _Array:
    """Class frequencies among all points, [C]: as given, each class's share of the labels, or estimated.

    Args:
        option: ``"auto"``, ``None``, or shares by class, as :class:`~sobgnn.SobolevClassifier` takes them.
        classes: [C].
        probabilities: Of the unlabeled points, as learned, [M, C], calibrated; ``None`` where they are not.
        labels: The labels.
    """
    if option is None:
        return label_frequencies(labels)
    if isinstance(option, str):
        if option != "auto":
            raise ValueError(f'`class_priors` must be "auto", None or a dict, but got {option!r}.')
        if chosen_by_class(labels.codes, labels.classes):
            learnt = learnt_frequencies(labels)
            if probabilities is None or not labels.folds:
                return learnt
            found = estimate_priors(probabilities, learnt)
            # A class with few labels is recognized too seldom, and so would be taken for rarer than it is.
            full = _full(np.bincount(labels.codes, minlength=labels.classes))
            found = np.where(full, found, np.maximum(found, learnt))
            return np.asarray(found / found.sum())
        return label_frequencies(labels)
    if not isinstance(option, Mapping) or set(option) != set(classes.tolist()):
        raise ValueError(
            f'`class_priors` must be "auto", None or a share for each class of y, but got {option!r} for '
            f"{classes.tolist()}."
        )
    shares = np.array([float(option[name]) for name in classes.tolist()])
    if not (np.isfinite(shares).all() and (shares > 0).all()):
        raise ValueError(f"`class_priors` must be positive and finite, but got {dict(option)!r}.")
    return np.asarray(shares / shares.sum())
