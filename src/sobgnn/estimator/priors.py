"""Class frequencies among all points, which may differ from each class's share of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.labels import Labels

_Array = npt.NDArray[np.float64]

# Weight of the assumed frequencies in EM, as a share of the number of points; and steps of EM.
_STRENGTH, _STEPS = 0.5, 20
# A class is estimated at most this many times more or less common than assumed, before frequencies are normalized.
_MOST = 4.0
# The share of points that the estimate moves to other classes, up to which it is attributed to the model's errors: with
# many labels per class, and with 1; and how much more it takes for the estimate to be used fully.
_DOUBTED, _DOUBTED_ONE, _BELIEVED = 0.08, 0.18, 0.04
# Share of a model's out-of-fold bias toward classes that it is assumed to have on the unlabeled points.
_LEANING = 0.5
# To be expected equally often, a class is made at most this many times more or less probable than others on average: a
# class that is absent from the points must not be conjured up. The suite's data sets need at most 26.
_MOST_EVENED = 100.0
# Labels per class up to which a model's bias is removed fully, if classes are assumed to be equally common.
_WHOLE = 4
# How many times more probable labels must be with equal class frequencies than with others for an evenness of 1/2.
_HALF_EVEN = 6.0
# The share of points by which a model's expected frequencies may differ from equal ones and still be attributed to its
# errors: this number divided by the root of labels per class, or by labels per class. From twice the smaller share the
# model is trusted fully.
_ERRING_ROOT, _ERRING = 0.5, 2.0
# Out-of-fold skill from which probabilities show how common classes are. Below it the estimate follows the errors: on
# the data set actor, whose classes are hardly separable, it cost 7 points.
_LEAST_SKILL = 0.3
# Numbers of labels are similar if they are at least this share of the largest one, and few below this share.
_ALIKE, _FEW = 0.9, 1 / 3
# Share of random draws that may look as if numbers had been chosen: if these are equal, and if they are nearly equal.
_BY_CHANCE, _NEARLY_BY_CHANCE = 0.15, 0.02
# A class with fewer labels is raised at most this many times, and no further than costs the other classes this much
# out-of-fold recall; in steps.
_MOST_RAISED, _COST, _RAISE_STEPS = 20.0, 0.03, 20
# Steps in which factors that out-of-fold labels contradict are lowered.
_SUPPORT_STEPS = 20
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


def label_frequencies(labels: Labels) -> _Array:
    """Each class's share of the labels, [C]."""
    counts = np.bincount(labels.codes, minlength=labels.classes)
    return np.asarray(counts / counts.sum())


def learned_frequencies(labels: Labels) -> _Array:
    """Each class's weighted share of the labels, [C]: the frequencies that the families learned with."""
    counts = np.bincount(labels.codes, labels.weight, minlength=labels.classes)
    return np.asarray(counts / counts.sum())


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


def few_labeled(labels: Labels) -> npt.NDArray[np.bool_]:
    """Which classes have far fewer labels than the others, if labels were chosen class by class, [C]."""
    return much_fewer(labels.codes, labels.classes) & labels.chosen


def skill(out_of_fold: _Array, labels: Labels) -> float:
    """Balanced out-of-fold accuracy on a scale from guessing (0) to perfect (1); 0 without out-of-fold labels."""
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
        probabilities: Calibrated probabilities of points whose class is unknown, [N, C].
        assumed: π_0, the frequencies that the probabilities were learned with, [C].
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
    return np.asarray(found)


def shift_priors(probabilities: _Array, ratio: _Array) -> _Array:
    """Probabilities [N, C] under class frequencies that are ``ratio`` [C] times those they were learned with."""
    shifted = probabilities * ratio
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def matching(probabilities: _Array, frequencies: _Array, weight: _Array | None = None) -> _Array:
    r"""Factors r, [C], that bring the expected class frequencies to π: the mean of :math:`q_i` is π.

    .. math:: q_{ic} \propto r_c \, p_{ic}

    They have the geometric mean 1, and none is above 100 or below 1/100.

    Args:
        probabilities: p, [N, C].
        frequencies: π, [C].
        weight: Weight of each row, [N].
    """
    factor = np.ones(len(frequencies))
    for _ in range(_STEPS if len(probabilities) else 0):
        expected = np.average(shift_priors(probabilities, factor), axis=0, weights=weight)
        factor *= frequencies / expected.clip(min=1e-9)
        factor = (factor / np.exp(np.log(factor).mean())).clip(1 / _MOST_EVENED, _MOST_EVENED)
    return factor


