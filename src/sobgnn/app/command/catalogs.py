"""`sobgnn data` and `sobgnn models`: data sets and models by name, and where they are."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sobgnn.app.command.options import add_command

_PLACES = {"shipped": "with scikit-learn", "download": "downloadable", "missing": "not found; set SOBGNN_DATA"}


def _list_data(_: Namespace) -> int:
    """Names of the data sets, and where each one is found."""
    from sobgnn import datasets
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.datasets.catalogue import CATALOGUE

    console = Terminal()
    for name in datasets.names():
        place = datasets.locate(name)
        console.said(f"{name:<18}{place.path or _PLACES[place.source]}")
        console.notes([f"{'':<16}{CATALOGUE[name].description}"])
    return 0


def _fetch_data(options: Namespace) -> int:
    """Load a data set, downloading it if possible, and check it."""
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.app.runs.source import dataset_table

    console = Terminal()
    with console.working(f"Fetching {options.name}"):
        table = dataset_table(options.name)
    console.data(options.name, table)
    return 0


def _list_models(_: Namespace) -> int:
    """Models on this machine, with their folders, and names that can be fetched. The network is not used."""
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables.models import KNOWN, at_hand, find_text_model, is_called

    console = Terminal()
    found, chosen = at_hand(), find_text_model("auto")
    for each in found:
        default = " (used for texts by default)" if chosen is not None and chosen.folder == each.folder else ""
        console.said(f"{each.name:<42}{each.place}{default}")
        console.said(f"{'':<4}{each.folder}")
    for short in KNOWN:
        if not any(is_called(each, short) for each in found):
            console.said(f"{short:<42}not here; `sobgnn models fetch {short}`")
    return 0


def _fetch_model(options: Namespace) -> int:
    """Fetch a model from the Hugging Face hub: its JSON and safetensors."""
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables.models import find

    console = Terminal()
    with console.working(f"Fetching {options.name}"):
        found = find(options.name)
    console.said(f"{found.name}: {found.folder}")
    return 0


def _distill(options: Namespace) -> int:
    """Make a static model of a sentence model, hundreds of times as fast and less accurate, in the cache folder."""
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables.models import distill

    console = Terminal()
    with console.working(f"Distilling {options.name}, which takes about a minute"):
        found = distill(options.name)
    console.said(f"{found.name}: {found.folder}")
    console.said(f"Use it with --text-model {found.name}.")
    return 0


def add_data(commands: Any) -> None:
    """Add `sobgnn data` and its subcommands."""
    about = "Data sets by name, and where they are."
    own = commands.add_parser("data", text=about, help=about).add_subparsers(required=True, metavar="list|fetch")
    add_command(own, "list", _list_data)
    add_command(own, "fetch", _fetch_data).add_argument("name", help="A name from `sobgnn data list`.")


def add_models(commands: Any) -> None:
    """Add `sobgnn models` and its subcommands."""
    about = "Models that compare texts and pictures by meaning, and where they are."
    parser = commands.add_parser("models", text=about, help=about)
    own = parser.add_subparsers(required=True, metavar="list|fetch|distill")
    add_command(own, "list", _list_models)
    fetch = add_command(own, "fetch", _fetch_model)
    fetch.add_argument("name", help="A short name from `sobgnn models list`, or OWNER/NAME.")
    distill = add_command(own, "distill", _distill)
    distill.add_argument("name", metavar="NAME|FOLDER", help="A sentence-transformers model.")
