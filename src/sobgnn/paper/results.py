"""Results as JSON lines: one self-contained line per training, appended and flushed; killed runs lose nothing."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Key = tuple[str, str, str, str, str, str, int, int]


@dataclass(frozen=True)
class Record:
    """One training.

    Args:
        study: ``"table1"``, ``"few-labels"`` or ``"ablations"``.
        stage: ``"search"``, or ``"test"`` for the final seeds.
        labels: What was trained on: ``"10%"`` or, for example, ``"5/class"``.
        variant: ``""``, or what an experiment changed: ``"head=paper"``, ``"alpha=3"``.
        trial: Number of the setting in the model's published list; -1 for settings that are not from it.
        seed: Draws the training points and the initial weights.
        test_accuracy: That of the same weights as ``validation_accuracy``; ``None`` in the search.
        best_epoch: Step of the kept weights.
        epochs: Number of steps of its batch.
        members: Number of trainings in its batch.
        seconds: Its share of the batch's time.
        measures: What else a study measures, for example bytes.
        most_epochs: Number of steps that it could have made.
        data: How its data deviates from the protocol's, in words (``Prepared.deviation``).
    """

    study: str
    stage: str
    dataset: str
    labels: str
    model: str
    variant: str
    trial: int
    setting: dict[str, Any]
    seed: int
    validation_accuracy: float | None
    test_accuracy: float | None
    best_epoch: int
    epochs: int
    members: int
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"
    measures: dict[str, float] = field(default_factory=dict)
    most_epochs: int = 500
    data: str = ""

    @property
    def key(self) -> Key:
        """The unique key of a line in a results file."""
        return (
            self.study, self.stage, self.dataset, self.labels, self.model, self.variant, self.trial, self.seed
        )  # fmt: skip


def read(path: Path) -> Iterator[Record]:
    """The records of a file, or of all ``*.jsonl`` and ``*.jsonl.gz`` of a folder; a truncated last line is ignored.

    If a key occurs twice, the first one counts.
    """
    if path.is_dir():
        files = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
    else:
        files = [path] if path.exists() else []
    seen: set[Key] = set()
    for file in files:
        for number, line in enumerate(_lines(file), 1):
            try:
                record = Record(**json.loads(line))
            except (json.JSONDecodeError, TypeError) as error:
                raise ValueError(f"{file}, line {number} is not a result: {error}. Remove the line.") from error
            if record.key not in seen:
                seen.add(record.key)
                yield record


def _lines(file: Path) -> Iterator[str]:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    # A line counts only with its newline: what follows the last newline was truncated during a write.
    whole = data[: data.rfind(b"\n") + 1]
    yield from whole.decode().splitlines()


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a file, after removing a truncated last line, and wait until they are on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(asdict(record), separators=(",", ":")) + "\n" for record in records)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def exact_mean(values: Collection[float]) -> float:
    """The mean, rounded once: equal settings stay equal for any order of their seeds and any version of Python."""
    return math.fsum(values) / len(values)


def best_trial(means: Mapping[int, float]) -> int:
    """The setting with the highest mean; ties go to the lower number."""
    return max(means, key=lambda trial: (means[trial], -trial))
