"""What the commands share: their options, their exit codes, and how DATA is read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables import Table


WRONG_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143


def at_home(path: Path | None) -> Path | None:
    """The path with ~ as the home folder, which a shell leaves to the program in --out=~/run."""
    return path.expanduser() if path is not None else None


def _accept(share: float | None) -> float | None:
    if share is not None and not 0 < share < 1:
        raise ValueError(f"--accept must be between 0 and 1, but got {share:g}. Try --accept 0.95.")
    return share


def _class_weight(name: str | None) -> str | None:
    if name not in (None, "balanced"):
        raise ValueError(f"--class-weight must be balanced, but got {name!r}.")
    return name


def _formats(names: list[str] | None) -> list[str]:
    from sobgnn.app.runs.exports import check_formats

    check_formats(names or [])
    return names or []


def _device(name: str | None) -> str | None:
    if name is not None:
        from sobgnn._system.process import check_device

        check_device(name)
    return name


DATA: Any = typer.Argument(
    metavar="DATA", help="CSV, Parquet, Excel, JSON or NPZ file, a folder of pictures, or a data set's name."
)
Data = Annotated[str, DATA]
Label = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Label column; default: label, y, class or target. Blank cells are unlabeled."),
]
Identity = Annotated[
    str | None, typer.Option("--id", metavar="COLUMN", help="Column with row ids; not used as a feature.")
]
Drop = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out; may be repeated.")]
Text = Annotated[
    list[str] | None, typer.Option("--text", metavar="COLUMN", help="Column to read as text; may be repeated.")
]
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
    list[str] | None,
    typer.Option(
        "--export",
        metavar="FORMAT",
        callback=_formats,
        help="Also write predictions as parquet, jsonl, label-studio or spreadsheet; may be repeated.",
    ),
]
Device = Annotated[str | None, typer.Option(callback=_device, help="cpu or cuda; default: chosen automatically.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same predictions.")]


def reading_options(
    text: Sequence[str] | None,
    text_model: str | None,
    image_model: str | None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> dict[str, Sequence[str] | Path | str | None]:
    """How columns are to be read: the options of ``tables.read_table`` that every command offers."""
    options = {"text": text or [], "text_model": text_model or "auto", "image_model": image_model, "encoding": encoding}
    return {**options, "sheet": sheet}


def load(
    data: str, label: str | None, identity: str | None, drop: Sequence[str], console: Terminal, **options: Any
) -> tuple[str, Table, dict[str, float]]:
    """The name, the table and the seconds it took, of a file or a data set."""
    from sobgnn.app.runs.source import load_table

    started = time.perf_counter()
    with console.working(f"Reading {data}") as progress:
        name, table = load_table(data, label, identity, drop, progress=progress, **options)
    return name, table, {"reading": time.perf_counter() - started}
