from __future__ import annotations

import numpy as np
import pytest

from sobgnn.estimator.acceptance import Acceptance
from sobgnn.runs.checks import FILE, Checks, checks_of
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


def test_given_labels_are_accepted_whatever_the_threshold():
    checks = Checks(Acceptance(0.95, None, 10, 0, 0, 77))
    given = np.array([True, False])
    assert checks.columns(np.ones(2), given=given) == {"decision": ["accept", "review"]}


def test_far_is_beyond_what_nearly_all_training_points_have():
    checks = checks_of(fitted_run())
    assert checks.acceptance is None
    assert checks.far == pytest.approx(1.5 * np.quantile(np.linspace(0.5, 1.5, 101), 0.99))
