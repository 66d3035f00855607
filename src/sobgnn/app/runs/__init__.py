"""What a fit leaves: a folder with its model, predictions, facts and report."""

import os
import tempfile
from pathlib import Path

# Files of a run folder. The table marks it as a run; the last three are for people.
TABLE, ARRAYS, METRICS, CHECKS, MODEL, PREDICTIONS, REPORT = (
    "table.json", "table.npz", "metrics.json", "checks.json", "model", "predictions.csv", "report.html",
)  # fmt: skip
# What --export adds.
FORMATS = {
    "parquet": "predictions.parquet",
    "jsonl": "predictions.jsonl",
    "label-studio": "label-studio.json",
    "spreadsheet": "predictions.spreadsheet.csv",
}
FILES = (TABLE, ARRAYS, METRICS, CHECKS, MODEL, PREDICTIONS, REPORT, *FORMATS.values())
# Files of a labeling, which becomes a run when it is finished.
LABELING = ("labels.db", "labels.csv")


def check_free(folder: Path) -> None:
    """Raise early if a run could not be written later."""
    if folder.exists():
        raise ValueError(f"{folder} already exists. Name another folder with --out.")
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".sobgnn-", dir=nearest))  # permissions are not enough to know
    except OSError:
        raise ValueError(f"{folder} cannot be created: {nearest} is not a writable folder.") from None


def check_run(folder: Path) -> None:
    """Raise if there is no run in a folder; what is damaged is said when it is opened."""
    if not folder.is_dir():
        raise ValueError(f"There is no run folder {str(folder)!r}. Create one with `sobgnn fit`.")
    if not os.path.lexists(folder / TABLE) and any((folder / name).exists() for name in LABELING):
        raise ValueError(
            f"{folder} holds labels, but no model yet: open its page with `sobgnn label DATA --out {folder}`, label "
            "rows of at least two classes, and press Finish."
        )
