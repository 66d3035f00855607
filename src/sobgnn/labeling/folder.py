"""The run folder of a labeling: who uses it, its options, and files left by killed processes."""

from __future__ import annotations

import contextlib
import glob
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sobgnn.labeling.events import check_events
from sobgnn.labeling.journal import read_events
from sobgnn.labeling.session import JOURNAL
from sobgnn.labeling.state import replay
from sobgnn.tables.meaning import MODELS, ModelRecord

SETTINGS = "labeling.json"
# The copy of a frame that a notebook labels.
COPY = "data.parquet"
# The prefix of the folder of the file that the browser opens, followed by eight letters, and the name of the file.
OPEN, REDIRECTING = "open-", "label.html"
# What the files of a run, whole or being written, begin with.
RUN = ("table.", "model", "checks.json", "predictions.csv", "metrics.json", "report.html")


def check_own(folder: Path) -> None:
    """Raise if a folder holds anything but a labeling run that can be resumed, even one that has just begun."""
    held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if held - {COPY} and not held & {SETTINGS, JOURNAL}:
        raise ValueError(f"{folder} already exists and holds other files. Name another folder with --out.")


def remove_left_over(folder: Path) -> None:
    """Remove browser files left by killed processes: only one process at a time uses a run folder."""
    for left in folder.glob(OPEN + "?" * 8):
        with contextlib.suppress(OSError):
            if [path.name for path in left.iterdir()] == [REDIRECTING]:  # else it is not ours
                shutil.rmtree(left)


def remove_unfinished(folder: Path) -> None:
    """Remove what was written beside a folder of the run that was to be moved into it, by a process that was killed.

    Whoever calls this has the folder's lock, so that no such process is left.
    """
    for left in folder.parent.glob(f".{glob.escape(folder.name[:100])}." + "?" * 8):
        with contextlib.suppress(OSError):  # of a file too, which is not ours
            if all(path.name.removeprefix(".").startswith(RUN) for path in left.iterdir()):
                shutil.rmtree(left)


def absolute(value: Any) -> Any:
    """A path as text that means the same from every folder; anything else as it is."""
    return str(value.absolute()) if isinstance(value, Path) else value


def remembered(path: Path) -> tuple[str, str | None, str | None, list[str], dict[str, Any]]:
    """Data, label, id, dropped columns and options of reading that a labeling was begun with."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        # Folders of earlier versions have no options for reading.
        return str(held["data"]), held["label"], held["identity"], list(held["drop"]), dict(held.get("reading", {}))
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged. Give the data again: sobgnn label DATA --out {path.parent}.") from None


def check_models(folder: Path, known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise unless the models that a folder was labeled with are given again."""
    for name in MODELS:
        option, record = f"--{name.replace('_', '-')}", known.get(name)
        if record != given[name]:
            which = "no such model" if record is None else f"the model {ModelRecord.restore(record)}"
            way = f"Leave {option} out" if record is None else f"Pass its folder: {option} FOLDER"
            raise ValueError(f"{folder} was begun with {which}. {way}.")


def as_before(
    folder: Path, label: str | None, identity: str | None, drop: list[str], reading: dict[str, Any]
) -> tuple[str | None, str | None, list[str], dict[str, Any], bool]:
    """The options that a folder was labeled with; others would change the features, or turn labels into features.

    A folder without labels takes other options: the last entry of the result says that it starts anew with them.
    """
    try:
        _, known_label, known_identity, known_drop, known_reading = remembered(folder / SETTINGS)
    except ValueError:
        return label, identity, drop, reading, False
    asked = {"label": label, "id": identity, "drop": drop, **reading}
    known = {"label": known_label, "id": known_identity, "drop": known_drop, **known_reading}
    for name, value in asked.items():
        if value and value != known.get(name):
            if not _holds_labels(folder):
                return label, identity, drop, reading, True
            option = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{folder} was labeled with another {option}: {_shown(known.get(name))}. Leave {option} out to "
                "resume, or name another folder with --out."
            )
    return known_label, known_identity, known_drop, known_reading, False


def _shown(value: Any) -> str:
    return str(value.get("name")) if isinstance(value, dict) else str(value or "none")


def _holds_labels(folder: Path) -> bool:
    """Whether there are labels or a run in the folder, or may be: the journal is missing or damaged."""
    try:
        events, _, damaged = read_events(folder / JOURNAL)
        check_events(events, folder / JOURNAL)
    except (OSError, ValueError):
        return True
    written = any((folder / name).exists() for name in ("table.json", "predictions.csv", "report.html", "model"))
    return not events or b"\n" in damaged or written or bool(replay(events).labels)


def default_folder(name: str) -> Path:
    """runs/<name>-labeled, of letters that every system takes."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "data"
    return Path("runs") / f"{safe}-labeled"
