"""The facts of a run, and the sentences that are made from them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binomtest

from sobgnn import SobolevClassifier
from sobgnn.app.runs.result import column_importance, measure
from sobgnn.app.runs.run import Checks, Fitted, checks_of
from sobgnn.app.runs.summary import details, next_steps
from sobgnn.app.runs.summary import headlines as headline_parts
from sobgnn.estimator.trust import Acceptance, wilson_interval
from sobgnn.tables import read_table
from tests.fitted_runs import fitted_run, found_search


def held(result=None, **changes):
    """A result whose facts of held-out labels are changed."""
    result = result or measure(fitted_run(labels=None))
    return replace(result, held_out=replace(result.held_out, **changes))


def headlines(result):
    return [" ".join(filter(None, parts)) for parts in headline_parts(result)]


def steps(result):
    return [step.text for step in next_steps(result)]


def accepting(**options):
    fitted = fitted_run(**options)
    return fitted, measure(fitted, checks_of(fitted).acceptance)


@pytest.mark.parametrize(("right", "total"), [(0, 7), (7, 7), (90, 100), (1, 2)])
def test_the_interval_is_wilsons(right, total):
    expected = binomtest(right, total).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson_interval(right, total), [expected.low, expected.high], atol=1e-6)


def test_accuracy_is_over_hidden_labels_alone_and_metrics_are_plain_json():
    fitted = fitted_run(classes=("zeta", "alpha", "mu"))  # not in the estimator's sorted order
    result = measure(fitted)
    truth = np.array(fitted.table.classes, dtype=object)[fitted.table.codes]
    right = fitted.classifier.transduction_ == truth
    assert result.hidden.accuracy == pytest.approx(right[fitted.hidden].mean())
    assert result.labels_hidden == fitted.hidden.sum() == 300 - result.labels_given
    assert np.trace(result.hidden.confusion) == right[fitted.hidden].sum()
    np.testing.assert_allclose(fitted.confidence, fitted.classifier.label_distributions_.max(axis=1))
    written = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert written["accuracy"] == pytest.approx(result.hidden.accuracy)
    digits = [number.replace(".", "").lstrip("0") for number in re.findall(r"\d+\.\d+", json.dumps(written))]
    assert max(map(len, digits)) == 6
    assert written["confusion"] == result.hidden.confusion
    assert written["held_out"]["labels"] == result.held_out.labels
    assert "columns" not in written
    assert "search" not in written
    assert "accuracy" not in measure(fitted_run(labels=None)).to_json()
    found = measure(fitted_run(points=60, search=found_search())).to_json()["search"]
    assert (found["log_loss"], found["trials"][0]) == (0.4, found_search()["trials"][0])


def test_held_out_labels_are_judged_by_the_tables_classes():
    fitted = fitted_run(classes=("zeta", "alpha", "mu"))
    found = measure(fitted).held_out
    classifier = fitted.classifier
    predicted = classifier.classes_[classifier.out_of_fold_probabilities_.argmax(axis=1)]
    truth = np.array(fitted.table.classes, dtype=object)[fitted.given[classifier.labelled_]]
    assert found.labels == len(truth)
    assert found.accuracy == pytest.approx((predicted == truth).mean())
    assert found.verdict == "better"
    for i, true in enumerate(fitted.table.classes):
        for j, other in enumerate(fitted.table.classes):
            assert found.confusion[i][j] == ((truth == true) & (predicted == other)).sum()


def test_without_a_held_out_label_nothing_is_claimed():
    fitted = fitted_run()
    fitted.classifier.out_of_fold_probabilities_ = np.full_like(fitted.classifier.out_of_fold_probabilities_, np.nan)
    result = measure(fitted)
    assert result.to_json()["held_out"] == {"labels": 0, "verdict": "unknown"}
    assert headlines(result)[0].startswith("Accuracy ")  # hidden labels tell
    assert "is not known: at least 3 labeled rows of each class" in headlines(replace(result, hidden=None))[0]


def test_the_share_accepted_is_of_rows_without_a_given_label():
    fitted, result = accepting(points=600, labels=0.3, accept=0.8)
    free = fitted.given == -1
    taken = free & (fitted.confidence >= result.accept.threshold)
    assert result.accept.rows_accepted == taken.sum() > 0
    assert result.accept.rows == free.sum()
    wrong = fitted.predicted[taken] != fitted.table.codes[taken]
    assert result.accept.hidden_error == pytest.approx(wrong.mean())
    assert f"Accepted at 0.8: {taken.sum():,} of 420 rows" in " ".join(details(result))


def test_what_the_usual_share_would_accept_is_counted_unless_another_was_requested():
    for points, labels in ((600, 0.5), (100, 0.3)):
        _, asked = accepting(points=points, labels=labels, accept=0.95)
        assert asked.acceptable is None
        result = measure(fitted_run(points=points, labels=labels))
        assert result.acceptable == asked.accept.rows_accepted
    assert result.acceptable == 0  # too few labels
    assert "Accepted at 0.95: none, so review all rows; at least " in " ".join(details(asked))


def test_rows_that_are_empty_or_blank_where_no_labeled_row_is_are_not_suggested(tmp_path):
    rows = [f"{i % 17},{'red' if i % 2 else 'blue'},{'xy'[i % 2] if i < 40 else ''}" for i in range(60)]
    odd = [",,", "3,,", ",,"]
    for first, expected in ((60, list(range(40, 60))), (40, [41])):  # if all are doubtful, those that hold something
        (tmp_path / "t.csv").write_text("\n".join(["size,color,label", *rows[:first], *odd]) + "\n")
        fitted = fitted_run(table=read_table(tmp_path / "t.csv"), labels=None)
        assert sorted(fitted.suggested(99).tolist()) == expected


def test_a_picture_that_cannot_be_read_is_not_suggested_and_marked_in_the_predictions(tmp_path):
    generator = np.random.default_rng(0)
    for number in range(30):
        folder = tmp_path / ("unlabeled" if number >= 20 else "ab"[number % 2])
        folder.mkdir(exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (9, 9, 3), dtype=np.uint8)).save(folder / f"p{number}.png")
    (tmp_path / "unlabeled" / "p25.png").write_bytes(b"broken")
    fitted = fitted_run(table=read_table(tmp_path), labels=None)
    names = [str(fitted.table.ids[row]) for row in fitted.suggested(99)]
    assert sorted(names) == [f"unlabeled/p{number}.png" for number in range(20, 30) if number != 25]
    row, checks = fitted.table.ids.tolist().index("unlabeled/p25.png"), Checks(Acceptance(0.95, 0.0, 100, 60, 1, 59))
    marked = checks.of_run(fitted)
    assert (marked["decision"][row], marked["far"][row], marked["far"].count("far")) == ("review", "far", 1)
    assert "Rows that hold nothing to predict from, marked far in the predictions: 1." in measure(fitted).notes


def test_the_headline_is_how_good_it_is_with_its_interval_beside_the_largest_class():
    facts = {"accuracy": 0.9, "interval": (0.85, 0.94), "labels": 150, "majority_share": 0.4, "largest_class": "ash"}
    assert headlines(held(**facts)) == [
        "Estimated accuracy 90.0% on 150 held-out labels (95% interval 85.0% to 94.0%); "
        "the largest class, 'ash', has 40.0% of them."
    ]
    said = headlines(held(**facts, unknown=12, not_held_out=["elm"]))[0]
    assert "94.0%), 12 more of classes with fewer than 3 labels, never held out, counted as unknown; the " in said
    said = headlines(held(majority_share=1.0, largest_class="tech", verdict="unknown"))[0]
    assert "all of them are of the class 'tech'" in said


def test_guessing_is_said_in_these_words_and_too_few_labels_too():
    assert measure(fitted_run(noise=True)).guessing
    assert headlines(held(verdict="guessing"))[0].startswith("Not shown to be better than guessing: ")
    assert headlines(held(verdict="unknown"))[0].startswith("Too few labels to say whether this is better than")
    assert headlines(held(verdict="unknown", copies=9))[0].startswith("Too few different labeled rows to say")
    assert "guessing" not in " ".join([*headlines(held()), *details(held())])


def test_an_interval_above_the_largest_class_that_proves_nothing_is_explained():
    above = {"interval": (0.54, 0.68), "majority_share": 0.52, "p_value": 0.004}
    for verdict in ("guessing", "unknown"):
        assert "may still be chance: p = 0.004 in a permutation test" in details(held(verdict=verdict, **above))[0]
    quiet = [held(verdict="better", **above), held(verdict="guessing", **above | {"majority_share": 0.6})]
    assert not any("still be chance" in line for result in quiet for line in details(result))


def test_what_accuracy_hides_is_said():
    fitted = fitted_run()
    fitted.classifier.out_of_fold_probabilities_[:, 1] = 0
    result = measure(fitted)
    name = fitted.classifier.classes_[1]
    assert result.held_out.never_predicted == [name]
    assert f"Never predicted, which accuracy hides: {name!r}." in details(result)
    said = " ".join(
        details(
            held(
                uneven=True,
                balanced_accuracy=0.55,
                not_held_out=["rare"],
                copies=40,
                labels=90,
                hard=9,
                verdict="better",
            )
        )
    )
    assert "Hard to predict are 9 labels that need no check: another class is at least 5 times as probable" in said
    assert "(balanced accuracy) is 55.0%" in said
    assert "which are not held out: 'rare'." in said
    assert "40 further labels are on copies" in said
    assert details(held()) == []
    assert "Training was interrupted" in details(replace(held(), complete=False))[0]


def test_next_steps_name_rows_and_suspects_and_their_sections():
    result = replace(measure(fitted_run(suspects=3)), labels_hidden=0, suggested=["row 3", "row 5"])
    assert [(step.text, step.section) for step in next_steps(result)][:2] == [
        (f"Check {result.suspects:,} given labels that look wrong.", "suspects"),
        ("Label row 3, row 5 (counted from 0): these labels would help most.", "next"),
    ]
    one = replace(result, rows_numbered=False, suggested=["row 17"], suspects=1)  # an id
    assert "Label row 17: this label would help most." in steps(one)
    assert "Check 1 given label that looks wrong." in steps(one)
    assert not any(line.startswith("Label") for line in steps(replace(result, labels_hidden=9)))
    guess = held(result, verdict="guessing")
    assert not any("look wrong" in line for line in steps(guess))


def test_a_large_class_that_may_mean_unlabeled_comes_first():
    codes = np.arange(100) % 2
    points = np.random.default_rng(0).normal(size=(100, 3))
    result = measure(fitted_run(X=points, codes=codes, classes=("unknown", "a")))
    note = "Treated as a class: 'unknown' (50 rows). If it means unlabeled, leave the cell empty."
    assert result.unsaid == [note]
    assert steps(result)[0] == note
    codes[0] = 1
    assert measure(fitted_run(X=points, codes=codes, classes=("unknown", "a"))).unsaid == []


def test_advice_is_given_only_where_it_helps():
    for rows, advised in ((1, True), (0, False)):
        assert any("--accept" in line for line in steps(replace(held(), acceptable=rows))) == advised
    assert not any("--accept" in line for line in steps(replace(held(verdict="guessing"), acceptable=9)))
    assert any("--labels 0.1" in line for line in steps(held()))
    few = replace(held(), rows=2, labels_given=2)
    assert "Every row is labeled: `sobgnn predict` labels new rows." in steps(few)
    for changes in ({"never_predicted": ["rare"]}, {"uneven": True, "balanced_accuracy": 0.1}):
        assert any("--class-weight balanced" in line for line in steps(held(**changes)))
    assert not any("--class-weight" in line for line in steps(held()))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 3, 160)
    useful = 3.0 * codes + generator.normal(size=160)
    noise = generator.normal(size=160)
    color = np.array(["red", "green", "blue"])[codes]
    lines = [f"{u:.3f},{n:.3f},{c},{'xyz'[k] if i < 80 else ''}"
             for i, (u, n, c, k) in enumerate(zip(useful, noise, color, codes, strict=True))]  # fmt: skip
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text("useful,noise,color,label\n" + "\n".join(lines) + "\n")
    table = read_table(path, None, None, [])
    classifier = SobolevClassifier(families=["linear", "forests"], random_state=0)
    return Fitted("t", classifier.fit(table.X, table.labels(table.codes)), table, table.codes)


def test_columns_that_decide_the_label_matter_and_noise_does_not(fitted):
    found = column_importance(fitted)
    assert set(found) == {"useful", "noise", "color"}
    assert list(found)[-1] == "noise"
    assert found["color"] > 0.1
    assert abs(found["noise"]) < 0.05
    assert found == column_importance(fitted)


def test_arrays_and_few_labels_have_no_importance(fitted):
    assert column_importance(fitted_run()) == {}
    few = np.where(np.arange(160) < 10, fitted.table.codes, -1)
    assert column_importance(Fitted("t", fitted.classifier, fitted.table, few)) == {}
