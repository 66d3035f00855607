"""The actions of the protocol's commands, shared by both command lines."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sobgnn.baselines.classical import CLASSICAL
from sobgnn.protocol import data as datafiles
from sobgnn.protocol import studies
from sobgnn.protocol.evaluate import Limits
from sobgnn.protocol.plan import Cell
from sobgnn.protocol.plan import shard as part_of
from sobgnn.protocol.run import run


def say_now(line: str) -> None:
    """Print a line and flush it."""
    print(line, flush=True)


@dataclass(frozen=True)
class Running:
    """How a study is trained, for any study.

    Args:
        out: Folder of JSON lines, appended to.
        data: Folder of prepared data sets; missing ones are prepared now.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``, which is CUDA if available.
        shard: ``"i/n"``, part i of n.
        time_limit: Seconds after which no batch starts.
        epochs: Maximum number of training steps.
        resume: Whether to resume after the folder's lines; otherwise they are an error.
        cuda_graph: Record steps on CUDA and replay them.
        workers: Processes that share the batches.
        say: Called with readable lines.
        progress: Called with the share done, the seconds left and what is being trained, instead of a line for each
            batch.
    """

    out: Path = Path("results/lines")
    data: Path | None = None
    device: str = "auto"
    shard: str = "1/1"
    time_limit: float | None = None
    epochs: int = 500
    resume: bool = True
    cuda_graph: bool = True
    workers: int = 1
    say: Callable[[str], None] = say_now
    progress: Callable[[float, float, str], None] | None = None

    @property
    def where(self) -> torch.device:
        """The device."""
        chosen = self.device
        if chosen == "auto":
            chosen = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(chosen)


def prepare(datasets: Sequence[str], out: Path) -> None:
    """Write each data set and its graph as one small file."""
    for name in datasets:
        path = datafiles.save(datafiles.prepare(name), out)
        say_now(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def table1(
    running: Running,
    models: Sequence[str] | None = None,
    datasets: Sequence[str] = studies.DATASETS,
    trials: int = 100,
    seeds: int = 50,
    heads: Sequence[str] = ("plain",),
) -> bool:
    """Fill the paper's table; without ``models``, all on CUDA, and all without attention, which takes hours, on CPUs.

    Returns False if the time limit was reached.
    """
    if models is None:
        models = studies.TABLE1_MODELS
        if running.where.type == "cpu":
            models = [model for model in models if model not in studies.ATTENTION]
            running.say(
                f"On a CPU without {', '.join(studies.ATTENTION)}, which are slow there: name them to train them."
            )
    return train(running, "table1", studies.table1(models, datasets, trials, seeds, heads))


def few_labels(
    running: Running,
    models: Sequence[str] = studies.FEW_MODELS,
    datasets: Sequence[str] = studies.DATASETS,
    labels: Sequence[str] = studies.FEW_LABELS,
    trials: int = 10,
    seeds: int = 20,
) -> bool:
    """Fill the study of few labels. False if the time limit was reached."""
    return train(running, "few-labels", studies.few_labels(models, datasets, labels, trials, seeds))


def ablations(
    running: Running,
    kinds: Sequence[str] | None = None,
    datasets: Sequence[str] = studies.DATASETS,
    seeds: int = 20,
    model: str = "S-SobGNN",
) -> bool:
    """Fill the ablations of a model. False if the time limit was reached."""
    return train(running, "ablations", studies.ablations(kinds, datasets, seeds, model))


def train(running: Running, study: str, cells: Sequence[Cell]) -> bool:
    """Train one shard of a study's cells."""
    if not cells:
        raise ValueError(
            "There is nothing to train: the options name no model, no data set, or no head that the model has. Name "
            "one, or leave the option out."
        )
    index, count = _shard(running.shard)
    file = f"{study}.jsonl" if count == 1 else f"{study}.{index}-of-{count}.jsonl"
    if not running.resume and any(running.out.glob(f"{study}*.jsonl*")):
        raise ValueError(f"{running.out} already holds results of {study}. Resume them, or pass another folder.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
        return run(
            part_of(cells, index, count),
            running.out,
            device=running.where,
            folder=running.data,
            file=file,
            limits=Limits(running.epochs),
            time_limit=running.time_limit,
            cuda_graph=running.cuda_graph,
            workers=running.workers,
            say=running.say,
            progress=running.progress,
        )


def report(lines: Path, out: Path = Path("results"), device_minutes: Sequence[str] = ()) -> list[Path]:
    """Turn the lines of a folder into tables and plots, for each study that it has; returns the files written.

    ``device_minutes``, entries such as ``"table1=52.5"``, are shown in the tables.
    """
    minutes = {}
    for entry in device_minutes:
        study, _, value = entry.partition("=")
        try:
            minutes[study] = float(value)
        except ValueError:
            raise ValueError(f"Device minutes must be STUDY=MINUTES, such as table1=52.5, but got {entry!r}.") from None
    from sobgnn.protocol.report import results

    paths = results.write(lines, out, minutes)
    for path in paths:
        say_now(str(path))
    return paths


def settings(
    models: Sequence[str] = (*studies.TABLE1_MODELS, *CLASSICAL),
    trials: int = 100,
    out: Path = Path("results/settings"),
) -> None:
    """Write the settings that each model's search tries, one file per model, one setting per line."""
    studies.check_names(models)
    out.mkdir(parents=True, exist_ok=True)
    for model in models:
        rows = Cell("settings", "", model, trials=trials).settings()
        body = ",\n".join(json.dumps({"trial": i, **row}) for i, row in enumerate(rows))
        path = out / f"{model}.json"
        path.write_text(f"[\n{body}\n]\n")
        say_now(str(path))


def _shard(text: str) -> tuple[int, int]:
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise ValueError(f"`shard` must be i/n, such as 1/4, but got {text!r}.")
    return int(parts[0]), int(parts[1])
