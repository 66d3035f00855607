from __future__ import annotations

import numpy as np
import pytest

from sobgnn.labeling.source import open_source
from sobgnn.labeling.worker import Model
from sobgnn.runs.page.layout import plane_layout


def test_no_run_is_written_of_data_that_changed_since_it_was_read(tickets, tmp_path):
    model = Model(open_source(str(tickets), "team"), {})
    tickets.write_text(tickets.read_text().replace("invoice", "bill"))
    request = {"folder": str(tmp_path / "run"), "classes": ["a", "b"], "knows": 3}
    arrays = {"rows": np.arange(4), "codes": np.arange(4) % 2}
    with pytest.raises(ValueError, match=r"tickets\.csv has changed since it was opened here"):
        model.finish(request, arrays)
    assert not (tmp_path / "run").exists()


def test_the_map_of_a_fit_is_that_of_the_report_mirrored_so_that_points_move_less(tickets):
    source = open_source(str(tickets), "team")
    model = Model(source, {"families": ["diffusion", "sobolev"], "n_members": 2, "epochs": 20})
    message, arrays = model.map()
    assert not message["learned"]
    before = arrays["place"]
    rows = np.arange(60)
    model.fit({"knows": 1}, {"rows": rows, "codes": rows % 3, "skipped": rows[:0]})
    learned = model.classifier.embedding_
    message, arrays = model.map(learned)
    assert message == {"what": "map", "learned": True}
    np.testing.assert_array_equal(np.abs(arrays["place"]), np.abs(plane_layout(learned)))
    assert ((arrays["place"] * before).sum(axis=0) >= 0).all()
