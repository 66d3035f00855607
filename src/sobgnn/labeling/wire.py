"""Messages between the page's process and the model's: JSON and arrays, nothing that can hold code."""

from __future__ import annotations

import io
import json
import struct
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
_LARGEST = 2**33


def send(file: IO[bytes], message: dict[str, Any], arrays: Arrays | None = None) -> None:
    """Write one message: its length in 8 bytes, then an NPZ archive."""
    held = io.BytesIO()
    text = np.frombuffer(json.dumps(message).encode(), dtype=np.uint8)
    np.savez(held, message=text, **(arrays or {}))  # type: ignore[arg-type]
    content = held.getbuffer()
    file.write(struct.pack("<Q", len(content)))
    file.write(content)
    file.flush()


def receive(file: IO[bytes]) -> tuple[dict[str, Any], Arrays] | None:
    """The next message, or ``None`` if the other side has ended."""
    head = _exactly(file, 8)
    if head is None:
        return None
    (size,) = struct.unpack("<Q", head)
    if size > _LARGEST:
        raise ValueError(f"A message of {size} bytes was announced, but {_LARGEST} is the largest allowed.")
    content = _exactly(file, size)
    if content is None:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    message: dict[str, Any] = json.loads(arrays.pop("message").tobytes())
    return message, arrays


def _exactly(file: IO[bytes], size: int) -> bytes | None:
    parts = []
    while size:
        part = file.read(min(size, 2**24))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
