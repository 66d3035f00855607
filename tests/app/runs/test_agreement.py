from __future__ import annotations

import numpy as np
import pytest

from sobgnn.app.runs.predict import Agreement


def counted(classes, labels, predicted, nearest=1.0, accepted=False):
    agreement, count = Agreement(classes), len(labels)
    nearest, accepted = np.broadcast_to(nearest, count), np.broadcast_to(accepted, count)
    for row in range(count):  # batches of one row
        one = slice(row, row + 1)
        agreement.add(labels[one], np.array(predicted[one], dtype=object), nearest[one], accepted[one])
    return agreement


def test_rows_with_a_label_are_counted_and_accepted_ones_apart():
    agreement = counted(["a", "b"], ["a", None, "b", "b"], ["a", "a", "b", "a"])
    assert agreement.notes() == [
        "Predictions agree with the file's labels in 2 of 3 rows (66.7%, 95% interval 20.8% to 93.9%)."
    ]
    agreement = counted(["a", "b"], ["a", "b", "b"], ["a", "b", "a"], accepted=[True, True, False])
    assert agreement.notes()[0].endswith("; among accepted rows, in 2 of 2.")
    assert counted(["a", "b"], ["new", "new", None], ["a", "b", "b"]).notes() == []


def test_copies_of_training_points_are_named_and_not_counted():
    agreement = counted(["a", "b"], ["a", "b", "a"], ["a", "b", "b"], nearest=[0.0, 9.0, np.nan])
    assert (agreement.counted, agreement.right, agreement.copies) == (2, 1, 1)
    assert "equal a training point, whose label the model may have learned: 1." in agreement.notes()[1]


@pytest.mark.parametrize(
    ("classes", "label", "predicted", "right", "others"),
    [
        ([3, 4], "3", 3, 1, {}),  # whole numbers are compared as numbers
        ([3, 4], "3.0", 3, 1, {}),
        ([3, 4], "03", 3, 1, {}),
        (["03", "3.0"], "3.0", "3.0", 1, {}),  # names as they are written
        (["03", "3.0"], "3", "03", 0, {"3": 1}),
        (["1.0", "1.5"], "1.50", "1.5", 1, {}),
        (
            ["12345678901234567", "12345678901234568"],
            "12345678901234569",
            "12345678901234568",
            0,
            {"12345678901234569": 1},
        ),
        ([1, 2], "-1", 1, 0, {}),  # unlabeled
        ([1, 2], "Unlabeled", 1, 0, {}),
        (["a", "b"], "todo", "a", 0, {}),
        (["done", "todo"], "todo", "todo", 1, {}),
    ],
)
def test_which_class_a_label_means(classes, label, predicted, right, others):
    agreement = counted(classes, [label], [predicted])
    assert (agreement.right, agreement.others) == (right, others)


def test_labels_that_are_no_class_are_named_beside_those_that_are():
    agreement = counted(["a", "b"], ["a", "c", "c"], ["a", "b", "b"])
    assert agreement.notes()[-1] == "Labels that are no class of the model, not counted: c (2 rows)."
