from __future__ import annotations

import numpy as np
import pytest

from sobgnn.estimator.acceptance import Acceptance
from sobgnn.runs.checks import FILE, Checks, checks_of
from sobgnn.runs.metrics import accepted
from sobgnn.tables import read_table
from tests.fitted_runs import fitted_run


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
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ValueError, match="is damaged"):
        Checks.read(tmp_path)


def test_given_labels_are_marked_so_unless_they_look_wrong():
    checks = Checks(Acceptance(0.95, None, 10, 0, 0, 77))
    given, suspect = np.array([True, False, True]), np.array([False, False, True])
    assert checks.columns(np.ones(3), given=given, suspect=suspect) == {"decision": ["given", "review", "review"]}


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
    counted = accepted(run, acceptance)
    assert (counted["rows"], counted["rows_accepted"], counted["rows_doubtful"]) == (20, 18, 2)
    assert Checks().of_run(run) == {}
    assert [block.complete for block in table.encoding.encoder.blocks_] == [False, True]
    assert [block.complete for block in run.encoding.encoder.blocks_] == [True, True]
