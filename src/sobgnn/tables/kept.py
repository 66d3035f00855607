"""Vectors of texts that a model has encoded before, in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import cache_folder

# Size of a model's vectors on disk, and number of models whose vectors are kept.
_MOST_BYTES, _MOST_MODELS = 2**29, 4
# Number of texts encoded, and of vectors looked for, at once.
_AT_ONCE, _ASKED = 128, 500

Vectors = npt.NDArray[np.float32]


def kept_vectors(
    model: str,
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Vectors],
    progress: Callable[[str], None] | None = None,
) -> Vectors:
    """Vectors [texts, width], of which only those that are not kept are encoded, the longest texts first.

    A file of them that is damaged or cannot be written is done without.

    Args:
        model: The model's digest.
        texts: Texts, which are kept by their digests.
        encode: Vectors of some texts.
        progress: Takes a few words about how many are encoded and the time left.
    """
    keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
    new = dict(zip(keys, texts, strict=True))
    known: dict[bytes, Vectors] = {}
    with contextlib.closing(_open(model)) as base:
        asked = list(new)
        with contextlib.suppress(sqlite3.Error):
            for start in range(0, len(asked), _ASKED):
                part = asked[start : start + _ASKED]
                found = base.execute(f"SELECT * FROM vectors WHERE text IN ({', '.join('?' * len(part))})", part)
                known |= {key: np.frombuffer(vector, np.float32) for key, vector in found}
        left = sorted((key for key in new if key not in known), key=lambda key: -len(new[key]))
        begun, done, total = time.monotonic(), 0, sum(len(new[key]) for key in left)
        if left and progress is not None:
            progress(f"meaning of 0 of {len(left):,} texts")
        for start in range(0, len(left), _AT_ONCE):
            part = left[start : start + _AT_ONCE]
            made = dict(zip(part, encode([new[key] for key in part]), strict=True))
            known |= made
            rows = [(key, vector.tobytes()) for key, vector in made.items()]
            with contextlib.suppress(sqlite3.Error), base:
                base.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
                most = _MOST_BYTES // (16 + len(rows[0][1]))
                base.execute("DELETE FROM vectors WHERE rowid <= (SELECT max(rowid) FROM vectors) - ?", [most])
            done += sum(len(new[key]) for key in part)
            if progress is not None:
                seconds = (time.monotonic() - begun) * (total - done) / max(done, 1)
                time_left = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
                progress(f"meaning of {start + len(part):,} of {len(left):,} texts, {time_left} left")
    return np.stack([known[key] for key in keys]) if keys else np.zeros((0, 0), np.float32)


def _open(model: str) -> sqlite3.Connection:
    """The model's vectors by the digests of texts; in memory alone if its file is damaged or cannot be written."""
    file, base = cache_folder() / "vectors" / f"{model}.sqlite", sqlite3.connect(":memory:")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        base.execute("ATTACH ? AS kept", [str(file)])
        base.execute("CREATE TABLE IF NOT EXISTS kept.vectors (text BLOB PRIMARY KEY, vector BLOB)")
        others = sorted({*file.parent.glob("*.sqlite")} - {file}, key=lambda path: path.stat().st_mtime)
        for other in others[: 1 - _MOST_MODELS]:
            other.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        base.execute("CREATE TABLE vectors (text BLOB PRIMARY KEY, vector BLOB)")
        if type(error) is sqlite3.DatabaseError:  # it is no database: the next run begins another
            file.unlink(missing_ok=True)
    return base
