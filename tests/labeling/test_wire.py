from __future__ import annotations

import io

import numpy as np
import pytest

from sobgnn.labeling.wire import receive, send


def test_messages_come_out_as_they_went_in():
    file = io.BytesIO()
    send(file, {"do": "fit", "name": "é\n\0"}, {"rows": np.arange(3), "codes": np.zeros((2, 2), dtype="<i4")})
    send(file, {"do": "end"})
    file.seek(0)
    message, arrays = receive(file)
    assert message == {"do": "fit", "name": "é\n\0"}
    assert arrays["rows"].tolist() == [0, 1, 2]
    assert arrays["codes"].shape == (2, 2)
    assert receive(file) == ({"do": "end"}, {})
    assert receive(file) is None


def test_a_message_that_is_cut_off_is_the_end():
    file = io.BytesIO()
    send(file, {"do": "fit"})
    for size in (3, 8, 40):
        assert receive(io.BytesIO(file.getvalue()[:size])) is None


def test_objects_are_refused():
    file = io.BytesIO()
    send(file, {}, {"rows": np.array([{"a": 1}], dtype=object)})
    file.seek(0)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        receive(file)


def test_an_absurd_length_is_refused():
    with pytest.raises(ValueError, match="largest allowed"):
        receive(io.BytesIO(b"\xff" * 16))
