"""Class frequencies among all points, which may differ from each class's share of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.labels import Labels

_Array = npt.NDArray[np.float64]

# Points' worth of the frequencies that were assumed, as a share of the points; and steps of EM.
_STRENGTH, _STEPS = 0.5, 20
# A class is taken to be at most this many times more or less common than was assumed, before all are made to sum to 1.
_MOST = 4.0
# The share of points that would have to change class for the estimate up to which it is taken for the model's errors:
# with 3 labels per class or more, and with 1; and how much more it takes to be believed as it is.
_DOUBTED, _DOUBTED_ONE, _BELIEVED = 0.08, 0.18, 0.04
# How much of what a model leans toward classes out of fold is taken for what it leans among the unlabeled points.
_LEANING = 0.5
# To be expected equally often a class is made at most so many times more or less probable than others on average: one
# of which there is nothing among the points is not conjured up. The suite's data sets need 26 at most.
_MOST_EVENED = 100.0
# Labels per class up to which a model's leaning is taken out whole, where classes are taken to be equally common.
_WHOLE = 4
# How many times more probable labels must be with equal class frequencies than with others to be half believed in them.
_HALF_EVEN = 6.0
# The share of points that a model may expect in other classes than if all were equally common, and still be taken to
# err: times the root of the labels per class, and times their number. From twice the smaller share on it is believed.
_ERRING_ROOT, _ERRING = 0.5, 2.0
# Skill out of fold from which probabilities tell how common classes are. Below it the estimate follows the errors: on
# the data set actor, whose classes hardly anything tells apart, it cost 7 points.
_LEAST_SKILL = 0.3
# Numbers of labels are alike where they are at least this share of the largest one, and few below this share.
_ALIKE, _FEW = 0.9, 1 / 3
# Random draws that may look as if numbers had been chosen: where these are the same, and where they are nearly so.
_BY_CHANCE, _NEARLY_BY_CHANCE = 0.15, 0.02
# A class with fewer labels is raised at most this many times, and no further than costs the other classes this much
# out-of-fold recall; in steps.
_MOST_RAISED, _COST, _RAISE_STEPS = 20.0, 0.03, 20
# Steps in which factors are lowered that out-of-fold labels speak against.
_SUPPORT_STEPS = 20
# Points at most that frequencies are told from.
_POINTS = 20_000


@dataclass(frozen=True)
class Frequencies:
    """How common classes are taken to be.

    Attributes:
        assumed: Their frequencies among all points, [C].
        factor: What the probabilities, as learned, are multiplied by for it, [C].
    """

    assumed: _Array
    factor: _Array


def label_frequencies(labels: Labels) -> _Array:
    """Each class's share of the labels, [C]."""
    counts = np.bincount(labels.codes, minlength=labels.classes)
    return np.asarray(counts / counts.sum())


def learnt_frequencies(labels: Labels) -> _Array:
    """Each class's share of the labels by their weights, [C]: the frequencies that the families have learned with."""
    counts = np.bincount(labels.codes, labels.weight, minlength=labels.classes)
    return np.asarray(counts / counts.sum())


