from __future__ import annotations

import pytest
import torch

from sobgnn.runtime.threads import at_most, exactly


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_are_limited_or_set_within_and_put_back_after_an_error():
    with at_most(1):
        assert torch.get_num_threads() == 1
        with at_most(2):
            assert torch.get_num_threads() == 1
        with exactly(2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), exactly(1):
        raise KeyError
    assert torch.get_num_threads() == 2
