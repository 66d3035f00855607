"""Labels: encoding them as classes and codes, weighting them, and splitting them into folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from sobgnn._system.unknown import label_values, unknown_labels

_Codes = npt.NDArray[np.int64]
_Array = npt.NDArray[np.float64]

UNLABELED = -1
# Number of parts of the labels that are held out in turn.
FOLDS = 4
# A class with fewer labels than this keeps all of them in every fold: holding one out would leave too little.
LEAST_PER_CLASS = 3
# With fewer labels than this per class on average none is held out: the few that could be belong to only some classes.
LEAST_ON_AVERAGE = 2
# Copies are held out together if labeled points have labeled copies this much more often than unlabeled points do or,
# if every point is labeled, up to this many labels per distinct row: rows with few values repeat in new points too.
_MORE_OFTEN, _MOST_COPIES = 0.05, 5


@dataclass(frozen=True)
class Labels:
    """The labeled points, and the fold in which each of them is held out.

    Every family is fitted ``folds + 1`` times: fit f < ``folds`` does not see fold f, the last one sees everything.

    Args:
        index: [L], the labeled points.
        codes: [L], their classes.
        weight: [L], the weight of each label; 1 on average.
        fold: [L], in [0, folds), or -1 for a label that is never held out.
        classes: C.
        chosen: Whether labels were chosen class by class, so that their numbers do not show how common classes are.
        counted: bool [L], whether a held-out label is evaluated: of copies held out together, only one is. ``None``:
            all.
    """

    index: _Codes
    codes: _Codes
    weight: _Array
    fold: _Codes
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

    def shares(self) -> _Array:
        """The weight of each label in each fit, [folds + 1, L], rows summing to 1.

        A class has the same weight whether or not some of its labels are held out. Otherwise a held-out label would
        belong to a class with reduced weight, and every family would be biased against it.
        """
        known = self.known() * self.weight
        of_class = np.eye(self.classes)[self.codes]
        have = known @ of_class
        whole = self.weight @ of_class
        factor = np.divide(whole, have, out=np.zeros_like(have), where=have > 0)
        shares: _Array = known * factor[:, self.codes]
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The labeled points and their classes, [L] each."""
        return torch.from_numpy(self.index).to(device), torch.from_numpy(self.codes).to(device)

    def out_of_fold(self, probabilities: Tensor) -> _Array:
        """Out-of-fold probabilities [J, C] of the evaluated labels, from those of every fit, [folds + 1, N, C]."""
        return self.each_fold(
            lambda fold, held: probabilities[fold, torch.from_numpy(self.index[held]).to(probabilities.device)]
        )

    def each_fold(self, predict: Callable[[int, _Codes], Tensor | npt.NDArray[Any]]) -> _Array:
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
    codes: _Codes,
    weight: _Array,
    classes: int,
    generator: np.random.Generator,
    chosen: bool = False,
    together: _Codes | None = None,
) -> Labels:
    """Labels of points [N] (-1: none) in stratified folds.

    Classes with fewer than 3 labels are never held out, and with fewer than 2 labels per class on average none is.
    Labels with the same number in ``together`` [L] are in one fold, and only the first of them is evaluated.
    """
    index = np.flatnonzero(codes >= 0)
    given = codes[index]
    first = every = np.arange(len(given))
    if together is not None:
        _, first, every = np.unique(together, return_index=True, return_inverse=True)
    counts = np.bincount(given[first], minlength=classes)
    enough = counts[given[first]] >= LEAST_PER_CLASS
    fold = np.full(len(first), -1)
    if enough.any() and len(first) >= LEAST_ON_AVERAGE * classes:
        fold[enough] = stratified_folds(given[first][enough], min(FOLDS, int(counts.max())), generator)
    counted = np.isin(np.arange(len(given)), first)
    return Labels(index, given, weight / weight.mean(), fold[every], classes, chosen, counted)


def stratified_folds(codes: _Codes, folds: int, generator: np.random.Generator) -> _Codes:
    """A fold for each label [L], every class spread over the folds as evenly as possible."""
    fold = np.empty(len(codes), np.int64)
    offset = 0
    for code in np.unique(codes):
        members = generator.permutation(np.flatnonzero(codes == code))
        # The next class continues where this one ended, so that small classes do not all fill the first folds.
        fold[members] = (np.arange(len(members)) + offset) % folds
        offset += len(members)
    return fold


def copies_together(X: Any, codes: _Codes) -> _Codes | None:
    """Which labels must be held out together: a number for each [L], the same for equal rows; ``None``: any split.

    A held-out label represents the unlabeled points. If these have labeled copies as often as labeled points do, as in
    tables with few distinct values, copies are part of the task. If they do not, as with several rows per customer and
    only some customers labeled, held-out labels would be predicted from their own copies.
    """
    known, row = codes >= 0, _numbered(X)
    often = float((np.bincount(row[known])[row[known]] > 1).mean())
    if known.all():
        return row if often and len(row) <= _MOST_COPIES * len(np.unique(row)) else None
    return row[known] if often > float(np.isin(row[~known], row[known]).mean()) + _MORE_OFTEN else None


def _numbered(X: Any) -> _Codes:
    """A number for each row [N], the same for equal rows."""
    if sp.issparse(X):
        csr = sp.csr_array(X, copy=True)
        csr.sum_duplicates()
        csr.eliminate_zeros()
        ends = zip(csr.indptr[:-1], csr.indptr[1:], strict=True)
        rows = [csr.indices[a:b].tobytes() + csr.data[a:b].tobytes() for a, b in ends]
        return np.unique(np.array(rows, dtype=object), return_inverse=True)[1]
    dense = np.ascontiguousarray(X) + 0.0  # -0 is 0
    seen = dense.view(np.dtype((np.void, dense.itemsize * dense.shape[1]))).ravel()
    return np.unique(seen, return_inverse=True)[1]


@contextmanager
def one_label_per_class_allowed() -> Iterator[None]:
    """Silence scikit-learn's warning that y looks like a regression target if most classes have one label."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
        yield


def encode_labels(y: Any, num_points: int) -> tuple[npt.NDArray[Any], _Codes]:
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
    classes: npt.NDArray[Any], codes: _Codes, rows: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], _Codes]:
    """The classes [C'] and codes [N] of :func:`encode_labels` without the labels of some rows, bool [N]."""
    left = np.where(rows, UNLABELED, codes)
    if not (left >= 0).any():
        raise ValueError("`sample_weight` is 0 for every labeled row. Give at least one of each class a weight.")
    kept, inverse = np.unique(left[left >= 0], return_inverse=True)
    left[left >= 0] = inverse
    return classes[kept], left


def known_accuracy(predicted: npt.NDArray[Any], classes: npt.NDArray[Any], y: Any, sample_weight: Any = None) -> float:
    """The share of predicted classes [M] that are right, among rows whose label in y [M] is known, by their weights."""
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


def class_weights(how: Any, classes: npt.NDArray[Any], codes: _Codes) -> _Array:
    """The weight of each class, [C]: 1, for "balanced" inverse to its number of labels, or as given by a dict."""
    if how is None:
        return np.ones(len(classes))
    if isinstance(how, str) and how == "balanced":
        return np.asarray(len(codes) / (len(classes) * np.bincount(codes, minlength=len(classes))))
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