def chosen_by_class(codes: npt.NDArray[np.int64], classes: int) -> bool:
    r"""Whether labels look as if a number had been chosen of each class, instead of points at random.

    That is the case where all classes have the same number, or where at least half of them have nearly the largest
    number n and these differ less than chance would have it: of F classes that are equally common,

    .. math:: \sum_c \frac{(|n_c - \bar{n}| + 1/2)^2}{\bar{n}} \sim \chi^2_{F-1}

    would be as small in fewer than 2 % of random draws, or 15 % where their numbers are the same: who chooses numbers
    mostly chooses one. Then a class's number of labels does not tell how common it is.
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
    r"""How far labels of points drawn at random speak for classes that are equally common, from 0 to 1.

    .. math:: \frac{B^2}{B^2 + 6^2}, \qquad B = \frac{C^{-n} \, (n + C - 1)!}{(C - 1)! \, \prod_c n_c!}

    with B how many times more probable their numbers :math:`n_c`, n in all, are with equal frequencies than with
    others, all of which are taken to be equally probable.
    """
    from scipy.special import expit, gammaln

    counts, total = np.bincount(codes, minlength=classes), len(codes)
    ratio = gammaln(total + classes) - gammaln(classes) - gammaln(counts + 1).sum() - total * np.log(classes)
    return float(expit(2 * (ratio - np.log(_HALF_EVEN))))


def much_fewer(codes: npt.NDArray[np.int64], classes: int) -> npt.NDArray[np.bool_]:
    """Which classes have less than a third as many labels as the one with the most, [C]."""
    counts = np.bincount(codes, minlength=classes)
    return np.asarray(counts < _FEW * counts.max())


def few_labelled(labels: Labels) -> npt.NDArray[np.bool_]:
    """Which classes have far fewer labels than others whose number was chosen, [C]."""
    return much_fewer(labels.codes, labels.classes) & labels.chosen


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
    return np.asarray(found)


def shift_priors(probabilities: _Array, ratio: _Array) -> _Array:
    """Probabilities [N, C] under class frequencies that are ``ratio`` [C] times those they were learned with."""
    shifted = probabilities * ratio
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def matching(probabilities: _Array, frequencies: _Array, weight: _Array | None = None) -> _Array:
    r"""Factors r, [C], by which classes are expected as often as wanted: the mean of :math:`q_i` is π.

    .. math:: q_{ic} \propto r_c \, p_{ic}

    They have the geometric mean 1, and none is above 100 or below 1/100.

    Args:
        probabilities: p, [N, C].
        frequencies: π, [C].
        weight: What each row counts, [N].
    """
    factor = np.ones(len(frequencies))
    for _ in range(_STEPS if len(probabilities) else 0):
        expected = np.average(shift_priors(probabilities, factor), axis=0, weights=weight)
        factor *= frequencies / expected.clip(min=1e-9)
        factor = (factor / np.exp(np.log(factor).mean())).clip(1 / _MOST_EVENED, _MOST_EVENED)
    return factor


def estimate_frequencies(probabilities: _Array, out_of_fold: _Array, labels: Labels) -> Frequencies:
    r"""How common classes are where a number of labels was chosen of each, from the points without a label.

    Such labels do not tell how common classes are; the unlabeled points may, but a model's errors make classes that are
    equally common look as if they were not. Its leaning shows out of fold, where it is known that all classes count
    alike. With half of it taken out, expectation-maximization (:func:`estimate_priors`) moves a share of the points
    to other classes. Where this is little, less than 8 % or, with n labels per class, 18 % / n, classes are taken to be
    equally common, and probabilities are made to expect each class equally often (:func:`matching`), up to the power
    :math:`\min(1, 2 / \sqrt{n})` since more labels leave less of a leaning. From 4 % more on the estimate
    is taken, or, where nothing is held out, nothing changed; in between lies what is between.

    Args:
        probabilities: Of the unlabeled points, as learned, [M, C].
        out_of_fold: Of the judged labels, while they were held out, [J, C].
        labels: The labels.
    """
    learnt = learnt_frequencies(labels)
    per_class = len(labels.codes) / labels.classes
    if labels.folds:
        leaning = matching(out_of_fold, learnt, labels.weight[labels.judged]) ** _LEANING
        found = estimate_priors(shift_priors(probabilities, leaning), learnt)
        estimate = estimate_priors(probabilities, learnt)
    else:
        found, estimate = probabilities.mean(axis=0), learnt
    moved = 0.5 * float(np.abs(found - learnt).sum())
    believed = float(np.clip((moved - max(_DOUBTED, _DOUBTED_ONE / per_class)) / _BELIEVED, 0, 1))
    evened = matching(probabilities, learnt) ** min(1.0, (_WHOLE / per_class) ** 0.5)
    assumed = learnt * (estimate / learnt) ** believed
    return Frequencies(assumed / assumed.sum(), (estimate / learnt) ** believed * evened ** (1 - believed))


def frequencies_of_sample(probabilities: _Array, labels: Labels) -> Frequencies:
    """How common classes are where the labeled points were drawn at random.

    Of classes that are equally common some have more labels than others by chance, and a model that has learned from
    them expects those too often. As far as labels speak for equal frequencies (:func:`evenness`, a power), classes are
    made to be expected equally often (:func:`matching`); as far as they do not, their shares of the labels are taken.
    With n labels per class a model errs by up to 0.5 / √n of the points in this, and up to 2 / n; one that expects more
    of them in other classes than equal frequencies would have it is believed by and by, and from twice as many on.

    Args:
        probabilities: Of the unlabeled points, as learned, [M, C].
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


