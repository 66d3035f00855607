"""Named arrays in one npz file: written whole or not at all, read without unpickling, mapped where possible."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.runtime.files import atomic_file

_LOCAL_HEADER = 30  # bytes of a zip entry's fixed header; name and extra field follow it


def save_arrays(path: str | Path, arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Write arrays, uncompressed so that they can be mapped: to a temporary name, flushed, then renamed."""
    with atomic_file(path) as file:
        np.savez(file, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})


def load_arrays(path: str | Path, needed: Sequence[str], *, mmap: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Every array of an npz file, which must hold the ``needed`` ones.

    With ``mmap`` an uncompressed entry is mapped copy-on-write: nothing is read before it is used, and what is
    written to the array never reaches the file.
    """
    try:
        # Opened here, since numpy leaves a file that is no archive open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in needed if name not in archive.files]
            if missing:
                raise ValueError(
                    f"{path} lacks {', '.join(missing)}; it holds {', '.join(archive.files) or 'nothing'}."
                )
            if not mmap:
                return {name: archive[name] for name in archive.files}
        return _map(Path(path))
    except (zipfile.BadZipFile, EOFError, OSError, AttributeError) as error:
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"There is no file {path}.") from None
        raise ValueError(f"{path} is not a readable npz file: {error}") from None


def _map(path: Path) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            if entry.compress_type != zipfile.ZIP_STORED:
                with archive.open(entry) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                continue
            raw.seek(entry.header_offset)
            header = raw.read(_LOCAL_HEADER)
            # The local header's name and extra field may differ in length from the directory's.
            raw.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), os.SEEK_CUR)
            version = np.lib.format.read_magic(raw)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(raw)
            if dtype.hasobject:
                raise ValueError(f"{path} holds Python objects, which are never loaded.")
            start, size = raw.tell(), int(np.prod(shape)) * dtype.itemsize
            if start + size > path.stat().st_size:
                raise EOFError("it ends early")
            if size == 0 or shape == ():
                raw.seek(start)
                arrays[name] = np.frombuffer(raw.read(size), dtype).reshape(shape).copy()
            else:
                arrays[name] = np.memmap(path, dtype, "c", start, shape, "F" if fortran else "C")
    return arrays
