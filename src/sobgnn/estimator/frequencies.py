"""Class frequencies among all points, which may differ from each class's share of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.labels import Labels

_Array = npt.NDArray[np.float64]

# Weight of the learned frequencies in EM, as a share of the number of points; and how far an estimate must be from
# equal frequencies to count as much as they do, with many labels per class (twice that with 1), if labels were chosen
# class by class and if they were drawn at random. Chosen on the 26 sets of benchmarks.suite_sets with 1 to 20 labels
# per class, 60 and 10 %; nearby values differ by at most 0.3 points.
_DIRICHLET, _HALF, _HALF_AT_RANDOM = 0.3, 0.12, 0.24
# EM estimates a class to be at most this many times more or less common than learned; matching makes it at most this
# many times more or less probable: a class that is absent must not be conjured up. The suite needs at most 26. A class
# with few labels is raised at most this many times: of 3 to 100, recall of a class with 3 labels is 73 % with 3, 77 %
# with 6 and 79 % from 20, but accuracy on page-blocks, whose classes are uneven, falls from 88 % with 6 to 83 %.
_MOST_COMMON, _MOST_PROBABLE, _MOST_RAISED, _STEPS = 4.0, 100.0, 6.0, 20
# Labels per class up to which a model's bias against equal frequencies is removed fully.
_WHOLE = 4
# Mean confidence, from guessing (0) to certainty (1), from which probabilities show how common classes are. Below it
# the estimate would follow the errors. Chosen on the same sets; a bound on out-of-fold skill jumps with the seed.
_CONFIDENT = 0.3
# How many times more probable labels must be with equal class frequencies than with others for an evenness of 1/2.
_HALF_EVEN = 6.0
# Numbers of labels are similar if they are at least this share of the largest one, and few below this share.
_ALIKE, _FEW = 0.9, 1 / 3
# Share of random draws that may look as if numbers had been chosen: if these are equal, and if they are nearly equal.
_BY_CHANCE, _NEARLY_BY_CHANCE = 0.15, 0.02
# Maximum number of points that frequencies are estimated from.
_POINTS = 20_000


@dataclass(frozen=True)
class Frequencies:
    """Assumed class frequencies.

    Attributes:
        assumed: Their frequencies among all points, [C].
        factor: Factors that the learned probabilities are multiplied by, [C].
    """

    assumed: _Array
    factor: _Array


def class_frequencies(
    option: object,
    classes: npt.NDArray[Any],
    probabilities: npt.NDArray[np.floating[Any]],
    out_of_fold: _Array,
    labels: Labels,
    *,
    held_out: Labels | None = None,
    calibrated: bool = True,
) -> Frequencies:
    r"""Decide how common classes are among all points.

    If labels look chosen class by class (:func:`chosen_by_class`), their numbers say nothing, and all classes have
    learned with equal weight. Expectation-maximization (:func:`estimate_priors`) estimates frequencies π from the
    unlabeled points, but a model's errors make equally common classes look unequal too. With d the share of points that
    the estimate moves and n labels per class, probabilities are multiplied by

    .. math:: \left( \frac{\pi}{\pi_0} \right)^b r^{(1 - b) \min(1, 2 / \sqrt{n})}, \qquad
        b = \frac{d^4}{d^4 + (0.12 (1 + 1 / n))^4}

    with r the factors at which all classes are expected equally often (:func:`matching`); both exponents are lowered if
    the model is not confident of the unlabeled points. All of this is continuous: a little more or less of anything
    changes a few predictions. If some classes have far fewer labels than the others, a model finds too few of their
    points instead: only these classes are raised, until they are expected as often as the others.

    If labels look drawn at random, a class's frequency is its share of them; but few labels are uneven by chance.
    Probabilities are multiplied by r to the power of :func:`evenness` times 1 - b, with d the distance of the
    frequencies that the model expects from equal ones, and 0.24 in place of 0.12.

    What raises few-labeled classes or evens random labels is lowered until out-of-fold labels support it
    (:func:`supported_power`).

    Args:
        option: As :class:`~sobgnn.SobolevClassifier` takes it.
        classes: [C].
        probabilities: Learned probabilities of the unlabeled points, [M, C].
        out_of_fold: Out-of-fold probabilities of the judged labels, [J, C].
        labels: The labels.
        held_out: The labels that ``out_of_fold`` belongs to, if a refit has other labels than the earlier fit, which
            held some out.
        calibrated: Whether probabilities are calibrated; those of a single family are not.
    """
    learned = np.bincount(labels.codes, labels.weight, minlength=labels.classes) / labels.weight.sum()
    shares = np.bincount(labels.codes, minlength=labels.classes) / len(labels.codes)
    held_out = labels if held_out is None else held_out
    if option != "auto":
        given = check_class_priors(option, classes)
        assumed = shares if given is None else given
        return Frequencies(assumed, assumed / learned)
    unchanged = Frequencies(learned if labels.chosen else shares, np.ones(labels.classes))
    if not len(probabilities) or not calibrated:
        return unchanged
    p = probabilities[:: -(-len(probabilities) // _POINTS)].astype(np.float64)
    even = np.full(labels.classes, 1 / labels.classes)
    if not labels.chosen:
        believed = _believed(p.mean(axis=0), even, _HALF_AT_RANDOM, labels)
        power = evenness(labels.codes, labels.classes) * (1 - believed)
        factor = matching(p, even) ** power
        supported = supported_power(factor, out_of_fold, held_out)
        power *= supported
        return Frequencies(power * even + (1 - power) * shares, factor**supported)
    certainty = (float(p.max(axis=1).mean()) - 1 / labels.classes) / (1 - 1 / labels.classes)
    shown = min(1.0, certainty / _CONFIDENT)
    few = much_fewer(labels.codes, labels.classes)
    if few.any():
        factor = matching(p, even, few) ** (shown * bool(labels.folds))
        return Frequencies(learned, factor ** supported_power(factor, out_of_fold, held_out))
    estimate = estimate_priors(p, learned)
    believed = shown * _believed(estimate, learned, _HALF, labels)
    bias = min(1.0, (_WHOLE * labels.classes / len(labels.codes)) ** 0.5)
    assumed = learned * (estimate / learned) ** believed
    factor = assumed / learned * matching(p, learned) ** ((shown - believed) * bias)
    return Frequencies(assumed / assumed.sum(), factor)


def _believed(estimate: _Array, assumed: _Array, half: float, labels: Labels) -> float:
    """b of :func:`class_frequencies`: how far an estimate counts against equal frequencies, from 0 to 1."""
    moved = 0.5 * float(np.abs(estimate - assumed).sum())
    doubt = half * (1 + labels.classes / len(labels.codes))
    return moved**4 / (moved**4 + doubt**4)


def shift_priors(probabilities: _Array, ratio: _Array) -> _Array:
    """Probabilities [N, C] under class frequencies that are ``ratio`` [C] times those they were learned with."""
    shifted: _Array = probabilities * ratio
    shifted /= shifted.sum(axis=1, keepdims=True)
    return shifted


def estimate_priors(probabilities: _Array, assumed: _Array) -> _Array:
    r"""Class frequencies among points by expectation-maximization (Saerens et al., 2002), with a Dirichlet prior.

    .. math:: \pi \leftarrow \frac{A \pi_0 + \sum_i q_i}{A + N}, \qquad q_{ic} \propto p_{ic} \, \pi_c / \pi_{0,c}

    with A = 0.3 N.

    Args:
        probabilities: Calibrated probabilities of points whose class is unknown, [N, C].
        assumed: π_0, the frequencies that the probabilities were learned with, [C].
    """
    found = assumed
    for _ in range(_STEPS):
        expected = shift_priors(probabilities, found / assumed).mean(axis=0)
        found = (_DIRICHLET * assumed + expected) / (_DIRICHLET + 1)
        found = found.clip(assumed / _MOST_COMMON, assumed * _MOST_COMMON)
        found /= found.sum()
    return np.asarray(found)


def matching(probabilities: _Array, frequencies: _Array, raised: npt.NDArray[np.bool_] | None = None) -> _Array:
    r"""Factors r, [C], that bring the expected class frequencies to π: the mean of :math:`q_i` is π.

    .. math:: q_{ic} \propto r_c \, p_{ic}

    They have the geometric mean 1, and none is above 100 or below 1/100.

    Args:
        probabilities: p, [N, C].
        frequencies: π, [C].
        raised: Classes that are raised, [C], at most 6 times; the factors of all others are 1.
    """
    factor = np.ones(len(frequencies))
    for _ in range(_STEPS):
        factor *= frequencies / shift_priors(probabilities, factor).mean(axis=0).clip(min=1e-9)
        if raised is None:
            factor /= np.exp(np.log(factor).mean())
        else:
            factor = np.where(raised, factor.clip(1, _MOST_RAISED), 1)
        factor = factor.clip(1 / _MOST_PROBABLE, _MOST_PROBABLE)
    return factor


def supported_power(factor: _Array, out_of_fold: _Array, labels: Labels) -> float:
    """The largest power of factors [C] that loses no more out-of-fold labels than chance would.

    That is one standard deviation over the labels whose prediction changes. A confident model needs huge factors to
    move a few points, and is mostly right about these.
    """
    codes, weight = labels.codes[labels.judged], labels.weight[labels.judged]
    before = out_of_fold.argmax(axis=1) == codes
    for power in np.linspace(1, 0, _STEPS + 1):
        after = shift_priors(out_of_fold, factor**power).argmax(axis=1) == codes
        lost = float(weight[before & ~after].sum() - weight[after & ~before].sum())
        if lost <= float(np.square(weight[before != after]).sum()) ** 0.5:
            break
    return float(power)


def chosen_by_class(codes: npt.NDArray[np.int64], classes: int) -> bool:
    r"""Whether labels look chosen class by class, instead of drawn at random.

    This is the case if all classes have the same number of labels, or if at least half of them have nearly the largest
    number and these differ less than by chance: for F equally common classes,

    .. math:: \sum_c \frac{(|n_c - \bar{n}| + 1/2)^2}{\bar{n}} \sim \chi^2_{F-1}

    would be as small in fewer than 2 % of random draws, or 15 % if their numbers are equal, because people who choose
    numbers mostly choose a single one. A class's number of labels then does not show how common it is.
    """
    from scipy.special import gammainc

    counts = np.bincount(codes, minlength=classes)
    if counts.min() == counts.max():
        return True
    alike = counts[counts >= _ALIKE * counts.max()]
    if len(alike) < max(2, len(counts) / 2):
        return False
    spread = np.square(np.abs(alike - alike.mean()) + 0.5).sum() / alike.mean()
    limit = _BY_CHANCE if alike.min() == alike.max() else _NEARLY_BY_CHANCE
    return bool(gammainc((len(alike) - 1) / 2, spread / 2) < limit)


def evenness(codes: npt.NDArray[np.int64], classes: int) -> float:
    r"""How strongly labels of points drawn at random support equally common classes, from 0 to 1.

    .. math:: \frac{B^2}{B^2 + 6^2}, \qquad B = \frac{C^{-n} \, (n + C - 1)!}{(C - 1)! \, \prod_c n_c!}

    with B how many times more probable their numbers :math:`n_c`, n in total, are with equal frequencies than with
    others, all of which are assumed to be equally probable.
    """
    from scipy.special import expit, gammaln

    counts, total = np.bincount(codes, minlength=classes), len(codes)
    ratio = gammaln(total + classes) - gammaln(classes) - gammaln(counts + 1).sum() - total * np.log(classes)
    return float(expit(2 * (ratio - np.log(_HALF_EVEN))))


def much_fewer(codes: npt.NDArray[np.int64], classes: int) -> npt.NDArray[np.bool_]:
    """Which classes have less than a third as many labels as the class with the most, [C]."""
    counts = np.bincount(codes, minlength=classes)
    return np.asarray(counts < _FEW * counts.max())


def check_class_priors(option: object, classes: npt.NDArray[Any]) -> _Array | None:
    """Class frequencies given by a dict, [C]; ``None`` without a dict. Raises if they are invalid."""
    if option is None or (isinstance(option, str) and option == "auto"):
        return None
    if not isinstance(option, Mapping) or set(option) != set(classes.tolist()):
        raise ValueError(
            f'`class_priors` must be "auto", None or a share for each class of y, but got {option!r} for '
            f"{classes.tolist()}."
        )
    try:
        shares = np.array([float(option[name]) for name in classes.tolist()])
    except (TypeError, ValueError):
        raise ValueError(f"`class_priors` must hold numbers, but got {dict(option)!r:.120}.") from None
    if not (np.isfinite(shares).all() and (shares > 0).all()):
        raise ValueError(f"`class_priors` must be positive and finite, but got {dict(option)!r}.")
    # A tiny share stays above 0 in single precision.
    shares = (shares / shares.max()).clip(min=1e-9)
    return np.asarray(shares / shares.sum())
