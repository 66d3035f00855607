"""Checks of what users pass: the estimator's parameters, X, and its blank cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from sobgnn.estimator.features import Scale
from sobgnn.estimator.state import shaped
from sobgnn.graphs.knn import check_bandwidth
from sobgnn.operators import check_alpha, check_epsilon

# Largest values: anything above is a mistake or a forged file, and would exhaust memory.
_MOST = {"k": 10**6, "hidden_channels": 10**5, "num_layers": 1000, "n_members": 10**4, "epochs": 10**6, "alpha": 100}
# Allowed texts.
_ONE_OF = {
    "metric": ("euclidean", "cosine"), "symmetrize": ("union", "mutual"), "method": ("auto", "exact", "cells"),
}  # fmt: skip
# Sums over all points and differences of values up to this size are finite.
_LARGEST = 1e300


@dataclass(frozen=True)
class Networks:
    """Settings that the families of networks share, as in :class:`~sobgnn.SobolevClassifier`."""

    alpha: int = 2
    epsilon: float = 0.3
    hidden_channels: int = 64
    num_layers: int = 2
    dropout: float = 0.5
    n_members: int = 5
    epochs: int = 200
    lr: float = 0.03
    weight_decay: float = 5e-3

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Networks:
        """The settings among the estimator's parameters, by name."""
        named = {each.name: settings[each.name] for each in fields(cls)}
        # NumPy numbers are accepted, but JSON cannot hold them.
        return cls(**{name: value.item() if isinstance(value, np.generic) else value for name, value in named.items()})

    def check(self, sizes: Mapping[str, int], points: Any) -> None:
        """Raise ValueError if a setting is invalid."""
        check_networks(vars(self))


def check_settings(settings: Mapping[str, Any], families: Sequence[str]) -> None:
    """Raise a one-line error if a parameter of :class:`~sobgnn.SobolevClassifier` is invalid.

    Args:
        settings: Parameters by name.
        families: The names allowed in ``families``.
    """
    check_networks(settings)
    check_bandwidth(settings["bandwidth"])
    if settings["n_components"] is not None:
        check_whole("n_components", settings["n_components"], most=_MOST["k"], otherwise="None or ")
    scale, known = settings["scale"], get_args(Scale)
    pair = scale if isinstance(scale, tuple) else (scale, scale)
    if not _is(scale, "auto") and not (len(pair) == 2 and all(one is None or _is(one, *known) for one in pair)):
        raise ValueError(f"`scale` must be 'auto', one of {(None, *known)} or a pair of them, but got {scale!r}.")
    for name, choices in _ONE_OF.items():
        if not _is(settings[name], *choices):
            raise ValueError(f"`{name}` must be one of {', '.join(choices)}, but got {settings[name]!r}.")
    priors = settings["class_priors"]
    if priors is not None and not _is(priors, "auto") and not isinstance(priors, Mapping):
        raise ValueError(f'`class_priors` must be "auto", None or a dict, but got {priors!r:.60}.')
    if not isinstance(settings["warm_start"], (bool, np.bool_)):
        raise ValueError(f"`warm_start` must be True or False, but got {settings['warm_start']!r:.60}.")
    if not isinstance(settings["verbose"], (bool, np.bool_)):
        check_whole("verbose", settings["verbose"], 0)
    _check_families(settings["families"], families)
    state = settings["random_state"]
    if state is not None and not isinstance(state, np.random.RandomState):
        check_whole("random_state", state, 0, otherwise="None, a RandomState or ")


def check_networks(settings: Mapping[str, Any]) -> None:
    """Raise ValueError if one of some settings of networks and graphs is invalid."""
    check_alpha(settings["alpha"])
    check_epsilon(settings["epsilon"])
    for name, most in _MOST.items():
        if name in settings:
            check_whole(name, settings[name], most=most)
    for name, low, high in (("lr", None, 1.0), ("weight_decay", 0, 1.0), ("dropout", 0, 0.99)):
        value = settings[name]
        number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and (value > 0 if low is None else value >= 0) and value <= high):
            bound = "above 0" if low is None else "at least 0"
            raise ValueError(f"`{name}` must be a number {bound} and at most {high:g}, but got {value!r}.")


def check_whole(name: str, value: Any, least: int = 1, *, most: int | None = None, otherwise: str = "") -> None:
    """Raise unless a value is an integer from ``least`` to ``most``; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"`{name}` must be {otherwise}an integer of at least {least}, but got {value!r:.60}.")
    if most is not None and value > most:
        raise ValueError(f"`{name}` must be {otherwise}an integer of at most {most:,}, but got {value!r:.60}.")


def _is(value: Any, *choices: str) -> bool:
    """Whether a value is one of some strings; an array never is."""
    return isinstance(value, str) and value in choices


def _check_families(families: Any, known: Sequence[str]) -> None:
    if _is(families, "auto"):
        return
    listed = families if isinstance(families, (list, tuple)) else []
    names = [entry[0] if _is_pair(entry, known) else entry for entry in listed]
    good = all(_is_pair(entry, known) or _is(entry, "auto", *known) for entry in listed)
    for entry in listed:
        if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], type):
            raise ValueError(
                f"`families` must hold classifiers, but {entry[0]!r} is a class. Pass {entry[1].__name__}()."
            )
    if not listed or not good or len(set(names)) != len(names):
        raise ValueError(
            f'`families` must be "auto" or a list of it, of different names among {", ".join(known)}, and of pairs of '
            f"another name and a classifier, but got {families!r:.200}."
        )


def _is_pair(entry: Any, known: Sequence[str]) -> bool:
    """Whether an entry is a pair of a new name and a classifier that follows scikit-learn's contract."""
    if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and entry[0].strip()):
        return False
    predicts = any(hasattr(entry[1], method) for method in ("predict_proba", "decision_function", "predict"))
    fits = predicts and hasattr(entry[1], "fit") and hasattr(entry[1], "get_params")
    return fits and not isinstance(entry[1], type) and entry[0] not in ("auto", *known) and "(" not in entry[0]


