"""Labels: encoding them as classes and codes, weighting them, and splitting them into folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from sobgnn._system.unknown import label_values, unknown_labels

UNLABELED = -1
# Number of parts of the labels that are held out in turn.
FOLDS = 4
# A class with fewer labels than this keeps all of them in every fold: holding one out would leave too little.
LEAST_PER_CLASS = 3
# With fewer labels than this per class on average none is held out: the few that could be belong to only some classes.
LEAST_ON_AVERAGE = 2


@dataclass(frozen=True)
class Labels:
    """The labeled points, and the fold in which each of them is held out.

    Every family is fitted ``folds + 1`` times: fit f < ``folds`` does not see fold f, the last one sees everything.

    Args:
        index: int64 [L], the labeled points.
        codes: int64 [L], their classes.
        weight: float64 [L], the weight of each label; 1 on average.
        fold: int64 [L], in [0, folds), or -1 for a label that is never held out.
        classes: C.
        chosen: Whether labels were chosen class by class, so that their numbers do not show how common classes are.
        counted: bool [L], whether a held-out label is evaluated: of copies held out together, only one is. ``None``:
            all.
    """

    index: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    fold: npt.NDArray[np.int64]
    classes: int
    chosen: bool = False
    counted: npt.NDArray[np.bool_] | None = None

    @property
    def folds(self) -> int:
        """Number of folds; 0 if nothing is held out."""
        return int(self.fold.max(initial=-1)) + 1

    @property
    def judged(self) -> npt.NDArray[np.bool_]:
        """Which labels are held out in some fold and evaluated there, [L]."""
        held = np.asarray(self.fold >= 0)
        return held if self.counted is None else held & self.counted

    def known(self) -> npt.NDArray[np.bool_]:
        """Which labels each fit sees, [folds + 1, L]."""
        fits = np.arange(self.folds + 1)
        return np.asarray(self.fold != np.where(fits < self.folds, fits, -2)[:, None])

    def shares(self) -> npt.NDArray[np.float64]:
        """The weight of each label in each fit, [folds + 1, L], rows summing to 1.

        A class has the same weight whether or not some of its labels are held out. Otherwise a held-out label would
        belong to a class with reduced weight, and every family would be biased against it.
        """
        known = self.known() * self.weight
        of_class = np.eye(self.classes)[self.codes]
        have = known @ of_class
        whole = self.weight @ of_class
        factor = np.divide(whole, have, out=np.zeros_like(have), where=have > 0)
        shares: npt.NDArray[np.float64] = known * factor[:, self.codes]
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The labeled points and their classes, int64 [L] each."""
        return torch.from_numpy(self.index).to(device), torch.from_numpy(self.codes).to(device)

    def out_of_fold(self, probabilities: Tensor) -> npt.NDArray[np.float64]:
        """Out-of-fold probabilities [J, C] of the evaluated labels, from those of every fit, [folds + 1, N, C]."""
        rows = torch.from_numpy(self.fold[self.judged]), torch.from_numpy(self.index[self.judged])
        found = probabilities[rows[0].to(probabilities.device), rows[1].to(probabilities.device)]
        values: npt.NDArray[np.float64] = found.double().cpu().numpy()
        return values

    def each_fold(
        self, predict: Callable[[int, npt.NDArray[np.int64]], Tensor | npt.NDArray[Any]]
    ) -> npt.NDArray[np.float64]:
        """Out-of-fold probabilities [J, C] of the evaluated labels.

        ``predict`` is called with a fold and the positions [H] of its evaluated labels in ``index``, and returns their
        probabilities [H, C] by what was learned without this fold.
        """
        evaluated = np.flatnonzero(self.judged)
        out = np.full((len(evaluated), self.classes), np.nan)
        for fold in range(self.folds):
            here = np.flatnonzero(self.fold[evaluated] == fold)
            if len(here):
                found = predict(fold, evaluated[here])
                out[here] = found.double().cpu().numpy() if isinstance(found, Tensor) else found
        return out


