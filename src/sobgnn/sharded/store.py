"""Arrays and JSON in a folder or a bucket: files appear whole, and rows of them are read without the rest."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
from fsspec.implementations.local import LocalFileSystem

Array = npt.NDArray[Any]


class Store:
    """The files of a run, by name.

    Args:
        root: A folder, or a URL that fsspec knows, such as ``s3://bucket/run``.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.files, self.place = fsspec.core.url_to_fs(root)
        self.local = isinstance(self.files, LocalFileSystem)

    def path(self, name: str) -> str:
        """Where a file is, for :attr:`files`."""
        return f"{self.place}/{name}"

    def write(self, name: str, content: bytes) -> int:
        """Write a file that appears whole or not at all; returns its size."""
        with self.writing(name) as file:
            file.write(content)
        return len(content)

    @contextlib.contextmanager
    def writing(self, name: str) -> Any:
        """Open a file that appears under its name if the block succeeds.

        Whoever is killed meanwhile leaves nothing under this name, and two who write the same file do not mix.
        """
        path = self.path(name)
        if not self.local:  # an object appears when it is closed
            buffer = io.BytesIO()
            yield buffer
            self.files.pipe_file(path, buffer.getvalue())
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as file:
                yield file
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise

    def save(self, name: str, array: Array) -> int:
        """Write an array; returns its bytes."""
        with self.writing(name + ".npy") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
        return array.nbytes

    def load(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Rows of an array, mapped into memory where the store is a local folder."""
        path = self.path(name + ".npy")
        if self.local:
            return load_mapped(path)[start:stop]
        with self.files.open(path, "rb") as file:
            return read_rows(file, start, stop)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self.files.exists(self.path(name)))

    def remove(self, *names: str) -> None:
        """Remove arrays that are not needed anymore."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self.files.rm_file(self.path(name + ".npy"))

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file."""
        self.write(name + ".json", json.dumps(value).encode())

    def read_json(self, name: str) -> Any:
        """Read a JSON file; ``None`` if it is missing."""
        try:
            return json.loads(self.files.cat_file(self.path(name + ".json")))
        except FileNotFoundError:
            return None


def load_mapped(path: str) -> Array:
    """An array of a local file, mapped into memory; what is written to it stays there."""
    empty = os.path.getsize(path) <= 512  # and cannot be mapped
    loaded: Array = np.load(path, mmap_mode=None if empty else "c", allow_pickle=False)
    return loaded


def npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of a .npy file, whose rows follow."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject or (fortran and len(shape) > 1):
        raise ValueError("its array must be of numbers, in C order")
    return shape, dtype


def read_rows(file: Any, start: int, stop: int | None) -> Array:
    """Rows of an open .npy file, without reading the others."""
    shape, dtype = npy_header(file)
    first, end, _ = slice(start, stop).indices(shape[0])
    size = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    file.seek(first * size, io.SEEK_CUR)
    content = file.read(max(0, end - first) * size)
    rows: Array = np.frombuffer(bytearray(content), dtype).reshape(-1, *shape[1:])
    return rows
