from __future__ import annotations

import numpy as np
import pytest

from sobgnn import SobolevClassifier
from sobgnn.app.runs.result import column_importance
from sobgnn.app.runs.run import Fitted
from sobgnn.tables import read_table
from tests.fitted_runs import fitted_run


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
