"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

# Bytes up to which JSON is read: its values take several times the room of its text.
_LARGEST_JSON = 64 << 20


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name when the block ends well, and leaves nothing behind when it fails.

    The bytes go to a temporary name in the same folder, are flushed to the disk and renamed; so is the rename. A
    reader sees the old file or the new one. Permissions are those of any new file.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Name a file.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _usual_mode(0o666))
        os.replace(temporary, path)
        flush(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_regular(path: str | Path) -> None:
    """Raise a ValueError where a path is not a regular file: reading a pipe or a device may never end."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:  # links that go in circles, names that are too long
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is not a regular file, but a folder, pipe or device.")


def read_json(path: str | Path) -> Any:
    """The value of a JSON file, UTF-8; a ValueError in one line where it is damaged or too large to be one of ours."""
    check_regular(path)
    size = os.stat(path).st_size
    if size > _LARGEST_JSON:
        raise ValueError(f"{path} is damaged: it has {size:,} bytes, more than {_LARGEST_JSON:,}.")
    try:
        return json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {' '.join(str(error).split())[:160]}.") from None


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file, UTF-8, as :func:`atomic_file` does; returns its path."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


@contextlib.contextmanager
def atomic_folder(folder: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Make a folder that takes its name when the block ends well, and leaves nothing behind when it fails.

    The block fills a folder of a random name beside it, whose files are flushed to the disk before the rename.

    Args:
        folder: The name; parents are made, and removed again on failure.
        replace: Whether a folder of that name is replaced; a folder cannot be renamed over a full one, so for the
            moment between two renames neither is there.
    """
    folder = Path(folder)
    if folder.exists() and not replace:
        raise ValueError(f"{folder} is already there. Name another folder.")
    made = [parent for parent in folder.absolute().parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    try:
        yield temporary
        for path in sorted(temporary.rglob("*"), reverse=True):
            flush(path)
        temporary.chmod(_usual_mode(0o777))
        flush(temporary)
        if folder.exists():
            old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
            os.replace(folder, old / folder.name)
            os.replace(temporary, folder)
            shutil.rmtree(old)
        else:
            os.rename(temporary, folder)
        flush(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def flush(path: str | Path) -> None:
    """Ask the system to put a file, or a folder's list of names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _usual_mode(mode: int) -> int:
    """The permissions that a new file or folder would have: temporary ones are readable by their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mode & ~mask
