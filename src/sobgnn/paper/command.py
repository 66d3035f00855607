"""``sobgnn reproduce``: the paper's evaluation, tables and figures."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sobgnn.paper import studies
from sobgnn.paper.studies import Cell

DONE, TIME_UP = 0, 3


def run_command(arguments: Sequence[str] | None, program: str) -> int:
    """Run one command of ``program``, whose errors are raised; 0 done, 3 time limit reached (again, it resumes)."""
    options = _parser(program).parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.run
    return command(options)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise in one line; argparse would print the usage too, and exit."""
        raise ValueError(f"{message}. `{self.prog} --help` says more.")


def _parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, description="The paper's evaluation, tables and figures.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> Callable[..., Any]:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(run=run)
        return added.add_argument

    def names(add: Callable[..., Any], option: str, text: str, default: Sequence[str] | None = None) -> None:
        add(option, type=_names, default=default, metavar="A,B", help=text)

    def training(add: Callable[..., Any], *, seeds: int, trials: int | None = None) -> None:
        if trials is not None:
            add("--trials", type=_count, default=trials, help="settings that each search tries")
        add("--seeds", type=_count, default=seeds, help="final seeds of each cell")
        names(add, "--datasets", "names of `sobgnn data list`", studies.DATASETS)
        add("--out", type=Path, default="results/lines", metavar="FOLDER", help="JSON lines, one a training; appended")
        add("--data", type=Path, metavar="FOLDER", help="data sets written by prepare")
        add("--device", default="auto", help="cpu, cuda or auto")
        add("--shard", type=_shard, default=(1, 1), metavar="I/N", help="part I of N, for machines side by side")
        add("--workers", type=_count, default=1, help="processes on one device that share the cells")
        add("--time-limit", type=float, metavar="SECONDS", help="no batch starts after this time")
        add("--epochs", type=_count, default=500, help="maximum number of steps of a training")
        switch = argparse.BooleanOptionalAction
        add("--cuda-graph", action=switch, default=True, help="record steps on CUDA, replay them")
        add("--resume", action=switch, default=True, help="else lines in FOLDER are an error")

    add = command("table1", _table1, "Random search and final seeds for each model on each data set.")
    names(add, "--models", "default: all; on a CPU all but those with attention, which are slow there")
    names(add, "--heads", "plain, paper or both", ["plain"])
    training(add, trials=100, seeds=50)
    add = command("few-labels", _few_labels, "Accuracy with 1, 2, 5 and 20 labels per class and with 10 %%.")
    names(add, "--models", "default: all of the study", studies.FEW_MODELS)
    names(add, "--labels", "n/class or 10%%", studies.FEW_LABELS)
    training(add, trials=10, seeds=20)
    add = command("ablations", _ablations, "S-SobGNN or D-SobGNN with one thing changed at a time.")
    add("--model", default=studies.OURS, help="S-SobGNN or D-SobGNN")
    names(add, "--kinds", "what to change; default: all of the model's")
    training(add, seeds=20)
    add = command("report", _report, "Tables and plots from JSON lines; trains nothing.")
    add("--lines", type=Path, default="results/lines", metavar="FOLDER", help="plain or .gz")
    add("--out", type=Path, default="results", metavar="FOLDER", help="where the tables go")
    add = command("prepare", _prepare, "Write data sets with their graphs as small files, for --data.")
    names(add, "--datasets", "names of `sobgnn data list`", [*studies.DATASETS, *studies.EXTRA_DATASETS])
    add("--out", type=Path, required=True, metavar="FOLDER")
    add = command("figure1", _figure1, "Figure 1: how Hadamard powers penalize the frequencies of a graph.")
    add("--out", type=Path, default="figures", metavar="FOLDER")
    return parser


def _table1(chosen: argparse.Namespace) -> int:
    models = chosen.models
    if models is None:
        models = studies.TABLE1_MODELS
        if _device(chosen.device).type == "cpu":
            models = [model for model in models if model not in studies.ATTENTION]
            print(f"On a CPU without {', '.join(studies.ATTENTION)}, which are slow there: name them to train them.")
    return _train(chosen, studies.table1(models, chosen.datasets, chosen.trials, chosen.seeds, chosen.heads))


def _few_labels(chosen: argparse.Namespace) -> int:
    size = (chosen.trials, chosen.seeds)
    return _train(chosen, studies.few_labels(chosen.models, chosen.datasets, chosen.labels, *size))


def _ablations(chosen: argparse.Namespace) -> int:
    return _train(chosen, studies.ablations(chosen.kinds, chosen.datasets, chosen.seeds, chosen.model))


def _train(chosen: argparse.Namespace, cells: Sequence[Cell]) -> int:
    """Train one part of a study's cells."""
    from sobgnn.paper.run import Run, run

    if not cells:
        raise ValueError(
            "There is nothing to train: the options name no model, no data set, or no head that the model has. Name "
            "one, or leave the option out."
        )
    if not chosen.resume and any(chosen.out.glob(f"{cells[0].study}*.jsonl*")):
        raise ValueError(
            f"{chosen.out} already holds results of {cells[0].study}. Resume them, or pass another folder."
        )
    device = _device(chosen.device)
    how = Run(chosen.out, device, chosen.epochs, chosen.time_limit, chosen.cuda_graph, chosen.shard)
    return DONE if run(cells, how, chosen.data, chosen.workers) else TIME_UP


def _report(chosen: argparse.Namespace) -> int:
    from sobgnn.paper import report

    return _wrote(report.write(chosen.lines, chosen.out))


def _prepare(chosen: argparse.Namespace) -> int:
    from sobgnn.paper import data

    for name in chosen.datasets:
        path = data.save(data.prepare(name), chosen.out)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", flush=True)
    return DONE


def _figure1(chosen: argparse.Namespace) -> int:
    from sobgnn.paper import plots

    return _wrote(plots.draw_figure1(plots.default_graph(), chosen.out))


def _wrote(paths: Sequence[Path]) -> int:
    for path in paths:
        print(path)
    return DONE


def _device(name: str) -> Any:
    import torch

    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be at least 1, but got {text}")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"must be I/N with 1 <= I <= N, such as 1/4, but got {text}")
    return int(index), int(count)
