"""``python -m sobgnn.protocol``: the protocol on a machine that has torch, PyG and scikit-learn alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sobgnn.baselines.classical import CLASSICAL
from sobgnn.protocol import actions, studies


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit: 0 done, 2 wrong input, 3 the time limit came first (run it again to go on)."""
    parser = argparse.ArgumentParser(prog="python -m sobgnn.protocol", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="write data sets and their graphs as small files")
    prepare.add_argument("--datasets", type=_names, default=[*studies.DATASETS, *studies.EXTRA_DATASETS])
    prepare.add_argument("--out", type=Path, required=True)
    table1 = commands.add_parser("table1", help="random search and final seeds for every model and data set")
    _running(table1)
    table1.add_argument("--models", type=_names, default=list(studies.TABLE1_MODELS))
    table1.add_argument("--datasets", type=_names, default=list(studies.DATASETS))
    table1.add_argument("--trials", type=int, default=100)
    table1.add_argument("--seeds", type=int, default=50)
    table1.add_argument("--heads", type=_names, default=["plain"], help="plain, paper or both")
    few = commands.add_parser("few-labels", help="models at 1, 5 and 20 labels per class and at 10 %%")
    _running(few)
    few.add_argument("--models", type=_names, default=list(studies.FEW_MODELS))
    few.add_argument("--datasets", type=_names, default=list(studies.DATASETS))
    few.add_argument("--labels", type=_names, default=list(studies.FEW_LABELS), help="n/class or 10%%")
    few.add_argument("--trials", type=int, default=10)
    few.add_argument("--seeds", type=int, default=20)
    ablations = commands.add_parser("ablations", help="S-SobGNN with one thing changed at a time")
    _running(ablations)
    ablations.add_argument("--kinds", type=_names, default=list(studies.ABLATIONS))
    ablations.add_argument("--datasets", type=_names, default=list(studies.DATASETS))
    ablations.add_argument("--seeds", type=int, default=20)
    report = commands.add_parser("report", help="tables and plots from JSON lines; trains nothing")
    report.add_argument("--lines", type=Path, required=True, help="folder of JSON lines, also compressed ones")
    report.add_argument("--out", type=Path, default=Path("results"))
    settings = commands.add_parser("settings", help="write the settings that each search tries")
    settings.add_argument("--models", type=_names, default=[*studies.TABLE1_MODELS, *CLASSICAL])
    settings.add_argument("--trials", type=int, default=100)
    settings.add_argument("--out", type=Path, default=Path("results/settings"))
    chosen = vars(parser.parse_args(arguments))
    command = chosen.pop("command")
    try:
        if command in ("prepare", "report", "settings"):
            getattr(actions, command)(**chosen)
            return 0
        action: Callable[..., bool] = getattr(actions, command.replace("-", "_"))
        return 0 if action(**chosen) else 3
    except (ValueError, TypeError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _running(parser: argparse.ArgumentParser) -> None:
    """Options of every command that trains."""
    parser.add_argument("--out", type=Path, default=Path("results/lines"), help="folder of JSON lines, appended to")
    parser.add_argument("--data", type=Path, default=None, help="folder of prepared data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shard", default="1/1", help="i/n: part i of n, for machines or processes side by side")
    parser.add_argument("--time-limit", type=float, default=None, help="seconds after which no batch starts")
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--cuda-graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
