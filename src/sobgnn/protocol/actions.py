"""What the protocol's commands do, for both of their skins."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Sequence
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
    """Print a line and let it out at once."""
    print(line, flush=True)


def prepare(datasets: Sequence[str], out: Path, say: Callable[[str], None] = say_now) -> None:
    """Write each data set and its graph as one small file."""
    for name in datasets:
        path = datafiles.save(datafiles.prepare(name), out)
        say(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def table1(
    models: Sequence[str] = studies.TABLE1_MODELS,
    datasets: Sequence[str] = studies.DATASETS,
    trials: int = 100,
    seeds: int = 50,
    heads: Sequence[str] = ("plain",),
    out: Path = Path("results/lines"),
    data: Path | None = None,
    device: str = "auto",
    shard: str = "1/1",
    time_limit: float | None = None,
    epochs: int = 500,
    resume: bool = True,
    cuda_graph: bool = True,
) -> bool:
    """Fill the paper's table. False where the time limit came first."""
    cells = studies.table1(models, datasets, trials, seeds, heads)
    return train(cells, "table1", out, data, device, shard, time_limit, epochs, resume, cuda_graph)


def few_labels(
    models: Sequence[str] = studies.FEW_MODELS,
    datasets: Sequence[str] = studies.DATASETS,
    labels: Sequence[str] = studies.FEW_LABELS,
    trials: int = 10,
    seeds: int = 20,
    out: Path = Path("results/lines"),
    data: Path | None = None,
    device: str = "auto",
    shard: str = "1/1",
    time_limit: float | None = None,
    epochs: int = 500,
    resume: bool = True,
    cuda_graph: bool = True,
) -> bool:
    """Fill the study of few labels. False where the time limit came first."""
    cells = studies.few_labels(models, datasets, labels, trials, seeds)
    return train(cells, "few-labels", out, data, device, shard, time_limit, epochs, resume, cuda_graph)


def ablations(
    kinds: Sequence[str] = tuple(studies.ABLATIONS),
    datasets: Sequence[str] = studies.DATASETS,
    seeds: int = 20,
    out: Path = Path("results/lines"),
    data: Path | None = None,
    device: str = "auto",
    shard: str = "1/1",
    time_limit: float | None = None,
    epochs: int = 500,
    resume: bool = True,
    cuda_graph: bool = True,
) -> bool:
    """Fill the ablations. False where the time limit came first."""
    cells = studies.ablations(kinds, datasets, seeds)
    return train(cells, "ablations", out, data, device, shard, time_limit, epochs, resume, cuda_graph)


def train(
    cells: Sequence[Cell],
    study: str,
    out: Path,
    data: Path | None,
    device: str,
    shard: str,
    time_limit: float | None,
    epochs: int,
    resume: bool,
    cuda_graph: bool,
) -> bool:
    """Train one shard of a study's cells."""
    index, count = _shard(shard)
    file = f"{study}.jsonl" if count == 1 else f"{study}.{index}-of-{count}.jsonl"
    if not resume and any(out.glob(f"{study}*.jsonl*")):
        raise ValueError(f"{out} already holds results of {study}. Resume them, or pass another folder.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return run(
            part_of(cells, index, count),
            out,
            device=torch.device(device),
            folder=data,
            file=file,
            limits=Limits(epochs),
            time_limit=time_limit,
            cuda_graph=cuda_graph,
            say=say_now,
        )


def report(lines: Path, out: Path = Path("results"), say: Callable[[str], None] = say_now) -> list[Path]:
    """Turn the lines of a folder into tables and plots, for each study that it has; the files written."""
    # Loaded by name: a command stands below all rooms, while the rest of this folder stands above the report.
    paths: list[Path] = importlib.import_module("sobgnn.report.results").write(lines, out)
    for path in paths:
        say(str(path))
    return paths


def settings(
    models: Sequence[str] = (*studies.TABLE1_MODELS, *CLASSICAL),
    trials: int = 100,
    out: Path = Path("results/settings"),
    say: Callable[[str], None] = say_now,
) -> None:
    """Write the settings that each model's search tries, one file a model, one setting a line."""
    studies.check_names(models)
    out.mkdir(parents=True, exist_ok=True)
    for model in models:
        rows = Cell("settings", "", model, trials=trials).settings()
        body = ",\n".join(json.dumps({"trial": i, **row}) for i, row in enumerate(rows))
        path = out / f"{model}.json"
        path.write_text(f"[\n{body}\n]\n")
        say(str(path))


def _shard(text: str) -> tuple[int, int]:
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise ValueError(f"`shard` must be i/n, such as 1/4, but got {text!r}.")
    return int(parts[0]), int(parts[1])
