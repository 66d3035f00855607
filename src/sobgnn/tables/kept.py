"""Vectors of texts that a model has encoded before, in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import atomic_file, cache_folder

# Size of a model's vectors on disk, and number of models whose vectors are kept.
_MOST_BYTES, _MOST_MODELS = 2**29, 4
# Number of texts encoded at once, and seconds after which they are written.
_AT_ONCE, _SECONDS = 128, 60.0

Vectors = npt.NDArray[np.float32]


class KeptVectors:
    """The vectors of one model, by the digests of their texts: safetensors, read once, replaced as a whole.

    A file that is damaged or cannot be written is done without.

    Args:
        model: The model's digest.
    """

    def __init__(self, model: str) -> None:
        self._file = cache_folder() / "vectors" / f"{model}.safetensors"
        self._rows: dict[bytes, Vectors] = {}

    def vectors(
        self,
        texts: Sequence[str],
        encode: Callable[[Sequence[str]], Vectors],
        progress: Callable[[str], None] | None = None,
    ) -> Vectors:
        """Vectors [texts, width], of which only those that are not kept are encoded, the longest texts first.

        ``progress`` takes a few words about how many are encoded and the time left.
        """
        keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        known = self._known
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        begun = last = time.monotonic()
        left = sorted(new, key=lambda key: -len(new[key]))
        done, total = 0, sum(map(len, new.values()))
        if left and progress is not None:
            progress(f"meaning of 0 of {len(left):,} texts")
        for start in range(0, len(left), _AT_ONCE):
            part = left[start : start + _AT_ONCE]
            known.update(zip(part, encode([new[key] for key in part]), strict=True))
            done += sum(len(new[key]) for key in part)
            if progress is not None:
                seconds = (time.monotonic() - begun) * (total - done) / max(done, 1)
                progress(f"meaning of {start + len(part):,} of {len(left):,} texts, {_duration(seconds)} left")
            if time.monotonic() - last > _SECONDS:
                self._write()
                last = time.monotonic()
        if left:
            self._write()
        return np.stack([known[key] for key in keys]) if keys else np.zeros((0, 0), np.float32)

    @cached_property
    def _known(self) -> dict[bytes, Vectors]:
        from safetensors.numpy import load_file

        try:
            held = load_file(self._file)
            keys, vectors = held["keys"], held["vectors"]
            if keys.shape != (len(vectors), 16) or keys.dtype != np.uint8 or vectors.dtype != np.float32:
                return {}
            return dict(zip((key.tobytes() for key in keys), vectors, strict=True))
        except Exception:  # missing or damaged: it is made again
            return {}

    def _write(self) -> None:
        """Write the latest vectors, as many as there is room for."""
        from safetensors.numpy import save

        known = self._known
        width = len(next(iter(known.values())))
        keys = list(known)[-_MOST_BYTES // (4 * width + 16) :]
        table: dict[str, npt.NDArray[Any]] = {
            "keys": np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16),
            "vectors": np.stack([known[key] for key in keys]),
        }
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with atomic_file(self._file) as file:
                file.write(save(table))
            others = sorted(self._file.parent.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
            for path in others[:-_MOST_MODELS]:
                path.unlink(missing_ok=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