def estimate_frequencies(probabilities: _Array, out_of_fold: _Array, labels: Labels) -> Frequencies:
    r"""Class frequencies if labels were chosen class by class, estimated from the unlabeled points.

    Such labels do not show how common classes are. The unlabeled points may, but a model's errors make equally common
    classes look unequal. Its bias shows out of fold, where all classes are known to have equal weight. With half of
    this bias removed, expectation-maximization (:func:`estimate_priors`) moves a share of the points to other classes.
    If the share is small, less than 8 % or, with n labels per class, 18 % / n, classes are assumed to be equally
    common, and probabilities are adjusted to expect each class equally often (:func:`matching`), with the power
    :math:`\min(1, 2 / \sqrt{n})`, since more labels leave less bias. If it is at least 4 % larger, the estimate is used
    or, if nothing is held out, nothing is changed; in between, the two are interpolated.

    Args:
        probabilities: Learned probabilities of the unlabeled points, [M, C].
        out_of_fold: Out-of-fold probabilities of the judged labels, [J, C].
        labels: The labels.
    """
    learned = learned_frequencies(labels)
    per_class = len(labels.codes) / labels.classes
    if labels.folds:
        leaning = matching(out_of_fold, learned, labels.weight[labels.judged]) ** _LEANING
        found = estimate_priors(shift_priors(probabilities, leaning), learned)
        estimate = estimate_priors(probabilities, learned)
    else:
        found, estimate = probabilities.mean(axis=0), learned
    moved = 0.5 * float(np.abs(found - learned).sum())
    believed = float(np.clip((moved - max(_DOUBTED, _DOUBTED_ONE / per_class)) / _BELIEVED, 0, 1))
    evened = matching(probabilities, learned) ** min(1.0, (_WHOLE / per_class) ** 0.5)
    assumed = learned * (estimate / learned) ** believed
    return Frequencies(assumed / assumed.sum(), (estimate / learned) ** believed * evened ** (1 - believed))


def frequencies_of_sample(probabilities: _Array, labels: Labels) -> Frequencies:
    """Class frequencies if the labeled points were drawn at random.

    Of equally common classes, some have more labels than others by chance, and a model that learned from these labels
    expects such classes too often. To the degree that labels support equal frequencies (:func:`evenness`, used as a
    power), classes are made to be expected equally often (:func:`matching`); otherwise their shares of the labels are
    used. With n labels per class, a model's expected frequencies may differ from equal ones by 0.5 / √n or 2 / n of the
    points, whichever is less, and still be errors; a model that differs more is trusted gradually, and fully from twice
    as much.

    Args:
        probabilities: Learned probabilities of the unlabeled points, [M, C].
        labels: The labels.
    """
    shares, even = label_frequencies(labels), np.full(labels.classes, 1 / labels.classes)
    if not len(probabilities):
        return Frequencies(shares, np.ones(labels.classes))
    moved = 0.5 * float(np.abs(probabilities.mean(axis=0) - even).sum())
    per_class = len(labels.codes) / labels.classes
    erring = float(np.clip(2 - moved / min(_ERRING_ROOT / per_class**0.5, _ERRING / per_class), 0, 1))
    power = evenness(labels.codes, labels.classes) * erring
    return Frequencies(power * even + (1 - power) * shares, matching(probabilities, even) ** power)


