"""``python -m sobgnn.protocol``: the protocol on a machine that has only torch, PyG and scikit-learn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from sobgnn.baselines.classical import CLASSICAL
from sobgnn.protocol import actions, studies
from sobgnn.protocol.actions import Running


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit: 0 done, 2 wrong input, 3 time limit reached (run it again to resume)."""
    chosen = vars(_parser().parse_args(arguments))
    command = chosen.pop("command")
    action: Callable[..., Any] = getattr(actions, command.replace("-", "_"))
    try:
        if command in ("prepare", "report", "settings"):
            action(**chosen)
            return 0
        how = {field.name: chosen.pop(field.name) for field in fields(Running) if field.name in chosen}
        return 0 if action(Running(**how), **chosen) else 3
    except (ValueError, TypeError, FileNotFoundError, ChildProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sobgnn.protocol", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="write data sets and their graphs as small files")
    prepare.add_argument("--datasets", type=_names, default=[*studies.DATASETS, *studies.EXTRA_DATASETS])
    prepare.add_argument("--out", type=Path, required=True)
    table1 = commands.add_parser("table1", help="random search and final seeds for every model and data set")
    _running(table1, trials=100, seeds=50)
    table1.add_argument("--models", type=_names, default=None)
    table1.add_argument("--heads", type=_names, default=["plain"], help="plain, paper or both")
    few = commands.add_parser("few-labels", help="models at 1, 2, 5 and 20 labels per class and at 10 %%")
    _running(few, trials=10, seeds=20)
    few.add_argument("--models", type=_names, default=list(studies.FEW_MODELS))
    few.add_argument("--labels", type=_names, default=list(studies.FEW_LABELS), help="n/class or 10%%")
    ablations = commands.add_parser("ablations", help="S-SobGNN or D-SobGNN with one thing changed at a time")
    _running(ablations, trials=None, seeds=20)
    ablations.add_argument("--model", default="S-SobGNN", help="S-SobGNN or D-SobGNN")
    ablations.add_argument("--kinds", type=_names, default=None, help="what to change; all of the model's if left out")
    report = commands.add_parser("report", help="tables and plots from JSON lines; trains nothing")
    report.add_argument("--lines", type=Path, required=True, help="folder of JSON lines, also compressed ones")
    report.add_argument("--out", type=Path, default=Path("results"))
    report.add_argument("--device-minutes", type=_names, default=[], help="as metered: table1=52.5,ablations=4")
    settings = commands.add_parser("settings", help="write the settings that each search tries")
    settings.add_argument("--models", type=_names, default=[*studies.TABLE1_MODELS, *CLASSICAL])
    settings.add_argument("--trials", type=int, default=100)
    settings.add_argument("--out", type=Path, default=Path("results/settings"))
    return parser


def _running(parser: argparse.ArgumentParser, trials: int | None, seeds: int) -> None:
    """Options of every command that trains."""
    if trials is not None:
        parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--datasets", type=_names, default=list(studies.DATASETS))
    parser.add_argument("--out", type=Path, default=Path("results/lines"), help="folder of JSON lines, appended to")
    parser.add_argument("--data", type=Path, default=None, help="folder of prepared data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shard", default="1/1", help="i/n: part i of n, for machines or processes side by side")
    parser.add_argument("--workers", type=int, default=1, help="processes on one device that share the batches")
    parser.add_argument("--time-limit", type=float, default=None, help="seconds after which no batch starts")
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--cuda-graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
