"""The paper's command line: ``sobgnn reproduce``, or ``python -m sobgnn.paper`` where typer is missing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from sobgnn.paper.protocol import studies
from sobgnn.paper.protocol.plan import Cell
from sobgnn.paper.protocol.plan import shard as part_of

DONE, WRONG_INPUT, TIME_UP = 0, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit: 0 done, 2 wrong input (one line), 3 time limit reached (run it again to resume)."""
    try:
        return run_command(arguments, "python -m sobgnn.paper")
    except (ValueError, TypeError, FileNotFoundError, ChildProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_INPUT


def run_command(arguments: Sequence[str] | None, program: str) -> int:
    """Run one command of ``program``, whose errors are raised; 0 done, 3 time limit reached."""
    options = vars(_parser(program).parse_args(arguments))
    command: Callable[..., int] = options.pop("run")
    return command(**options)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise in one line; argparse would print the usage too, and exit."""
        raise ValueError(f"{message}. `{self.prog} --help` says more.")


def _parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, description="The paper's evaluation, tables and figures.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    table1 = command("table1", _table1, "Random search and final seeds for each model on each data set.")
    _models(table1, "all; on a CPU all but those with attention, which are slow there")
    table1.add_argument("--heads", type=_names, default=["plain"], metavar="A,B", help="plain, paper or both")
    _training(table1, trials=100, seeds=50)
    few = command("few-labels", _few_labels, "Accuracy with 1, 2, 5 and 20 labels per class and with 10 %%.")
    _models(few, "all of the study")
    few.add_argument("--labels", type=_names, default=list(studies.FEW_LABELS), metavar="A,B", help="n/class or 10%%")
    _training(few, trials=10, seeds=20)
    ablations = command("ablations", _ablations, "S-SobGNN or D-SobGNN with one thing changed at a time.")
    ablations.add_argument("--model", default=studies.OURS, help="S-SobGNN or D-SobGNN")
    ablations.add_argument("--kinds", type=_names, metavar="A,B", help="what to change; default: all of the model's")
    _training(ablations, seeds=20)
    report = command("report", _report, "Tables and plots from JSON lines; trains nothing.")
    report.add_argument("--lines", type=Path, default=Path("results/lines"), metavar="FOLDER", help="plain or .gz")
    report.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="where the tables go")
    prepare = command("prepare", _prepare, "Write data sets with their graphs as small files, for --data.")
    prepare.add_argument("--datasets", type=_names, default=[*studies.DATASETS, *studies.EXTRA_DATASETS], metavar="A,B")
    prepare.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    figure1 = command("figure1", _figure1, "Figure 1: how Hadamard powers penalize the frequencies of a graph.")
    figure1.add_argument("--out", type=Path, default=Path("figures"), metavar="FOLDER")
    return parser


def _models(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--models", type=_names, default=None, metavar="A,B", help=f"default: {default}")


def _training(parser: argparse.ArgumentParser, *, seeds: int, trials: int | None = None) -> None:
    """Options of every command that trains; ``args`` of its function beyond its own."""
    add = parser.add_argument
    if trials is not None:
        add("--trials", type=int, default=trials, help="settings that each search tries")
    add("--seeds", type=int, default=seeds, help="final seeds of each cell")
    add("--datasets", type=_names, default=list(studies.DATASETS), metavar="A,B", help="names of `sobgnn data list`")
    add(
        "--out", type=Path, default=Path("results/lines"), metavar="FOLDER", help="JSON lines, one a training; appended"
    )
    add("--data", type=Path, default=None, metavar="FOLDER", help="data sets written by prepare")
    add("--device", default="auto", help="cpu, cuda or auto")
    add("--shard", type=_shard, default=(1, 1), metavar="I/N", help="part I of N, for machines side by side")
    add("--workers", type=int, default=1, help="processes on one device that share the batches")
    add("--time-limit", type=float, default=None, metavar="SECONDS", help="no batch starts after this time")
    add("--epochs", type=int, default=500, help="maximum number of steps of a training")
    add("--cuda-graph", action=argparse.BooleanOptionalAction, default=True, help="record steps on CUDA, replay them")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="else lines in FOLDER are an error")


def _table1(
    models: Sequence[str] | None, datasets: Sequence[str], trials: int, seeds: int, heads: Sequence[str], **how: Any
) -> int:
    if models is None:
        models = studies.TABLE1_MODELS
        if _device(how["device"]).type == "cpu":
            models = [model for model in models if model not in studies.ATTENTION]
            print(f"On a CPU without {', '.join(studies.ATTENTION)}, which are slow there: name them to train them.")
    return _train("table1", studies.table1(models, datasets, trials, seeds, heads), **how)


def _few_labels(
    models: Sequence[str] | None, datasets: Sequence[str], labels: Sequence[str], trials: int, seeds: int, **how: Any
) -> int:
    cells = studies.few_labels(studies.FEW_MODELS if models is None else models, datasets, labels, trials, seeds)
    return _train("few-labels", cells, **how)


def _ablations(model: str, kinds: Sequence[str] | None, datasets: Sequence[str], seeds: int, **how: Any) -> int:
    return _train("ablations", studies.ablations(kinds, datasets, seeds, model), **how)


def _train(
    study: str,
    cells: Sequence[Cell],
    *,
    out: Path,
    data: Path | None,
    device: str,
    shard: tuple[int, int],
    workers: int,
    time_limit: float | None,
    epochs: int,
    cuda_graph: bool,
    resume: bool,
) -> int:
    """Train one shard of a study's cells."""
    from sobgnn.paper.protocol.evaluate import Limits
    from sobgnn.paper.protocol.run import run

    if not cells:
        raise ValueError(
            "There is nothing to train: the options name no model, no data set, or no head that the model has. Name "
            "one, or leave the option out."
        )
    index, count = shard
    file = f"{study}.jsonl" if count == 1 else f"{study}.{index}-of-{count}.jsonl"
    if not resume and any(out.glob(f"{study}*.jsonl*")):
        raise ValueError(f"{out} already holds results of {study}. Resume them, or pass another folder.")
    with _progress() as (say, bar):
        complete = run(
            part_of(cells, index, count),
            out,
            device=_device(device),
            folder=data,
            file=file,
            limits=Limits(epochs),
            time_limit=time_limit,
            cuda_graph=cuda_graph,
            workers=workers,
            say=say,
            progress=bar,
        )
    return DONE if complete else TIME_UP


def _report(lines: Path, out: Path) -> int:
    from sobgnn.paper.report import results

    return _wrote(results.write(lines, out))


def _prepare(datasets: Sequence[str], out: Path) -> int:
    from sobgnn.paper.protocol import data

    for name in datasets:
        path = data.save(data.prepare(name), out)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", flush=True)
    return DONE


def _figure1(out: Path) -> int:
    from sobgnn.paper.report.figure1 import default_graph, draw

    return _wrote(draw(default_graph(), out))


def _wrote(paths: Sequence[Path]) -> int:
    for path in paths:
        print(path)
    return DONE


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str], None], Callable[[float, float, str], None] | None]]:
    """How to print a line, and a bar over the whole study: on a terminal where rich is installed, else lines alone."""
    from sobgnn._system.packages import installed

    if not sys.stdout.isatty() or not installed("rich"):
        yield lambda line: print(line, flush=True), None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
    with Progress(*columns) as shown:
        task = shown.add_task("preparing", total=1.0, left="")

        def bar(share: float, left: float, name: str) -> None:
            shown.update(task, completed=share, left=f"{max(0.0, left) / 60:.1f} min left", description=name)

        yield shown.console.print, bar


def _device(name: str) -> Any:
    import torch

    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isdigit() and count.isdigit()):
        raise argparse.ArgumentTypeError(f"must be I/N, such as 1/4, but got {text!r}")
    return int(index), int(count)


if __name__ == "__main__":
    sys.exit(main())
