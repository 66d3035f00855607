from __future__ import annotations

import numpy as np
import pytest

from sobgnn.app.runs.agreement import Agreement

FAR, NEW, COPY = 9.0, 1.0, 0.0


def counted(classes, labels, predicted, nearest=None, accepted=None):
    agreement = Agreement(classes)
    count = len(labels)
    agreement.add(
        labels,
        np.array(predicted, dtype=object),
        np.full(count, NEW) if nearest is None else np.array(nearest),
        np.zeros(count, dtype=bool) if accepted is None else np.array(accepted),
    )
    return agreement


def test_rows_without_a_label_are_not_counted():
    agreement = counted(["a", "b"], ["a", None, "b", "b"], ["a", "a", "b", "a"])
    assert (agreement.counted, agreement.right) == (3, 2)
    assert agreement.notes() == [
        "Predictions agree with the file's labels in 2 of 3 rows (66.7%, 95% interval 20.8% to 93.9%)."
    ]


def test_copies_of_training_points_are_named_and_not_counted():
    agreement = counted(["a", "b"], ["a", "b"], ["a", "b"], nearest=[COPY, FAR])
    assert (agreement.counted, agreement.right, agreement.copies) == (1, 1, 1)
    assert "equal a training point, whose label the model may have learned: 1." in agreement.notes()[1]


def test_distances_that_are_unknown_are_no_copies():
    assert counted(["a", "b"], ["a"], ["a"], nearest=[np.nan]).counted == 1


@pytest.mark.parametrize("label", ["3", "3.0", "03"])
def test_whole_numbers_are_compared_as_numbers(label):
    assert counted([3, 4], [label], [3]).right == 1


def test_names_are_compared_as_they_are_written():
    agreement = counted(["03", "3.0"], ["03", "3.0", "3"], ["03", "3.0", "03"])
    assert (agreement.right, agreement.others) == (2, {"3": 1})


def test_labels_that_are_no_class_are_named_beside_those_that_are():
    agreement = counted(["a", "b"], ["a", "c", "c"], ["a", "b", "b"])
    assert agreement.counted == 1
    assert agreement.notes()[-1] == "Labels that are no class of the model, not counted: c (2 rows)."


def test_nothing_is_said_if_no_label_is_a_class():
    assert counted(["a", "b"], ["new", "new", None], ["a", "b", "b"]).notes() == []


def test_accepted_rows_are_counted_apart():
    agreement = counted(["a", "b"], ["a", "b", "b"], ["a", "b", "a"], accepted=[True, True, False])
    assert (agreement.accepted, agreement.accepted_right) == (2, 2)
    assert agreement.notes()[0].endswith("; among accepted rows, in 2 of 2.")


def test_counts_add_up_over_batches():
    agreement = Agreement(["a", "b"])
    for label in ("a", "b"):
        agreement.add([label], np.array(["a"], dtype=object), np.array([NEW]), np.array([False]))
    assert (agreement.counted, agreement.right) == (2, 1)


@pytest.mark.parametrize("label", ["1.5", "1.50"])
def test_fractions_are_compared_as_numbers(label):
    agreement = counted(["1.0", "1.5"], [label, "1"], ["1.5", "1.0"])
    assert (agreement.counted, agreement.right) == (2, 2)


def test_long_numbers_are_names_and_not_rounded():
    names = ["12345678901234567", "12345678901234568"]
    agreement = counted(names, ["12345678901234569", names[0]], [names[1], names[0]])
    assert (agreement.counted, agreement.others) == (1, {"12345678901234569": 1})


@pytest.mark.parametrize("label", ["-1", "-1.0", "Unlabeled", "n.a.", "todo"])
def test_labels_that_mean_unlabeled_are_not_named(label):
    agreement = counted([1, 2], [label, "1"], [2, 1])
    assert (agreement.counted, agreement.others) == (1, {})


def test_todo_that_is_a_class_is_counted_even_if_nothing_is_done():
    assert counted(["done", "todo"], ["todo"], ["todo"]).right == 1