def raise_few_labelled(probabilities: _Array, out_of_fold: _Array, labels: Labels) -> _Array:
    """How many times more probable classes with few labels are made, [C]; 1 for all others.

    Few labels show a model a small part of a class, so it finds too few of its points. The class is raised until as
    many points are expected in it as in the others on average, but no further than costs these 0.03 of recall out of
    fold.

    Args:
        probabilities: Of points whose class is not known, [N, C], classes counting alike.
        out_of_fold: Of the judged labels, while they were held out, [J, C].
        labels: The labels.
    """
    few = few_labelled(labels)
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
    """How common classes are among all points, and which of them are raised for their few labels.

    Args:
        option: ``"auto"``, ``None``, or shares by class, as :class:`~sobgnn.SobolevClassifier` takes them.
        classes: [C].
        probabilities: Of the unlabeled points, as learned, [M, C].
        out_of_fold: Of the judged labels, while they were held out, [J, C].
        labels: The labels.
        held_out: Those that ``out_of_fold`` is of, where a refit has other labels than the fit before, which held some
            out.
        calibrated: Whether probabilities are as sure as they are right; those of one family by itself are not.
    """
    learnt = learnt_frequencies(labels)
    some = probabilities[:: 1 + len(probabilities) // _POINTS].astype(np.float64)
    if option != "auto":
        assumed = given_frequencies(option, classes, labels)
        return Frequencies(assumed, assumed / learnt)
    if not labels.chosen:
        sample = frequencies_of_sample(some if calibrated else some[:0], labels)
        return supported(sample, out_of_fold, labels if held_out is None else held_out)
    telling = calibrated and (not labels.folds or skill(out_of_fold, labels) >= _LEAST_SKILL)
    if not telling or not len(some):
        return Frequencies(learnt, np.ones(labels.classes))
    # A class with few labels is recognized too seldom, and would be taken for rarer than it is.
    if few_labelled(labels).any():
        return Frequencies(learnt, raise_few_labelled(some, out_of_fold, labels))
    return estimate_frequencies(some, out_of_fold, labels)


def supported(found: Frequencies, out_of_fold: _Array, labels: Labels) -> Frequencies:
    """The frequencies as far as out-of-fold labels allow: their factors to the largest power that costs no more of them
    than chance would, one standard deviation of those whose answer changes.

    A sure model needs huge factors to be moved by a few points, and is mostly right about these. Labels must have been
    drawn at random: those chosen class by class are not as common as the points that they stand for.

    Args:
        found: What was found otherwise.
        out_of_fold: Of the judged labels, while they were held out, [J, C].
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
    learnt = learnt_frequencies(labels)
    return Frequencies(power * found.assumed + (1 - power) * learnt, found.factor**power)


def given_frequencies(option: object, classes: npt.NDArray[Any], labels: Labels) -> _Array:
    """Class frequencies among all points, [C]: as a dict gives them; for ``None`` each class's share of the labels."""
    given = check_class_priors(option, classes)
    return label_frequencies(labels) if given is None else given


def check_class_priors(option: object, classes: npt.NDArray[Any]) -> _Array | None:
    """Shares of classes as a dict gives them, [C]; ``None`` where there is none. Raises on what is not understood."""
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
    # A share of as good as nothing stays a number in single precision.
    shares = (shares / shares.max()).clip(min=1e-9)
    return np.asarray(shares / shares.sum())
