from __future__ import annotations

import numpy as np
import pytest

from sobgnn import SobolevClassifier
from sobgnn.app.runs import CHECKS
from sobgnn.app.runs.result import measure
from sobgnn.app.runs.run import Checks, Fitted, checks_of, find_threshold, hide_labels
from sobgnn.estimator.fitted import shown_out_of_fold
from sobgnn.estimator.trust import Acceptance
from sobgnn.tables import from_arrays, read_table
from tests.fitted_runs import fitted_run


@pytest.mark.parametrize(("labels", "kept"), [(0.1, [10, 2, 1]), (5, [5, 5, 3]), (1, [1, 1, 1]), (0.999, [100, 20, 3])])
def test_each_class_keeps_its_share_or_number_of_labels_and_at_least_one(labels, kept):
    codes = np.repeat([0, 1, 2, -1], [100, 20, 3, 50])
    given = hide_labels(codes, labels, seed=0)
    assert np.bincount(given[given >= 0], minlength=3).tolist() == kept
    assert (given[given >= 0] == codes[given >= 0]).all()
    np.testing.assert_array_equal(given, hide_labels(codes, labels, seed=0))


def test_other_seeds_hide_other_labels_and_none_asked_hides_none():
    codes = np.repeat([0, 1], 50)
    assert (hide_labels(codes, 0.2, seed=0) != hide_labels(codes, 0.2, seed=1)).any()
    np.testing.assert_array_equal(hide_labels(codes, None, seed=0), codes)


def test_hiding_nothing_is_refused():
    with pytest.raises(ValueError, match="would hide nothing"):
        hide_labels(np.array([0, 0, 1, -1]), 2, 0)
    np.testing.assert_array_equal(np.bincount(hide_labels(np.array([0, 0, 1, -1]), 1, 0) + 1), [2, 1, 1])


def test_a_folder_gives_back_what_was_written_and_nothing_where_it_is_older(tmp_path):
    assert Checks.read(tmp_path) == Checks()
    checks = Checks(Acceptance(0.95, 0.875, 120, 80, 1, 77), 3.5)
    checks.write(tmp_path)
    assert Checks.read(tmp_path) == checks


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"accept": {"target": 1}, "far": null}',
        '{"accept": 3, "far": 1}',
        '{"accept": null, "far": "x"}',
        '{"accept": null, "far": NaN}',
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / CHECKS).write_text(content)
    with pytest.raises(ValueError, match="is damaged"):
        Checks.read(tmp_path)


def test_given_labels_are_marked_so_unless_they_look_wrong():
    run = fitted_run(suspects=1)
    decision = Checks(Acceptance(0.95, None, 10, 0, 0, 77)).of_run(run)["decision"]
    wrong = {each.row for each in run.suspects}
    assert wrong
    for row, given in enumerate(run.given != -1):
        assert decision[row] == ("given" if given and row not in wrong else "review")


def test_far_is_beyond_what_nearly_all_training_points_have():
    checks = checks_of(fitted_run())
    assert checks.acceptance is None
    assert checks.far == pytest.approx(1.5 * np.quantile(np.linspace(0.5, 1.5, 101), 0.99))


def test_a_row_with_a_blank_where_no_labeled_row_has_one_is_never_accepted(tmp_path):
    rows = [f"{'' if i in (41, 43) else i / 7},{i % 5},{'uv'[i % 2] if i < 40 else ''}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,z,label", *rows]))
    table = read_table(tmp_path / "t.csv")
    run = fitted_run(table=table, accept=0.95, labels=None)
    assert np.flatnonzero(run.doubtful).tolist() == [41, 43]
    acceptance = Acceptance(0.95, 0.0, 100, 60, 1, 59)
    decision = Checks(acceptance).of_run(run)["decision"]
    assert np.flatnonzero(np.array(decision) == "review").tolist() == [41, 43]
    counted = measure(run, acceptance).accept
    assert (counted.rows, counted.rows_accepted, counted.rows_doubtful) == (20, 18, 2)
    assert Checks().of_run(run) == {}
    assert [column.complete for column in table.encoding.columns] == [False, True]
    assert [column.complete for column in run.encoding.columns] == [True, True]


@pytest.mark.parametrize("options", [{"class_weight": {0: 1, 1: 10}}, {"class_priors": {0: 0.9, 1: 0.1}}])
def test_what_is_accepted_is_decided_with_the_class_factors_that_predictions_have(options):
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 2, 600)
    X = 3.5 * codes[:, None] + generator.normal(size=(600, 2))
    given = np.where(np.arange(600) < 200, codes, -1)
    classifier = SobolevClassifier(families=["diffusion"], k=8, scale="range", random_state=0, **options).fit(X, given)
    run = Fitted("clouds", classifier, from_arrays(X, codes), given, {})
    accepting = find_threshold(run, 0.8).accepts(run.confidence[200:])
    assert accepting.mean() > 0.5
    assert (run.predicted == codes)[200:][accepting].mean() > 0.8
    # Stored as learned, and shifted once.
    learned = classifier.out_of_fold_probabilities_
    shifted = learned * classifier.predictor_.ratio
    np.testing.assert_allclose(shown_out_of_fold(classifier), shifted / shifted.sum(axis=1, keepdims=True))
    plain = SobolevClassifier(families=["diffusion"], k=8, scale="range", random_state=0).fit(X, given)
    np.testing.assert_allclose(learned, plain.out_of_fold_probabilities_)
