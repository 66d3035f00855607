from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sobgnn.tables.columns.vector import VectorColumn, as_lists


def encoded(column, series):
    """The features of a series, dense."""
    found = column.encode(column.parse(series).values)
    return found.toarray() if hasattr(found, "toarray") else found


def fit(series):
    return VectorColumn.fit(series, as_lists(series))


LISTS = [[1.0, 10.0], [3.0, 20.0], None, [5.0, 60.0], *[[3.0, 30.0]] * 8]


@pytest.mark.parametrize(
    "cells",
    [
        pl.Series("v", LISTS),
        pl.Series("v", LISTS, dtype=pl.Array(pl.Float64, 2)),
        pl.Series("v", [None if cell is None else f"[{cell[0]}; {cell[1]}]" for cell in LISTS]),
    ],
    ids=["lists", "arrays", "text"],
)
def test_vectors_are_centered_on_the_mean_of_those_given_and_blanks_lie_there(cells):
    choice = fit(cells)
    known = np.array([cell for cell in LISTS if cell is not None])
    found = encoded(choice.column, cells)
    rows = [i for i, cell in enumerate(LISTS) if cell is not None]
    np.testing.assert_allclose(found[rows], known - known.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(found[2], [0, 0])
    assert choice.notes == ["1 blank or of another length, set to the mean"]
    assert choice.column.feature_names() == ["v [0]", "v [1]"]


def test_a_vector_of_another_length_or_with_a_hole_is_blank():
    odd = encoded(
        fit(pl.Series("v", LISTS)).column,
        pl.Series("v", [[1.0, 2.0, 3.0], [float("nan"), 1.0], [1.0, None], [], [4.0, 31.0]]),
    )
    np.testing.assert_array_equal(odd[:4], np.zeros((4, 2)))
    assert odd[4].any()


def test_a_cell_that_is_no_vector_is_blank_and_its_neighbors_are_read():
    column = fit(pl.Series("v", LISTS)).column
    cells = column.parse(pl.Series("v", ["[1, 2]", "soon", None, "[4, 31]"]))
    assert cells.read.tolist() == [True, False, False, True]
    assert column.encode(cells.values).any(axis=1).tolist() == [True, False, False, True]


def test_vectors_that_are_all_the_same_or_of_many_lengths_are_no_column():
    assert fit(pl.Series("v", [[1.0, 2.0]] * 10)).outcome == "constant"
    choice = fit(pl.Series("v", [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]] * 5))
    assert (choice.column, choice.outcome) == (None, "vectors of different lengths")
