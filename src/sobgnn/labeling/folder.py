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
from sobgnn.tables.meaning import ModelRecord, check_same
from sobgnn.tables.models import FINDERS, same_model

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


def same_models(folder: Path, known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Where the models are that a folder was labeled with; raises ValueError if one is missing or another is given.

    A folder remembers what models are recognized by, and not their paths. What is not given is looked for among the
    models at hand.
    """
    found: dict[str, Any] = {}
    for name, find in FINDERS.items():
        option, model = f"--{name.replace('_', '-')}", find(None if given.get(name) == "auto" else given.get(name))
        if known.get(name) is None:
            if model is not None:
                raise ValueError(f"{folder} was begun without a model. Leave {option} out.")
            found[name] = None
            continue
        try:
            record = ModelRecord.restore(known[name])
            model = model or same_model(record, find)
            check_same(record, model, f"{option} FOLDER")
        except (KeyError, TypeError):
            raise ValueError(f"{folder / SETTINGS} is damaged: it holds no record of a model.") from None
        except ValueError as error:
            raise ValueError(f"{folder} cannot be resumed: {error}") from None
        found[name] = None if model is None else model.folder
    return found


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
                f"{folder} was labeled with another {option}: {known.get(name) or 'none'}. Leave {option} out to "
                "resume, or name another folder with --out."
            )
    return known_label, known_identity, known_drop, known_reading, False


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
