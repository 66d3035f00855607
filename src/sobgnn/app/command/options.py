"""What the commands share: their options, their exit codes, and how DATA is read."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from sobgnn._system.files import is_file_name

if TYPE_CHECKING:
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables import Table


WRONG_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143


def at_home(path: Path | None) -> Path | None:
    """The path with ~ as the home folder, which a shell leaves to the program in --out=~/run."""
    return path.expanduser() if path is not None else None


def at_hand(path: Path) -> Path:
    """The path of a file or folder; that it is missing is said at once, before imports that take seconds."""
    if not path.exists():
        raise ValueError(f"There is no file {str(path)!r}.")
    return path


def _data(name: str | None) -> str | None:
    if name is not None and is_file_name(name):
        at_hand(Path(name))
    elif name is not None:
        from sobgnn import datasets

        datasets.locate(name)
    return name


def _accept(share: float | None) -> float | None:
    if share is not None and not 0 < share < 1:
        raise ValueError(f"--accept must be between 0 and 1, but got {share:g}. Try --accept 0.95.")
    return share


def _class_weight(name: str | None) -> str | None:
    if name not in (None, "balanced"):
        raise ValueError(f"--class-weight must be balanced, but got {name!r}.")
    return name


def _formats(names: list[str] | None) -> list[str]:
    if names:
        from sobgnn.app.runs.exports import check_formats

        check_formats(names)
    return names or []


def _device(name: str | None) -> str | None:
    if name is not None:
        from sobgnn._system.process import check_device

        check_device(name)
    return name


DATA: Any = typer.Argument(
    metavar="DATA",
    callback=_data,
    help="CSV, Parquet, Excel, JSON or NPZ file, a folder of pictures, or a data set's name.",
)
Names = list[str] | None
TextModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER|none",
        help="Model that compares texts by meaning, beside their words; a name is fetched if it is not here. Default: "
        "one that is here.",
    ),
]
ImageModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER",
        help="Vision model for pictures, beside pixels and gradients; a name is fetched if it is not here.",
    ),
]
TextEncoding = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="Character encoding of a text file, such as shift_jis or gbk."),
]
Sheet = Annotated[str | None, typer.Option("--sheet", metavar="NAME", help="Sheet of an Excel file that has several.")]
Labels = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE|COUNT",
        help="Keep this share (0.1) or number per class (5) of the labels; hide the others, measure accuracy on them.",
    ),
]
Accept = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        callback=_accept,
        help="Mark predictions accept, so that this share of them (0.95) is right, and the others review.",
    ),
]
ClassWeight = Annotated[
    str | None,
    typer.Option(
        metavar="balanced", callback=_class_weight, help="balanced: rare classes get the same weight as common ones."
    ),
]
Export = Annotated[
    Names,
    typer.Option(
        "--export",
        metavar="FORMAT",
        callback=_formats,
        help="Also write predictions as parquet, jsonl, label-studio or spreadsheet; may be repeated.",
    ),
]
Device = Annotated[str | None, typer.Option(callback=_device, help="cpu or cuda; default: chosen automatically.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same predictions.")]


@dataclass(frozen=True)
class Reading:
    """How DATA is read: an option for each field."""

    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Label column; default: label, y, class or target. Blank cells are unlabeled."
        ),
    ] = None
    identity: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column with row ids; not used as a feature.")
    ] = None
    drop: Annotated[Names, typer.Option(metavar="COLUMN", help="Column to leave out; may be repeated.")] = None
    text: Annotated[Names, typer.Option(metavar="COLUMN", help="Column to read as text; may be repeated.")] = None
    text_model: TextModel = None
    image_model: ImageModel = None
    encoding: TextEncoding = None
    sheet: Sheet = None

    @property
    def columns(self) -> tuple[str | None, str | None, list[str]]:
        """Which columns are labels, ids, and left out."""
        return self.label, self.identity, list(self.drop or [])

    @property
    def options(self) -> dict[str, Any]:
        """The other options of ``tables.read_table``."""
        return {
            "text": self.text or [],
            "text_model": self.text_model or "auto",
            "image_model": self.image_model,
            "encoding": self.encoding,
            "sheet": self.sheet,
        }

    def load(self, data: str, console: Terminal) -> tuple[str, Table, dict[str, float]]:
        """The name, the table and the seconds it took, of a file or a data set."""
        from sobgnn.app.runs.source import load_table

        started = time.perf_counter()
        with console.working(f"Reading {data}") as progress:
            name, table = load_table(data, *self.columns, progress=progress, **self.options)
        return name, table, {"reading": time.perf_counter() - started}


def with_reading(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`Reading` in place of its parameter ``reading``."""
    hints = get_type_hints(Reading, include_extras=True)
    options = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[field.name])
        for field in fields(Reading)
    ]
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        parameters += options if own.name == "reading" else [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    @functools.wraps(command)
    def read(**given: Any) -> None:
        reading = Reading(**{option.name: given.pop(option.name) for option in options})
        command(reading=reading, **given)

    read.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    read.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return read
