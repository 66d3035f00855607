"""`sobgnn data`: data sets by name, and where they are."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

app = typer.Typer(help="Data sets by name, and where they are.", rich_markup_mode=None)

_PLACES = {"shipped": "with scikit-learn", "download": "downloadable", "missing": "not found; set SOBGNN_DATA"}


@app.command("list")
def data_list() -> None:
    """Names of the data sets, and where each one is found. Exit: 0."""
    from sobgnn import datasets
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.datasets.catalogue import CATALOGUE

    console = Terminal()
    for name in datasets.names():
        place = datasets.locate(name)
        console.said(f"{name:<18}{place.path or _PLACES[place.source]}")
        console.out.print(Text(f"{'':<18}{CATALOGUE[name].description}", style="dim"))


@app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="A name from `sobgnn data list`.")]) -> None:
    """Load a data set, downloading it if possible, and check it. Exit: 0 done, 2 not available."""
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.app.runs.source import dataset_table

    console = Terminal()
    with console.working(f"Fetching {name}"):
        table = dataset_table(name)
    console.data(name, table)
