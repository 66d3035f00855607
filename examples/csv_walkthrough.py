"""A CSV with 200 labels of 2 000 rows: labels for the others, then for rows that come later."""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.datasets import make_classification

from sobgnn.cli import main

# Measurements of three species, a column of text, and labels that stop after 200 rows.
X, kind = make_classification(2500, 12, n_informative=8, n_classes=3, class_sep=1.6, random_state=0)
table = pl.DataFrame(X.round(4), schema=[f"m{i}" for i in range(12)]).with_columns(
    id=pl.Series([f"plant-{i:04}" for i in range(2500)]),
    site=pl.Series(np.array(["hill", "shore"])[np.arange(2500) % 2]),
    species=pl.Series(np.array(["aster", "briar", "clover"])[kind]),
)
known = pl.int_range(pl.len()) < 200

with tempfile.TemporaryDirectory() as folder:
    here = Path(folder)
    old, new = table[:2000], table[2000:]
    old.with_columns(pl.when(known).then("species").alias("species")).write_csv(here / "plants.csv")
    new.drop("species").write_csv(here / "new.csv")

    # The same as: sobgnn fit plants.csv --label species --out run; sobgnn predict run new.csv
    assert main(["fit", str(here / "plants.csv"), "--label", "species", "--out", str(here / "run")]) == 0
    assert main(["predict", str(here / "run"), str(here / "new.csv")]) == 0

    for name, file, truth in [("the other rows", "run/predictions.csv", old), ("new rows", "new.predictions.csv", new)]:
        predicted = pl.read_csv(here / file)["label"]
        rows = slice(200, None) if truth is old else slice(None)
        right = (predicted[rows] == truth["species"][rows]).mean()
        print(f"{name}: {right:.1%} right")
