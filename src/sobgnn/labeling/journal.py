"""An append-only file of events: an event is on disk before it is acknowledged."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from sobgnn.runtime.files import flush

Event = dict[str, Any]


class MovedError(OSError):
    """The journal's file is no longer where it was opened."""


class Journal:
    """JSON lines, one event per line, numbered from 1; one process at a time.

    ``append`` returns after the line is flushed to the disk, so an event that was acknowledged survives a kill or a
    power cut. A last line that was truncated during a write was never acknowledged, and is removed on opening; a
    complete but damaged last line is moved to a file that ends in ``.damaged``.

    Args:
        path: The file; created if it is missing.
        begun: Names of files beside it that are written only after its first event; where there are some, a journal
            without an event was lost or damaged, and is left as it is.

    Attributes:
        notice: One line about what was moved to that file, or "".

    Raises:
        ValueError: Another process has the journal open, a line before the last is damaged, or its events are lost.
    """

    def __init__(self, path: Path, begun: Sequence[str] = ()) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._lock = _lock(path.with_suffix(".lock"))
        try:
            self.events, self._end, damaged = read_events(path)
            if begun and not self.events:
                lost = "is damaged and holds no event" if damaged else "is empty" if path.exists() else "is missing"
                raise ValueError(
                    f"{path} {lost}, but labels were given before: {', '.join(begun)} beside it. Put the journal back, "
                    "or name another folder with --out."
                )
            self.notice = _put_aside(path, damaged) if b"\n" in damaged else ""
            made = not path.exists()
            self._file: IO[bytes] = open(path, "r+b" if not made else "w+b", buffering=0)  # noqa: SIM115
            self._file.truncate(self._end)
            self._file.seek(self._end)
            os.fsync(self._file.fileno())
            if made:
                flush(path.parent)
        except BaseException:
            self._lock.close()
            raise

    def append(self, event: Event) -> Event:
        """Write the event with its number ``n``, flush it to the disk, and return it.

        Raises:
            OSError: The disk refused, or the file is no longer at its path. Nothing of the event is left in the file.
        """
        with self._guard:
            self.check_in_place()
            numbered = {"n": len(self.events) + 1, **event}
            line = json.dumps(numbered, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            try:
                written = 0
                while written < len(line):  # a raw write may be partial
                    written += self._file.write(line[written:])
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(self._end)
                    self._file.seek(self._end)
                raise
            self._end += len(line)
            self.events.append(numbered)
            return numbered

    def clear(self) -> None:
        """Remove all events."""
        with self._guard:
            self.check_in_place()
            self._file.truncate(0)
            self._file.seek(0)
            os.fsync(self._file.fileno())
            self.events, self._end = [], 0

    def check_in_place(self) -> None:
        """Raise a MovedError where the file was moved, deleted or replaced: what is written to it would be lost."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno())):
                return
        raise MovedError(
            f"{self.path} was moved or deleted while the page was open. Put it back, or start `sobgnn label` again."
        )

    def close(self) -> None:
        """Close the file and release the lock."""
        with self._guard:
            self._file.close()
            self._lock.close()


def read_events(path: Path) -> tuple[list[Event], int, bytes]:
    """The events, the number of bytes that hold them, and what follows them.

    Raises:
        ValueError: A line before the last is damaged.
    """
    content = path.read_bytes() if path.exists() else b""
    lines = content.split(b"\n")
    events: list[Event] = []
    end = 0
    for number, line in enumerate(lines, start=1):
        last = number >= len(lines) - 1  # what follows the last line end, or the last line itself
        event = _parse(line)
        if event is not None and event.get("n") == number and number < len(lines):
            events.append(event)
            end += len(line) + 1
        elif last:
            break
        else:
            raise ValueError(
                f"{path} is damaged at line {number}: it is not event {number}. "
                "Repair that line, or remove it and those after it."
            )
    return events, end, content[end:]


def _put_aside(path: Path, damaged: bytes) -> str:
    aside = path.with_name(path.name + ".damaged")
    with open(aside, "ab") as file:
        file.write(damaged)
        os.fsync(file.fileno())
    return f"The last line of {path.name} was damaged and is ignored; it was moved to {aside.name}."


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _lock(path: Path) -> IO[bytes]:
    """A lock that is released when the process ends, however it ends."""
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
        raise ValueError(
            f"{path.parent} is being labeled in another window or process. "
            "Close that one, or name another folder with --out."
        ) from None
    return file
