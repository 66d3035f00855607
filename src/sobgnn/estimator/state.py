"""The state of frozen dataclasses as JSON values and arrays, and back: one walk over their fields.

What is built is decided by the annotations of the class that is asked for, never by the file: a file only fills in
values. The fields' declared shapes, and classes' ``check``, then say whether these fit together.
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
_DTYPES = ("bool", "int32", "int64", "float32", "float64")
# Larger values of a saved model are refused: their products overflow single precision.
LARGEST = 1e9


def one_of(*kinds: type) -> Mapping[str, Any]:
    """Metadata of a field, or of the entries of a field, that are instances of one of these classes."""
    return {"choices": {kind.__name__: kind for kind in kinds}}


def shaped(*shape: str | int, least: float | None = None, most: float = LARGEST) -> Mapping[str, Any]:
    """Metadata of an array's field: its shape, in named sizes, and the bounds of its entries, by default ±``most``."""
    return {"shape": shape, "bounds": (-most if least is None else least, most)}


def check_parts(part: Any, sizes: Mapping[str, int], points: Any = None) -> None:
    """Raise ValueError unless a dataclass and all its parts, which may be those of a file, are possible.

    Arrays must have the shapes and bounds that fields declare; names that are not in ``sizes`` stand for any size, the
    same for all fields of a class. What else a class demands is in its ``check(sizes, points)``, with the training
    points, which is called after those of its parts.
    """
    if isinstance(part, (dict, tuple)):
        for entry in part.values() if isinstance(part, dict) else part:
            check_parts(entry, sizes, points)
    if not is_dataclass(part):
        return
    known = dict(sizes)
    for field in fields(part):
        value, shape = getattr(part, field.name), field.metadata.get("shape")
        if shape is None:
            check_parts(value, sizes, points)
        if shape is None or value is None:
            continue
        have = tuple(value.shape)
        wanted = [s if isinstance(s, int) else known.setdefault(s, h) for s, h in zip(shape, have, strict=False)]
        if len(have) != len(shape) or list(have) != wanted:
            raise ValueError(f"its {field.name} has the shape {list(have)}, which does not fit")
        least, most = field.metadata["bounds"]
        # NaN, where it is allowed, is within any bounds.
        if 0 not in have and bool(((value < least) | (value > most)).any()):
            raise ValueError(f"its {field.name} holds values that are not from {least:g} to {most:g}")
    if hasattr(part, "check"):
        part.check(sizes, points)


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
            found = {n: walk(getattr(value, n), f"{name}.{n}".lstrip(".")) for n in _saved(type(value))}
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
        if "choices" in metadata and isinstance(stored, Mapping):
            if stored.get("class") not in metadata["choices"]:
                raise ValueError(f"its {name} is of an unknown kind")
            return record(metadata["choices"][stored["class"]], stored, name)
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
            if found.dtype != np.dtype(get_args(inner[1])[0]):
                raise ValueError(f"its {name} has type {found.dtype}")
            return found
        if origin in (tuple, list):
            if not isinstance(stored, list):
                raise ValueError(f"its {name} is no list")
            return origin(build(inner[0], entry, f"{name}.{n}", metadata) for n, entry in enumerate(stored))
        if origin is dict:
            if not isinstance(stored, Mapping):
                raise ValueError(f"its {name} is no table of names")
            return {key: build(inner[1], entry, f"{name}.{key}", metadata) for key, entry in stored.items()}
        if kind in (bool, int, float, str):
            return _scalar(kind, stored, name, metadata)
        if is_dataclass(kind) and isinstance(kind, type):
            return record(kind, stored, name)
        raise TypeError(f"{kind!r} cannot be loaded")

    def record(kind: Any, stored: Any, name: str) -> Any:
        saved = _saved(kind)
        if not isinstance(stored, Mapping) or set(stored) != {"class", *saved} or stored["class"] != kind.__name__:
            raise ValueError(f"its {name or kind.__name__} has other entries")
        return kind(**{n: build(hint, stored[n], f"{name}.{n}".lstrip("."), own) for n, (hint, own) in saved.items()})

    made: T = build(kind, stored, "", {})
    return made


@cache
def _saved(kind: type) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """The annotation and metadata of each field that is part of the state."""
    hints = get_type_hints(kind)
    return {f.name: (hints[f.name], f.metadata) for f in fields(kind) if f.metadata.get("saved", True)}


def _scalar(kind: type, stored: Any, name: str, metadata: Mapping[str, Any]) -> Any:
    good = isinstance(stored, kind) or (kind is float and isinstance(stored, int))
    if not good or (isinstance(stored, bool) and kind is not bool) or (kind is int and abs(stored) >= 2**63):
        raise ValueError(f"its {name} is not what it should be")
    if kind is float:
        # An integer of JSON may be too large for a number.
        stored = float(stored) if abs(stored) <= 1e308 or isinstance(stored, float) else math.inf
        if not math.isfinite(stored) and not ("nan" in metadata and math.isnan(stored)):
            raise ValueError(f"its {name} is not finite")
    return stored
