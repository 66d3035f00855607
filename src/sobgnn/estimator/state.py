"""The state of frozen dataclasses as JSON values and arrays, and back: one walk over their fields.

What is built is decided by the annotations of the class that is asked for, never by the file: a file only fills in
values. Each class's ``check`` then says whether these fit together.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Arrays = dict[str, npt.NDArray[Any]]
T = TypeVar("T")

# Metadata of fields that are not part of the state, and of those that may hold NaN.
NOT_SAVED: Mapping[str, Any] = {"saved": False}
NAN_ALLOWED: Mapping[str, Any] = {"nan": True}
# Metadata of a field that holds an instance of one of several classes: ``one_of(A, B)``.
_CHOICES = "choices"
_DTYPES = ("bool", "int32", "int64", "float32", "float64")


def one_of(*kinds: type) -> Mapping[str, Any]:
    """Metadata of a field, or of the entries of a field, that are instances of one of these classes."""
    return {_CHOICES: {kind.__name__: kind for kind in kinds}}


def to_state(value: Any) -> tuple[Any, Arrays]:
    """A value as JSON and arrays by name; an array that occurs twice is kept once."""
    arrays: Arrays = {}
    names: dict[int, str] = {}

    def walk(value: Any, name: str) -> Any:
        if isinstance(value, (np.ndarray, Tensor)):
            if id(value) not in names:
                names[id(value)] = name
                array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
                arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
            return {"array": names[id(value)]}
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return [walk(entry, f"{name}.{number}") for number, entry in enumerate(value)]
        if isinstance(value, Mapping):
            return {key: walk(entry, f"{name}.{key}") for key, entry in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            found = {
                field.name: walk(getattr(value, field.name), f"{name}.{field.name}".lstrip("."))
                for field in fields(value)
                if field.metadata.get("saved", True)
            }
            return {"class": type(value).__name__, **found}
        raise TypeError(f"{type(value).__name__} cannot be saved")

    return walk(value, ""), arrays


def from_state(kind: type[T], stored: Any, arrays: Arrays, device: torch.device | str = "cpu") -> T:
    """Rebuild an instance of ``kind`` from :func:`to_state`; tensors are put on the device.

    Raises:
        ValueError: A value is missing, or is not what the class's annotations say.
    """

    def array_of(stored: Any, name: str, metadata: Mapping[str, Any]) -> npt.NDArray[Any]:
        found = arrays.get(str(stored.get("array"))) if isinstance(stored, Mapping) else None
        if found is None or found.dtype.name not in _DTYPES:
            raise ValueError(f"its {name} is missing or of another type")
        if found.dtype.kind == "f" and "nan" not in metadata and not np.isfinite(found).all():
            raise ValueError(f"its {name} holds values that are not finite")
        return found

    def build(kind: Any, stored: Any, name: str, metadata: Mapping[str, Any]) -> Any:
        origin, inner = get_origin(kind), get_args(kind)
        if _CHOICES in metadata and isinstance(stored, Mapping):
            choices = metadata[_CHOICES]
            if stored.get("class") not in choices:
                raise ValueError(f"its {name} is of an unknown kind")
            return record(choices[stored["class"]], stored, name)
        if origin in (Union, types.UnionType):
            if stored is None and type(None) in inner:
                return None
            return build(next(part for part in inner if part is not type(None)), stored, name, metadata)
        if origin is Literal:
            if not any(type(stored) is type(choice) and stored == choice for choice in inner):
                raise ValueError(f"its {name} is not one of {inner}")
            return stored
        if kind is Tensor:
            return torch.from_numpy(array_of(stored, name, metadata)).to(device)
        if origin is np.ndarray:
            found = array_of(stored, name, metadata)
            expected = get_args(inner[1])[0]
            if expected is not Any and found.dtype != np.dtype(expected):
                raise ValueError(f"its {name} has type {found.dtype}")
            return found
        if origin in (tuple, list):
            if not isinstance(stored, list):
                raise ValueError(f"its {name} is no list")
            kinds = [inner[0]] * len(stored) if origin is list or inner[-1] is Ellipsis else list(inner)
            if len(kinds) != len(stored):
                raise ValueError(f"its {name} has another length")
            pairs = enumerate(zip(kinds, stored, strict=True))
            entries = [build(each, entry, f"{name}.{n}", metadata) for n, (each, entry) in pairs]
            return tuple(entries) if origin is tuple else entries
        if origin is dict:
            if not isinstance(stored, Mapping):
                raise ValueError(f"its {name} is no table of names")
            return {key: build(inner[1], entry, f"{name}.{key}", metadata) for key, entry in stored.items()}
        if kind in (bool, int, float, str):
            return _scalar(kind, stored, name, metadata)
        if is_dataclass(kind) and isinstance(kind, type):
            return record(kind, stored, name)
        if isinstance(kind, type) and hasattr(kind, "_fields"):  # a named tuple
            if not isinstance(stored, list) or len(stored) != len(kind._fields):
                raise ValueError(f"its {name} has another length")
            hints = _hints(kind)
            named = zip(kind._fields, stored, strict=True)
            return kind(*(build(hints[each], entry, f"{name}.{each}", metadata) for each, entry in named))
        raise TypeError(f"{kind!r} cannot be loaded")

    def record(kind: Any, stored: Any, name: str) -> Any:
        saved = {field.name: field for field in fields(kind) if field.metadata.get("saved", True)}
        if not isinstance(stored, Mapping) or set(stored) != {"class", *saved} or stored["class"] != kind.__name__:
            raise ValueError(f"its {name or kind.__name__} has other entries")
        hints = _hints(kind)
        return kind(**{n: build(hints[n], stored[n], f"{name}.{n}".lstrip("."), f.metadata) for n, f in saved.items()})

    made: T = build(kind, stored, "", {})
    return made


def _scalar(kind: type, stored: Any, name: str, metadata: Mapping[str, Any]) -> Any:
    good = isinstance(stored, kind) or (kind is float and isinstance(stored, int))
    if not good or (isinstance(stored, bool) and kind is not bool):
        raise ValueError(f"its {name} is not what it should be")
    if kind is float:
        # An integer of JSON may be too large for a number.
        if abs(stored) > 1e308 and not (isinstance(stored, float) and math.isinf(stored)):
            raise ValueError(f"its {name} is out of range")
        stored = float(stored)
        if not math.isfinite(stored) and not ("nan" in metadata and math.isnan(stored)):
            raise ValueError(f"its {name} is not finite")
    if kind is int and abs(stored) >= 2**63:
        raise ValueError(f"its {name} is out of range")
    return stored


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_array(array: Any, shape: tuple[int, ...], name: str, *, most: float | None = None) -> None:
    """Raise ValueError unless an array or tensor has this shape and, if given, no entry beyond ±``most``."""
    if tuple(array.shape) != shape:
        raise ValueError(f"its {name} has shape {tuple(array.shape)}, but should have {shape}")
    if most is not None and array.shape and 0 not in array.shape and not float(abs(array).max()) <= most:
        raise ValueError(f"its {name} holds values beyond {most:g}")
