"""The protocol under ``sobgnn reproduce``: words to function calls, and a progress bar over the whole study."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

TIME_UP = 3

app = typer.Typer(help="The paper's evaluation.", rich_markup_mode=None)

_Datasets = Annotated[str, typer.Option(metavar="A,B", help="Data sets, comma-separated.")]
_Trials = Annotated[int, typer.Option(help="Number of settings that each search tries.")]
_Seeds = Annotated[int, typer.Option(help="Number of final seeds per cell.")]
_LINES = Path("results/lines")
# Those of sobgnn.protocol.studies, which would import torch for the help.
_FOUR = "isolet,har,20news,cancer"
_FEW_LABELS = "1/class,2/class,5/class,20/class,10%"


@contextmanager
def _running(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="JSON lines, one per training; appended.")] = _LINES,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Data sets written by `python -m sobgnn.protocol prepare`.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    shard: Annotated[str, typer.Option(metavar="I/N", help="Part I of N, for several machines or processes.")] = "1/1",
    workers: Annotated[int, typer.Option(help="Processes on one device that share the batches.")] = 1,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="No batch starts after this time.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Maximum number of training steps.")] = 500,
    resume: Annotated[bool, typer.Option(help="Resume after the lines in FOLDER; else they are an error.")] = True,
) -> Iterator[Any]:
    """How to train, with a bar on a terminal and lines elsewhere; the parameters are options of every study."""
    from sobgnn.protocol.actions import Running, say_now

    def running(say: Callable[[str], None], bar: Callable[[float, float, str], None] | None) -> Running:
        return Running(out, data, device, shard, time_limit, epochs, resume, workers=workers, say=say, progress=bar)

    if not sys.stdout.isatty():
        yield running(say_now, None)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
    with Progress(*columns) as shown:
        task = shown.add_task("preparing", total=1.0, left="")

        def bar(share: float, left: float, name: str) -> None:
            shown.update(task, completed=share, left=f"{max(0.0, left) / 60:.1f} min left", description=name)

        yield running(shown.console.print, bar)


def _study(name: str) -> Callable[[Callable[..., bool]], None]:
    """Register a command that trains: its own options are followed by those of :func:`_running`.

    It is called with what these make, and returns whether it was complete.
    """
    shared = inspect.signature(_running, eval_str=True).parameters

    def register(study: Callable[..., bool]) -> None:
        def command(**options: Any) -> None:
            with _running(**{option: options.pop(option) for option in shared}) as running:
                complete = study(running, **options)
            if not complete:
                raise typer.Exit(TIME_UP)

        _, *own = inspect.signature(study, eval_str=True).parameters.values()
        parameters = [*own, *shared.values()]
        command.__doc__ = study.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name)(command)

    return register


@_study("table1")
def table1(
    running: Any,
    models: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Default: all; on a CPU, all without attention, which is slow there."),
    ] = None,
    datasets: _Datasets = _FOUR,
    trials: _Trials = 100,
    seeds: _Seeds = 50,
    heads: Annotated[
        str, typer.Option(help="plain, paper (ReLU and dropout on the logits), or plain,paper.")
    ] = "plain",
) -> bool:
    """Table 1 of the paper: random search and final seeds for each model on each data set.

    Appends to FOLDER; if killed, the same command resumes. `sobgnn reproduce report` builds the tables.
    Exit: 0 done, 2 wrong input, 3 time limit reached.
    """
    from sobgnn.protocol import actions

    names = None if models is None else _names(models)
    return actions.table1(running, names, _names(datasets), trials, seeds, _names(heads))


@_study("few-labels")
def few_labels(
    running: Any,
    models: Annotated[str | None, typer.Option(metavar="A,B", help="Default: all models of the study.")] = None,
    datasets: _Datasets = _FOUR,
    labels: Annotated[str, typer.Option(help="n/class or 10%, comma-separated.")] = _FEW_LABELS,
    trials: _Trials = 10,
    seeds: _Seeds = 20,
) -> bool:
    """Accuracy with 1, 2, 5 and 20 labels per class and with 10 %.

    Appends to FOLDER. Exit: 0 done, 2 wrong input, 3 time limit reached.
    """
    from sobgnn.protocol import actions, studies

    names = studies.FEW_MODELS if models is None else _names(models)
    return actions.few_labels(running, names, _names(datasets), _names(labels), trials, seeds)


@_study("ablations")
def ablations(
    running: Any,
    kinds: Annotated[
        str | None, typer.Option(metavar="A,B", help="What to change, comma-separated; default: all for the model.")
    ] = None,
    model: Annotated[str, typer.Option(help="S-SobGNN or D-SobGNN.")] = "S-SobGNN",
    datasets: _Datasets = _FOUR,
    seeds: _Seeds = 20,
) -> bool:
    """S-SobGNN or D-SobGNN with one thing changed at a time.

    Appends to FOLDER. Exit: 0 done, 2 wrong input, 3 time limit reached.
    """
    from sobgnn.protocol import actions

    return actions.ablations(running, None if kinds is None else _names(kinds), _names(datasets), seeds, model)


@app.command("report")
def report(
    lines: Annotated[Path, typer.Option(metavar="FOLDER", help="JSON lines, plain or compressed.")] = _LINES,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the tables and plots go.")] = Path("results"),
    device_minutes: Annotated[
        str, typer.Option(metavar="STUDY=MINUTES", help="Metered device time, to be shown in the tables.")
    ] = "",
) -> None:
    """Markdown, CSV and LaTeX tables and plots from JSON lines. Trains nothing.

    Exit: 0 done, 2 wrong input.
    """
    from sobgnn.protocol import actions

    actions.report(lines, out, _names(device_minutes))


@app.command("settings")
def settings(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files go, one per model.")] = Path(
        "results/settings"
    ),
    trials: Annotated[int, typer.Option(help="Number of settings per model.")] = 100,
) -> None:
    """The settings that each model's search tries, as JSON. Exit: 0."""
    from sobgnn.protocol import actions

    actions.settings(trials=trials, out=out)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command("figure1")
def reproduce_figure1(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where figure1.png and figure1.svg go.")] = Path(
        "figures"
    ),
) -> None:
    """Figure 1 of the paper: how Hadamard powers penalize the frequencies of a graph.

    Writes figure1.png and figure1.svg to FOLDER. Exit: 0 done, 2 wrong input.
    """
    from sobgnn.command import terminal
    from sobgnn.protocol.report.figure1 import default_graph, draw

    console = terminal.Terminal()
    for path in draw(default_graph(), out):
        console.wrote(path)
