"""Named arrays in one npz file: written atomically, read without unpickling."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import atomic_file, check_regular


def save_arrays(path: str | Path, arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Write arrays, uncompressed: to a temporary name, flushed, then renamed."""
    with atomic_file(path) as file:
        np.savez(file, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})


def load_arrays(path: str | Path, needed: Sequence[str], *, ours: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Load all arrays of an npz file, which must hold the ``needed`` ones.

    With ``ours`` it must be as :func:`save_arrays` writes it, uncompressed: a small file then holds no large array.
    """
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            held = entry_names(archive)
            missing = [name for name in needed if name not in held]
            if missing:
                raise ValueError(f"{path} lacks {', '.join(missing)}; it holds {', '.join(held)[:200] or 'nothing'}.")
            if ours and any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("it is compressed, which sobgnn does not do")
            return {name: read_entry(archive, name) for name in held}
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except Exception as error:  # a damaged archive can raise nearly anything
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        reason = (" ".join(str(error).split()) or type(error).__name__)[:160]
        raise ValueError(f"{path} is not a readable npz file: {reason}") from None


def entry_names(archive: zipfile.ZipFile) -> list[str]:
    """Names of an archive's arrays."""
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def read_entry(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Read an array of an archive, after checking its header against its size; objects are never unpickled."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as file:
        _, _, dtype = read_header(file, entry_size(info))
    if dtype.hasobject:
        raise ValueError(f"Array {name[:60]!r} holds Python objects, which are never loaded. Save numbers or texts.")
    with archive.open(info) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def entry_size(info: zipfile.ZipInfo) -> int:
    """Declared size of an entry in bytes; raises ValueError if its compressed data cannot hold that much."""
    most = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1040}.get(info.compress_type)
    if most is not None and info.file_size > most * info.compress_size + 64:
        raise ValueError(f"{info.filename[:60]} is damaged: its data is shorter than the archive declares.")
    return info.file_size


def read_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array of ``size`` bytes at the start of its file; raises ValueError on a mismatch."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
    except (RecursionError, MemoryError, SyntaxError, TypeError, OverflowError):
        raise ValueError("An array's header is damaged.") from None
    if any(n < 0 for n in shape) or (not dtype.hasobject and math.prod(shape) * dtype.itemsize > size):
        raise ValueError(f"An array's header declares shape {list(shape)!s:.60}, but its data is shorter.")
    return shape, fortran, dtype
