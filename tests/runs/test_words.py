from __future__ import annotations

from sobgnn.runs.checks import checks_of
from sobgnn.runs.metrics import metrics
from sobgnn.runs.words import next_steps, quality
from tests.fitted_runs import fitted_run


def held(**changes):
    base = metrics(fitted_run(labels=None))
    return base | {"held_out": base["held_out"] | changes}


def test_the_first_sentence_is_how_good_it_is_with_its_interval_beside_the_largest_class():
    said = quality(held(accuracy=0.9, interval=[0.85, 0.94], labels=150, majority_share=0.4, largest_class="ash"))
    assert said[0] == (
        "Estimated accuracy 90.0% on 150 held-out labels (95% interval 85.0% to 94.0%); "
        "the largest class, 'ash', has 40.0% of them."
    )


def test_guessing_is_said_in_these_words_and_too_few_labels_too():
    assert quality(held(verdict="guessing"))[0].startswith("Not shown to be better than guessing: ")
    assert quality(held(verdict="unknown"))[0].startswith(
        "Too few labels to say whether this is better than guessing: "
    )
    assert "is not known" in quality(held(labels=0, verdict="unknown"))[0]
    assert not any("guessing" in line for line in quality(held(verdict="better")))


def test_an_interval_above_the_largest_class_that_proves_nothing_is_explained():
    above = {"interval": [0.54, 0.68], "majority_share": 0.52, "p_value": 0.004}
    for verdict in ("guessing", "unknown"):
        said = quality(held(verdict=verdict, **above))[1]
        assert "may still be chance: p = 0.004 in a permutation test, where 1e-05 is required" in said
    assert not any("still be chance" in line for line in quality(held(verdict="better", **above)))
    assert not any(
        "still be chance" in line for line in quality(held(verdict="guessing", **above | {"majority_share": 0.6}))
    )


def test_uneven_classes_are_said_with_balanced_accuracy_and_a_class_that_is_never_predicted():
    said = " ".join(quality(held(uneven=True, balanced_accuracy=0.55, never_predicted=["rare"])))
    assert "(balanced accuracy) is 55.0%" in said
    assert "Never predicted, which accuracy hides: 'rare'." in said
    assert any("--class-weight balanced" in line for line in next_steps(held(never_predicted=["rare"])))


def test_a_threshold_that_labels_do_not_support_is_said_with_the_reason():
    fitted = fitted_run(points=100, labels=0.3, accept=0.99)
    measured = metrics(fitted, checks_of(fitted).acceptance)
    assert "Accepted at 0.99: none, so review all rows; at least " in " ".join(quality(measured))
    fitted = fitted_run(points=600, labels=0.3, accept=0.8)
    measured = metrics(fitted, checks_of(fitted).acceptance)
    assert f"Accepted at 0.8: {measured['accept']['rows_accepted']:,} of 420 rows" in " ".join(quality(measured))


def test_next_steps_name_rows_and_suspects():
    measured = metrics(fitted_run(suspects=3)) | {"labels_hidden": 0}
    assert measured["suspects"] > 1
    said = next_steps(measured, ["row 3", "row 5"])
    assert "Label row 3, row 5 (counted from 0): these labels would help most." in said
    assert "Label row 17: this label would help most." in next_steps(
        measured | {"rows_numbered": False}, ["row 17"]
    )  # an id
    assert "Label t7: this label would help most." in next_steps(measured | {"rows_numbered": False}, ["t7"])
    assert not any(line.startswith("Label") for line in next_steps(measured | {"labels_hidden": 9}, ["t7"]))
    assert any(line.startswith(f"Check {measured['suspects']:,} given label") for line in said)


def test_labels_of_copies_are_mentioned():
    assert any("40 further labels are on copies" in line for line in quality(held(copies=40)))
    assert not any("copies" in line for line in quality(held(copies=0)))


def test_classes_that_were_not_held_out_are_named():
    assert any("which are not held out" in line and "'rare'" in line for line in quality(held(not_held_out=["rare"])))
    assert not any("not held out" in line for line in quality(held(not_held_out=[])))


def test_accepting_is_advised_only_where_it_would_accept_a_row():
    for rows, advised in ((1, True), (0, False)):
        measured = held(verdict="better") | {"acceptable": rows}
        assert any("--accept" in line for line in next_steps(measured)) == advised
    assert not any("--accept" in line for line in next_steps(held(verdict="guessing") | {"acceptable": 9}))


def test_a_large_class_that_may_mean_unlabeled_comes_first():
    measured = held(verdict="guessing") | {"unsaid": ["Treated as a class: 'unknown' (90 rows)."]}
    assert next_steps(measured)[0] == "Treated as a class: 'unknown' (90 rows)."


def test_hiding_labels_is_advised_only_where_there_are_many():
    assert any("--labels 0.1" in line for line in next_steps(held()))
    few = next_steps(held() | {"rows": 2, "labels_given": 2})
    assert "Every row is labeled: `sobgnn predict` labels new rows." in few


def test_hidden_labels_tell_how_good_it_is_where_none_could_be_held_out():
    measured = metrics(fitted_run(labels=0.3))
    said = quality(measured | {"held_out": {"labels": 0, "verdict": "unknown"}})
    assert said[0].startswith("Accuracy")


def test_held_out_labels_of_one_class_are_said_to_be_so():
    said = quality(held(majority_share=1.0, largest_class="tech", verdict="unknown"))[0]
    assert "all of them are of the class 'tech'" in said
