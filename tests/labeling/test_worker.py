from __future__ import annotations

import numpy as np
import pytest

from sobgnn.labeling.source import open_source
from sobgnn.labeling.worker import Model


def test_no_run_is_written_of_data_that_changed_since_it_was_read(tickets, tmp_path):
    model = Model(open_source(str(tickets), "team"), {})
    tickets.write_text(tickets.read_text().replace("invoice", "bill"))
    request = {"folder": str(tmp_path / "run"), "classes": ["a", "b"], "knows": 3}
    arrays = {"rows": np.arange(4), "codes": np.arange(4) % 2}
    with pytest.raises(ValueError, match=r"tickets\.csv has changed since it was opened here"):
        model.finish(request, arrays)
    assert not (tmp_path / "run").exists()