def with_folds(
    codes: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    classes: int,
    generator: np.random.Generator,
    chosen: bool = False,
    together: npt.NDArray[np.int64] | None = None,
) -> Labels:
    """Labels of points [N] (-1: none) in stratified folds.

    Classes with fewer than 3 labels are never held out, and with fewer than 2 labels per class on average none is.
    Labels with the same number in ``together`` [L] are in one fold, and only the first of them is evaluated.
    """
    index = np.flatnonzero(codes >= 0)
    given = codes[index]
    first, every = np.arange(len(given)), np.arange(len(given))
    if together is not None:
        _, first, every = np.unique(together, return_index=True, return_inverse=True)
    counts = np.bincount(given[first], minlength=classes)
    enough = counts[given[first]] >= LEAST_PER_CLASS
    fold = np.full(len(first), -1)
    if enough.any() and len(first) >= LEAST_ON_AVERAGE * classes:
        fold[enough] = stratified_folds(given[first][enough], min(FOLDS, int(counts.max())), generator)
    fold = fold[every]
    counted = np.isin(np.arange(len(given)), first)
    return Labels(index, given, weight / weight.mean(), fold, classes, chosen, counted)


def stratified_folds(codes: npt.NDArray[np.int64], folds: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """A fold for each label [L], every class spread over the folds as evenly as possible."""
    fold = np.empty(len(codes), np.int64)
    offset = 0
    for code in np.unique(codes):
        members = generator.permutation(np.flatnonzero(codes == code))
        # The next class continues where this one ended, so that small classes do not all fill the first folds.
        fold[members] = (np.arange(len(members)) + offset) % folds
        offset += len(members)
    return fold


def encode_labels(y: Any, num_points: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The classes, sorted, and each point's class as an index into them; -1: unlabeled.

    Args:
        y: [N]. Unlabeled is -1, None, NaN, pandas' NA, or masked.
        num_points: N.
    """
    values = label_values(y)
    if values.dtype.kind not in "OUSbiufT":
        raise ValueError(f"y must hold texts or numbers, but holds {values.dtype}.")
    if values.ndim == 2 and values.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Use y.ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
        values = values.ravel()
    if values.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {values.shape} instead.")
    if values.size != num_points:
        raise ValueError(f"y must have one entry per row of X, but got {values.size} for {num_points} rows.")
    known = ~unknown_labels(values)
    if not known.any():
        raise ValueError(
            f"y has no labeled sample: all {values.size} entries are -1, None or NaN. Give at least one sample of "
            "each class its label."
        )
    if _has_both_marks(values):
        warnings.warn(
            "y holds both -1 and None or NaN, which all mean unlabeled. If -1 is a class, give it another name.",
            stacklevel=4,
        )
    given = _uniform(values[known])
    with one_label_per_class_allowed():
        check_classification_targets(given)
    classes, inverse = np.unique(given, return_inverse=True)
    if "-1" in classes.tolist():
        warnings.warn(
            'The text "-1" is treated as a class, because other labels are numbers as text too. If it means unlabeled, '
            "use None instead, or pass numbers instead of text.",
            stacklevel=4,
        )
    codes = np.full(values.size, UNLABELED, np.int64)
    codes[known] = inverse
    return classes, codes


def without_labels(
    classes: npt.NDArray[Any], codes: npt.NDArray[np.int64], rows: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The classes [C'] and codes [N] of :func:`encode_labels` without the labels of some rows, bool [N]."""
    left = np.where(rows, UNLABELED, codes)
    if not (left >= 0).any():
        raise ValueError("`sample_weight` is 0 for every labeled row. Give at least one of each class a weight.")
    kept, inverse = np.unique(left[left >= 0], return_inverse=True)
    left[left >= 0] = inverse
    return classes[kept], left


def known_accuracy(predicted: npt.NDArray[Any], classes: npt.NDArray[Any], y: Any, sample_weight: Any = None) -> float:
    """The share of predicted classes [M] that are right, among rows whose label in y [M] is known.

    Args:
        predicted: Some of ``classes``.
        classes: [C].
        y: [M], also as a column; unlabeled as in :func:`encode_labels`.
        sample_weight: Weight of each row, [M].
    """
    values = label_values(y)
    values = values.ravel() if values.ndim == 2 and values.shape[1] == 1 else values
    weight = None if sample_weight is None else np.asarray(sample_weight)
    for name, given in (("y", values), ("sample_weight", weight)):
        if given is not None and given.shape != predicted.shape:
            raise ValueError(f"{name} must have one entry per row of X, {len(predicted)}, but got {given.shape}.")
    known = np.flatnonzero(~unknown_labels(values))
    if not len(known):
        raise ValueError("y has no label to compare with: all entries are -1, None or NaN.")
    kinds = ["text" if isinstance(value, str) else "numbers" for value in (values[known[0]], classes[0])]
    if kinds[0] != kinds[1]:
        raise ValueError(f"y holds {kinds[0]}, but the model's classes are {kinds[1]}.")
    strange = known[~np.isin(values[known], classes)]
    if len(strange):
        warnings.warn(
            f"y has {len(strange)} of {len(known)} labels of classes that the model was not fitted with (first: "
            f"{values[strange[0]]!r}), which count as wrong. If y came from a split, shuffle or stratify it.",
            UserWarning,
            stacklevel=3,
        )
    right = predicted[known] == values[known]
    return float(np.average(right, weights=None if weight is None else weight[known]))


@contextmanager
def one_label_per_class_allowed() -> Iterator[None]:
    """Silence scikit-learn's warning that y looks like a regression target if most classes have one label."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
        yield


def class_weights(how: Any, classes: npt.NDArray[Any], codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The weight of each class, [C]: 1, for "balanced" inverse to its number of labels, or as given by a dict."""
    given = check_class_weight(how, classes)
    if given is not None:
        return given
    if how is None:
        return np.ones(len(classes))
    return np.asarray(len(codes) / (len(classes) * np.bincount(codes, minlength=len(classes))))


def check_class_weight(how: Any, classes: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """The class weights given by a dict, [C]; ``None`` without a dict. Raises if they are invalid."""
    if how is None or (isinstance(how, str) and how == "balanced"):
        return None
    if not isinstance(how, Mapping):
        raise ValueError(f'`class_weight` must be None, "balanced" or a dict, but got {how!r:.60}.')
    unknown = [key for key in how if key not in set(classes.tolist())]
    if unknown:
        raise ValueError(f"`class_weight` must name classes of y, but {unknown} are not among them.")
    try:
        values = np.array([float(how.get(name, 1.0)) for name in classes.tolist()])
    except (TypeError, ValueError):
        raise ValueError(f"`class_weight` must hold numbers, but got {dict(how)!r}.") from None
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise ValueError(f"`class_weight` must be finite, at least 0 and not all 0, but got {dict(how)!r}.")
    # A class of weight 0 is practically impossible, but its probability stays above 0.
    return values.clip(min=1e-9 * values.max())


def _has_both_marks(values: npt.NDArray[Any]) -> bool:
    """Whether numbers mark unlabeled points in two ways, by -1 and by None or NaN, so that -1 may be a class."""
    if values.dtype.kind == "f":
        return bool((values == -1).any() and np.isnan(values).any())
    if values.dtype.kind != "O":
        return False
    minus = np.array([isinstance(v, (int, float, np.integer, np.floating)) and v == -1 for v in values], dtype=bool)
    return bool(minus.any() and (unknown_labels(values) & ~minus).any())


def _uniform(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Object entries as one type: all texts, all numbers or all booleans."""
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise ValueError("Input y contains infinity. Labels are names or numbers; unlabeled is -1, None or NaN.")
    if given.dtype.kind == "f" and np.array_equal(given, np.rint(given)) and float(np.abs(given).max()) < 2**53:
        return given.astype(np.int64)  # integers became floats only to make room for NaN
    if given.dtype.kind != "O":
        return given
    if all(isinstance(value, str) for value in given):
        # Not as NumPy strings: each takes the memory of the longest, and trailing zero characters are dropped.
        return np.array([str(value) for value in given] + [None], dtype=object)[:-1]
    if all(isinstance(value, (bool, np.bool_)) for value in given):
        return given.astype(bool)
    if all(isinstance(value, (int, np.integer)) and abs(int(value)) < 2**63 for value in given):
        return given.astype(np.int64)
    if all(isinstance(value, (int, float, np.integer, np.floating)) for value in given):
        return _uniform(given.astype(np.float64))
    kinds = sorted({type(value).__name__ for value in given})
    raise TypeError(f"Labels must be all texts or all numbers, but got a mix of {', '.join(kinds)}.")
