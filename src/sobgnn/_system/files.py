"""Files and folders that are written atomically."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

# Maximum size in bytes of JSON that is read: its values take several times the memory of its text.
_LARGEST_JSON = 64 << 20


def is_file_name(data: str) -> bool:
    """Whether DATA on the command line means a file or folder, and not the name of a data set."""
    return any(sign in data for sign in "./\\") or Path(data).exists()


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name if the block succeeds, and leaves nothing behind if it fails.

    The bytes are written under a temporary name in the same folder, flushed to disk and renamed; the rename is flushed
    too. A reader sees the old file or the new one. Permissions are those of any new file. A library that opens files
    itself may write to the file's ``name``.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Name a file.")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # the file's own name, not the temporary one
    try:
        os.close(handle)
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _usual_mode(0o666))
        os.replace(temporary, path)
        flush(path.parent)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        _check_space(error, path)
        raise


def _check_space(error: BaseException, path: Path) -> None:
    """Raise an OSError with the name that users know, if it was for want of space that something failed."""
    if getattr(error, "errno", None) == errno.ENOSPC or "os error 28" in str(error):  # the latter from Rust
        raise OSError(errno.ENOSPC, "no space is left on its disk", str(path)) from error


def check_regular(path: str | Path) -> None:
    """Raise a ValueError if a path is not a regular file: reading a pipe or a device may never end."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:  # circular links, names that are too long
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is not a regular file, but a folder, pipe or device.")


def check_inside(path: str | Path, folder: str | Path) -> None:
    """Raise a ValueError if a path leads out of a folder, by a link."""
    if not is_inside(path, folder):
        raise ValueError(f"{path} is a link to something outside its folder, which is not opened.")


def is_inside(path: str | Path, folder: str | Path) -> bool:
    """Whether a path, with all links followed, is in a folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def read_json(path: str | Path) -> Any:
    """The value of a JSON file, UTF-8; raises a one-line ValueError if it is damaged or too large to be one of ours."""
    check_regular(path)
    size = os.stat(path).st_size
    if size > _LARGEST_JSON:
        raise ValueError(f"{path} is damaged: it has {size:,} bytes, more than {_LARGEST_JSON:,}.")
    try:
        return json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {' '.join(str(error).split())[:160]}.") from None


def cache_folder() -> Path:
    """Folder for what can be made again, of this account; the variable SOBGNN_CACHE names another."""
    own = os.environ.get("SOBGNN_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sobgnn"


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def json_digest(content: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_signed(path: str | Path, content: dict[str, Any], arrays: str | Path) -> None:
    """Write a JSON object with its own digest and that of the npz file beside it."""
    full = {**content, "arrays_sha256": file_digest(arrays)}
    write_text(path, json.dumps({**full, "sha256": json_digest(full)}))


def read_signed(path: str | Path, arrays: str | Path, form: int) -> dict[str, Any]:
    """Read what :func:`write_signed` wrote; raises ValueError if it has another format or was changed since."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise ValueError(f"{path} is damaged: it names no format.")
    if content["format"] != form:
        which = "newer than this version reads. Upgrade sobgnn" if content["format"] > form else "of an older version"
        raise ValueError(f"{path} has format {content['format']}, {which}.")
    if content.pop("sha256", None) != json_digest(content):
        raise ValueError(f"{path} was changed after it was written: its digest does not match.")
    check_regular(arrays)
    # What is no archive is refused before it is read as a whole.
    if not zipfile.is_zipfile(arrays) or content.pop("arrays_sha256", None) != file_digest(arrays):
        raise ValueError(f"{arrays} is truncated or was changed: its digest does not match.")
    return content


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file, UTF-8, atomically; returns its path."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


@contextlib.contextmanager
def atomic_folder(folder: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Make a folder that appears under its name if the block succeeds, and leaves nothing behind if it fails.

    The block fills a folder with a random name beside it, whose files are flushed to disk before the rename.

    Args:
        folder: The name; parents are created, and removed again on failure.
        replace: Whether an existing folder is replaced; a folder cannot be renamed over a non-empty one, so between two
            renames neither exists for a moment.

    Raises:
        FileExistsError: Another process has made the folder while the block filled its own.
    """
    folder = Path(folder)
    if folder.exists() and not replace:
        raise ValueError(f"{folder} already exists. Name another folder.")
    made = [parent for parent in folder.absolute().parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    try:
        yield temporary
        temporary.chmod(_usual_mode(0o777))
        flush_folder(temporary)
        if replace:
            _replace_folder(temporary, folder)
        else:
            _rename_new(temporary, folder)
        flush(folder.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        _check_space(error, folder)
        raise


def _rename_new(new: Path, folder: Path) -> None:
    """Rename a folder to a name that was free; raises FileExistsError if others have taken it since."""
    try:
        os.rename(new, folder)
    except OSError:
        if not folder.exists():
            raise
        raise FileExistsError(f"{folder} already exists: another process has made it. Name another folder.") from None


def _replace_folder(new: Path, folder: Path) -> None:
    """Rename a folder to a name that may be taken, even by others meanwhile; on failure the old folder is put back."""
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    old = aside / folder.name
    try:
        while True:
            with contextlib.suppress(FileNotFoundError):
                os.replace(folder, old)
            try:
                os.rename(new, folder)
                break
            except OSError:
                if not folder.exists():
                    raise
                # Another process has put its folder here since: it is the one to replace.
                shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        with contextlib.suppress(OSError):
            os.rename(old, folder)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def flush_folder(folder: Path) -> None:
    """Ask the system to write a folder and everything in it to disk."""
    for path in sorted(folder.rglob("*"), reverse=True):
        flush(path)
    flush(folder)


def lock_file(path: str | Path) -> IO[bytes] | None:
    """Lock a file, created if it is missing, until it is closed or the process ends; ``None`` if another has it."""
    while True:
        file = open(path, "a+b")  # noqa: SIM115
        try:
            try:
                import fcntl
            except ModuleNotFoundError:  # Windows
                import msvcrt

                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return file
        file.close()  # who held it has removed it meanwhile: another may lock a new file of that name


def flush(path: str | Path) -> None:
    """Ask the system to write a file, or a folder's list of names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _usual_mode(mode: int) -> int:
    """The permissions that a new file or folder would have: temporary ones are readable only by their owner."""
    mask = os.umask(0)
    os.umask(mask)
    return mode & ~mask
