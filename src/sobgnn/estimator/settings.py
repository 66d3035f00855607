"""Checks of the estimator's parameters, and the settings that networks share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np

from sobgnn.estimator.features import Scale
from sobgnn.graphs.knn import check_bandwidth
from sobgnn.operators import check_alpha, check_epsilon


@dataclass(frozen=True)
class Networks:
    """Settings that the families of networks share, as in :class:`~sobgnn.SobolevClassifier`."""

    alpha: int = 2
    epsilon: float = 0.3
    hidden_channels: int = 64
    num_layers: int = 2
    dropout: float = 0.5
    members: int = 5
    epochs: int = 200
    lr: float = 0.03
    weight_decay: float = 5e-3

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Networks:
        """The settings among the estimator's parameters, by name."""
        named = {field.name: settings["n_members" if field.name == "members" else field.name] for field in fields(cls)}
        # NumPy numbers are accepted, but JSON cannot hold them.
        return cls(**{name: value.item() if isinstance(value, np.generic) else value for name, value in named.items()})

    def check(self) -> None:
        """Raise ValueError if a setting, which may be one of a file, is invalid."""
        values = {"n_members" if name == "members" else name: value for name, value in vars(self).items()}
        _check_networks(values)


# Largest values: anything above is a mistake or a forged file, and would exhaust memory.
_MOST = {"k": 10**6, "hidden_channels": 10**5, "num_layers": 1000, "n_members": 10**4, "epochs": 10**6}
_MOST_ORDERS = 100


def check_settings(settings: Mapping[str, Any], families: Sequence[str]) -> None:
    """Raise a one-line error if a parameter of :class:`~sobgnn.SobolevClassifier` is invalid.

    Args:
        settings: Parameters by name.
        families: The names allowed in ``families``.
    """
    check_whole("k", settings["k"], most=_MOST["k"])
    _check_networks(settings)
    check_bandwidth(settings["bandwidth"])
    if settings["n_components"] is not None:
        check_whole("n_components", settings["n_components"], most=_MOST["k"], otherwise="None or ")
    scale = settings["scale"]
    known = (None, *get_args(Scale))
    pair = scale if isinstance(scale, tuple) else (scale, scale)
    if not _is(scale, "auto") and not (len(pair) == 2 and all(one is None or _is(one, *known[1:]) for one in pair)):
        raise ValueError(f"`scale` must be 'auto', one of {known} or a pair of them, but got {scale!r}.")
    for name, choices in (
        ("metric", ("euclidean", "cosine")), ("symmetrize", ("union", "mutual")),
        ("method", ("auto", "exact", "cells")),
    ):  # fmt: skip
        if not _is(settings[name], *choices):
            raise ValueError(f"`{name}` must be one of {', '.join(choices)}, but got {settings[name]!r}.")
    priors = settings["class_priors"]
    if priors is not None and not _is(priors, "auto") and not isinstance(priors, Mapping):
        raise ValueError(f'`class_priors` must be "auto", None or a dict, but got {priors!r:.60}.')
    if not isinstance(settings["warm_start"], (bool, np.bool_)):
        raise ValueError(f"`warm_start` must be True or False, but got {settings['warm_start']!r:.60}.")
    verbose = settings["verbose"]
    if not isinstance(verbose, (bool, np.bool_)):
        check_whole("verbose", verbose, 0)
    _check_families(settings["families"], families)
    state = settings["random_state"]
    if state is not None and not isinstance(state, np.random.RandomState):
        check_whole("random_state", state, 0, otherwise="None, a RandomState or ")


def _check_networks(settings: Mapping[str, Any]) -> None:
    for name, most in _MOST.items():
        if name in settings:
            check_whole(name, settings[name], most=most)
    check_alpha(settings["alpha"])
    check_whole("alpha", settings["alpha"], most=_MOST_ORDERS)
    check_epsilon(settings["epsilon"])
    _check_number("lr", settings["lr"], 0, 1, above=True)
    _check_number("weight_decay", settings["weight_decay"], 0, 1)
    _check_number("dropout", settings["dropout"], 0, 0.99)


def _is(value: Any, *choices: str) -> bool:
    """Whether a value is one of some strings; an array never is."""
    return isinstance(value, str) and value in choices


def check_whole(name: str, value: Any, least: int = 1, *, most: int | None = None, otherwise: str = "") -> None:
    """Raise unless a value is an integer from ``least`` to ``most``; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"`{name}` must be {otherwise}an integer of at least {least}, but got {value!r:.60}.")
    if most is not None and value > most:
        raise ValueError(f"`{name}` must be {otherwise}an integer of at most {most:,}, but got {value!r:.60}.")


def _check_number(name: str, value: Any, low: float, high: float, *, above: bool = False, otherwise: str = "") -> None:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and (low < value if above else low <= value) and value <= high):
        bound = f"above {low:g}" if above else f"at least {low:g}"
        raise ValueError(f"`{name}` must be {otherwise}a number {bound} and at most {high:g}, but got {value!r}.")


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