def raise_few_labeled(probabilities: _Array, out_of_fold: _Array, labels: Labels) -> _Array:
    """Factors, [C], that make classes with few labels more probable; 1 for all others.

    Few labels show a model only a small part of a class, so it finds too few of its points. The class is raised until
    as many points are expected in it as in the others on average, as long as the others lose at most 0.03 of
    out-of-fold recall.

    Args:
        probabilities: Probabilities of points whose class is unknown, [N, C], with equal class weights.
        out_of_fold: Out-of-fold probabilities of the judged labels, [J, C].
        labels: The labels.
    """
    few = few_labeled(labels)
    even = np.ones(labels.classes)
    if not few.any() or not len(probabilities) or not labels.folds:
        return even
    raised = even.copy()
    for _ in range(_RAISE_STEPS):
        expected = shift_priors(probabilities, raised).mean(axis=0)
        raised[few] = (raised[few] / (labels.classes * expected[few]).clip(min=1e-9)).clip(1, _MOST_RAISED)
    codes = labels.codes[labels.judged]

    def recall(factor: _Array) -> float:
        right = shift_priors(out_of_fold, factor).argmax(axis=1) == codes
        return float(np.mean([right[codes == code].mean() for code in np.unique(codes) if not few[code]]))

    least, factor = recall(even) - _COST, even
    for step in range(1, _RAISE_STEPS + 1):
        further = raised ** (step / _RAISE_STEPS)
        if recall(further) < least:
            break
        factor = further
    return np.asarray(factor)


def decide_frequencies(
    option: object,
    classes: npt.NDArray[Any],
    probabilities: npt.NDArray[np.floating[Any]],
    out_of_fold: _Array,
    labels: Labels,
    *,
    held_out: Labels | None = None,
    calibrated: bool = True,
) -> Frequencies:
    """Decide the class frequencies among all points, and which classes are raised because of few labels.

    Args:
        option: ``"auto"``, ``None``, or shares by class, as :class:`~sobgnn.SobolevClassifier` takes them.
        classes: [C].
        probabilities: Learned probabilities of the unlabeled points, [M, C].
        out_of_fold: Out-of-fold probabilities of the judged labels, [J, C].
        labels: The labels.
        held_out: The labels that ``out_of_fold`` belongs to, if a refit has other labels than the earlier fit, which
            held some out.
        calibrated: Whether probabilities are calibrated; those of a single family are not.
    """
    learned = learned_frequencies(labels)
    some = probabilities[:: 1 + len(probabilities) // _POINTS].astype(np.float64)
    if option != "auto":
        assumed = given_frequencies(option, classes, labels)
        return Frequencies(assumed, assumed / learned)
    if not labels.chosen:
        sample = frequencies_of_sample(some if calibrated else some[:0], labels)
        return supported(sample, out_of_fold, labels if held_out is None else held_out)
    telling = calibrated and (not labels.folds or skill(out_of_fold, labels) >= _LEAST_SKILL)
    if not telling or not len(some):
        return Frequencies(learned, np.ones(labels.classes))
    # A class with few labels is predicted too rarely, and would seem rarer than it is.
    if few_labeled(labels).any():
        return Frequencies(learned, raise_few_labeled(some, out_of_fold, labels))
    return estimate_frequencies(some, out_of_fold, labels)


def supported(found: Frequencies, out_of_fold: _Array, labels: Labels) -> Frequencies:
    """The frequencies, to the degree that out-of-fold labels support them.

    The factors are raised to the largest power that loses no more out-of-fold labels than chance would, one standard
    deviation over the labels whose prediction changes. A confident model needs huge factors to move a few points, and
    is mostly right about these. Labels must have been drawn at random: labels chosen class by class do not have the
    frequencies of the points that they represent.

    Args:
        found: The frequencies before this check.
        out_of_fold: Out-of-fold probabilities of the judged labels, [J, C].
        labels: The labels.
    """
    codes, weight = labels.codes[labels.judged], labels.weight[labels.judged]
    if not len(codes):
        return found
    before = out_of_fold.argmax(axis=1) == codes
    for step in range(_SUPPORT_STEPS, 0, -1):
        power = step / _SUPPORT_STEPS
        after = shift_priors(out_of_fold, found.factor**power).argmax(axis=1) == codes
        lost = float(weight[before & ~after].sum() - weight[after & ~before].sum())
        if lost <= float(np.square(weight[before != after]).sum()) ** 0.5:
            break
    else:
        power = 0.0
    learned = learned_frequencies(labels)
    return Frequencies(power * found.assumed + (1 - power) * learned, found.factor**power)


def given_frequencies(option: object, classes: npt.NDArray[Any], labels: Labels) -> _Array:
    """Class frequencies among all points, [C]: as given by a dict; for ``None``, each class's share of the labels."""
    given = check_class_priors(option, classes)
    return label_frequencies(labels) if given is None else given


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