@dataclass(frozen=True)
class Filling:
    """How blank cells (NaN) of numeric columns are filled: with the column's median, and a column that marks them.

    Args:
        medians: Of the cells that are there, [F]; 0 for a column that is blank throughout.
        marked: The columns that had blank cells in training, [K]; each gets a further column of 0 and 1.
    """

    medians: npt.NDArray[np.float64] = field(metadata=shaped("features", most=np.inf))
    marked: npt.NDArray[np.int64] = field(metadata=shaped("marked", least=0))

    @classmethod
    def of(cls, X: npt.NDArray[Any]) -> Filling | None:
        """Learned from X [N, F]; ``None`` without a blank cell."""
        blank = np.isnan(X)
        if not blank.any():
            return None
        there = (X[~blank[:, column], column] for column in range(X.shape[1]))
        medians = np.array([np.median(cells) if len(cells) else 0.0 for cells in there], dtype=np.float64)
        return cls(medians, np.flatnonzero(blank.any(axis=0)))

    def __call__(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """X [M, F] without blank cells, and the marks: [M, F + K]."""
        blank = np.isnan(X)
        return np.hstack([np.where(blank, self.medians, X), blank[:, self.marked]])

    def check(self, sizes: Mapping[str, int], points: Any) -> None:
        """Raise ValueError if columns are marked that are not there, or twice."""
        if len(np.unique(self.marked)) != len(self.marked) or not (self.marked < sizes["features"]).all():
            raise ValueError("its medians and marked columns contradict each other")


def is_frame(X: Any) -> bool:
    """Whether X is a DataFrame of pandas or polars."""
    return type(X).__module__.split(".")[0] in ("pandas", "polars") and hasattr(X, "columns")


def checked_names(estimator: BaseEstimator, X: Any, *, reset: bool) -> None:
    """Check the columns of a frame, or remember them; errors are one line."""
    try:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    except ValueError as error:
        raise ValueError(_in_one_line(str(error))) from error


def checked(estimator: BaseEstimator, X: Any, **options: Any) -> Any:
    """Validate X with scikit-learn, dense or CSR; errors are one line, without the array or other estimators' names.

    Blank cells (NaN) of dense X are left.
    """
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan) if X.dtype.kind in "biuf" else X.filled()
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn sums X, which may give inf - inf
            finite: Any = True if sp.issparse(X) else "allow-nan"
            return validate_data(
                estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=finite, **options
            )
    except TypeError as error:
        if not any(kind in str(error) for kind in ("DateTime64", "TimeDelta64", "Timestamp", "Timedelta")):
            raise
        raise TypeError("X must hold numbers, but holds dates or times. Pass it as a DataFrame.") from error
    except ValueError as error:
        first = str(error).splitlines()[0]
        if first.startswith("Input X contains infinity") and not sp.issparse(X):
            raise ValueError(_not_finite(X)) from error
        if first.startswith("could not convert string to float"):
            held = first.partition(": ")[2]
            raise ValueError(f"X must hold numbers, but holds {held[:60]}. Pass it as a DataFrame.") from error
        raise ValueError(_in_one_line(str(error))) from error


def check_range(X: Any) -> None:
    """Raise if values are so large that their sums overflow."""
    values = X.data if sp.issparse(X) else X
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if largest > _LARGEST:
        raise ValueError(f"X must lie within ±{_LARGEST:g}, but reaches {largest:.3g}. Rescale it.")


def _not_finite(X: Any) -> str:
    """Which rows hold infinity, and what to do about them."""
    values = check_array(X, dtype=np.float64, ensure_all_finite=False)
    rows = np.flatnonzero(np.isinf(values).any(axis=1))
    which = f"{len(rows):,} row{'s' if len(rows) > 1 else ''} (first: row {rows[0]})" if len(rows) else "some rows"
    return f"X contains infinity or values too large in {which}. Make them NaN, which means blank, or drop the rows."


def _in_one_line(text: str) -> str:
    """An error of scikit-learn without the array that it shows; list items follow the line that introduces them."""
    first, *others = text.splitlines()
    about_names = first.startswith(("The feature names should match", "Expected unique column names"))
    kept = [line for line in others if line.startswith("Reshape") or (about_names and line.strip())]
    said = first.rstrip() if kept else first.rstrip(":")
    for line in kept:
        item = line.strip().removeprefix("- ")
        said += f" {item}" if said.endswith((":", ".", ",")) else f", {item}" if line.startswith("- ") else f". {item}"
    return said
