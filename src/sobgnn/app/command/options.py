"""What commands share: the parser, exit codes, options, and how DATA is read."""

from __future__ import annotations

import argparse
import inspect
import math
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sobgnn._system.files import is_file_name
from sobgnn.app.runs import LABELING, TABLE, check_free, check_run

if TYPE_CHECKING:
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables import Table

WRONG_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
_EXITS = """Exit: 0 done, 1 a bug in sobgnn, 2 wrong input (one line on stderr), 130 interrupted, 143 terminated.
--debug, anywhere, shows tracebacks."""


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors, in one line each, and shows ``text`` and the exit codes in its help."""

    def __init__(self, text: str = "", **settings: Any) -> None:
        settings |= {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, "epilog": _EXITS}
        super().__init__(description=inspect.cleandoc(text), **settings)

    def error(self, message: str) -> NoReturn:
        """Raise; argparse would print the usage too, and exit."""
        raise ValueError(f"{message.rstrip('.')}. `{self.prog} --help` says more.")


def add_command(commands: Any, name: str, run: Callable[[Namespace], int]) -> Parser:
    """The parser of a subcommand, which is a function with a docstring."""
    text = str(run.__doc__)
    parser: Parser = commands.add_parser(name, text=text, help=text.splitlines()[0])
    parser.set_defaults(run=run)
    return parser


def at_least(least: float, kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """The type of an option that is a number with a minimum."""

    def number(text: str) -> float:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"must be at least {least:g}, but got {text}.")
        return value

    return number


def path(text: str) -> Path:
    """A path with ~ as the home folder, which a shell leaves to the program in --out=~/run."""
    return Path(text).expanduser()


def place(text: str) -> Path | str:
    """A path, or a URL as it is."""
    return text if "://" in text else path(text)


def number_or_file(text: str) -> float | str:
    """A number, or the name of a file."""
    try:
        return float(text)
    except ValueError:
        if is_file_name(text):
            return text
        raise argparse.ArgumentTypeError(f"invalid float value: {text!r}") from None


def add_cluster(parser: Parser) -> None:
    """Where shards are worked on."""
    parser.add_argument(
        "--cluster",
        metavar="auto|ray://HOST:PORT",
        help="For shards: a Ray cluster to work on; default: all cores of this machine.",
    )


def add_models(parser: Parser) -> None:
    """Options of reading that `sobgnn predict` has too: models, character encoding, sheet."""
    parser.add_argument(
        "--text-model",
        metavar="NAME|FOLDER|none",
        help="Model that compares texts by meaning, beside their words; a name is fetched if it is not here. Default: "
        "one that is here.",
    )
    parser.add_argument(
        "--image-model",
        metavar="NAME|FOLDER",
        help="Vision model for pictures, beside pixels and gradients; a name is fetched if it is not here.",
    )
    parser.add_argument("--encoding", metavar="NAME", help="Character encoding of a text file: shift_jis, gbk, ...")
    parser.add_argument("--sheet", metavar="NAME", help="Sheet of an Excel file that has several.")


def add_data(parser: Parser, required: bool = True) -> None:
    """DATA, how it is read, seed and device."""
    parser.add_argument(
        "data",
        nargs=None if required else "?",
        metavar="DATA",
        help="CSV, Parquet, Excel, JSON or NPZ file, a folder of pictures, or a data set's name.",
    )
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        help="Label column; default: label, y, class or target. Blank cells are unlabeled.",
    )
    parser.add_argument("--id", metavar="COLUMN", help="Column with row ids; not used as a feature.")
    for name, what in (("--drop", "Column to leave out"), ("--text", "Column to read as text")):
        parser.add_argument(name, metavar="COLUMN", action="append", default=[], help=f"{what}; may be repeated.")
    add_models(parser)
    parser.add_argument("--seed", type=at_least(0), default=0, help="Same seed, same predictions. Default: 0.")
    parser.add_argument("--device", help="cpu or cuda; default: chosen automatically.")


def add_fitting(parser: Parser, shards: bool = False) -> None:
    """Which labels are learned from, and how predictions are judged; with ``shards``, labels may be in a file."""
    keep = "Keep this share (0.1) or number per class (5) of the labels; hide the others, measure accuracy on them."
    file = "A CSV FILE of ids and labels: a fit of shards, in which DATA may be many files and larger than memory."
    parser.add_argument(
        "--labels",
        type=number_or_file if shards else float,
        metavar="SHARE|COUNT|FILE" if shards else "SHARE|COUNT",
        help=f"{keep} {file}" if shards else keep,
    )
    parser.add_argument(
        "--accept",
        type=float,
        metavar="SHARE",
        help="Mark predictions accept, so that this share of them (0.95) is right, and the others review.",
    )
    parser.add_argument(
        "--class-weight", choices=["balanced"], help="balanced: rare classes get the same weight as common ones."
    )


def check_file(file: Path) -> None:
    """Raise at once if a file or folder is missing, before imports that take seconds."""
    if not file.exists():
        raise ValueError(f"There is no file {str(file)!r}.")


def check(options: Namespace) -> None:
    """Raise before DATA is read, which may take minutes, if it is missing or the value of an option is impossible."""
    if is_file_name(options.data):
        check_file(Path(options.data))
    else:
        from sobgnn import datasets

        datasets.locate(options.data)
    if options.device is not None:
        from sobgnn._system.process import check_device

        check_device(options.device)


def check_fitting(options: Namespace) -> None:
    """:func:`check` for commands that fit."""
    check(options)
    data, labels, accept = Path(options.data), options.labels, options.accept
    if (data / LABELING[0]).is_file():
        check_run(data)
    if (data / TABLE).is_file():
        raise ValueError(
            f"{data} is a run, which does not hold its data. To label new rows: sobgnn predict {data} FILE. To fit "
            "again, name the data: sobgnn fit FILE."
        )
    if labels is not None and (not labels > 0 or math.isinf(labels) or (labels >= 1 and labels != round(labels))):
        raise ValueError(
            f"--labels must be a share between 0 and 1 or a whole number per class, but got {labels:g}. "
            "Try --labels 0.1 or --labels 5."
        )
    if accept is not None and not 0 < accept < 1:
        raise ValueError(f"--accept must be between 0 and 1, but got {accept:g}. Try --accept 0.95.")
    if isinstance(options.out, str):
        raise ValueError(f"--out must be a folder, but got {options.out}: a URL is for shards.")
    if options.out is not None and not any(options.out.glob("*.journal")):  # of a search that may be resumed
        check_free(options.out)


def reading(options: Namespace) -> dict[str, Any]:
    """Options of ``tables.read_table``."""
    return {
        "text": options.text,
        "text_model": options.text_model or "auto",
        "image_model": options.image_model,
        "encoding": options.encoding,
        "sheet": options.sheet,
    }


def load(options: Namespace, console: Terminal) -> tuple[str, Table, dict[str, float]]:
    """The name, the table and the seconds it took, of a file or a data set."""
    from sobgnn.app.runs.source import dataset_table
    from sobgnn.tables import file_stem, read_table

    started, name, data = time.perf_counter(), options.data, Path(options.data)
    with console.working(f"Reading {name}") as progress:
        if is_file_name(name):
            asked = (options.label, options.id, options.drop)
            name, table = file_stem(data), read_table(data, *asked, progress=progress, **reading(options))
        else:
            table = dataset_table(name)
    return name, table, {"reading": time.perf_counter() - started}
