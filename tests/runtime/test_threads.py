from __future__ import annotations

import threading

import pytest
import torch

from sobgnn.runtime.threads import at_most, exactly, one_blas_thread


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


@pytest.mark.usefixtures("two_threads")
def test_blocks_that_overlap_in_two_threads_leave_the_number_of_before():
    first_in, second_in = threading.Event(), threading.Event()
    seen = []

    def first():
        with exactly(1):
            first_in.set()
            second_in.wait(10)

    def second():
        first_in.wait(10)
        with exactly(1):
            second_in.set()
            one.join(10)

    one, two = threading.Thread(target=first), threading.Thread(target=second)
    for thread in (one, two):
        thread.start()
    two.join(10)
    last = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    last.start()
    last.join(10)
    assert [torch.get_num_threads(), *seen] == [2, 2]


def test_products_of_numpy_have_one_thread_within_and_as_many_as_before_after_it():
    from threadpoolctl import threadpool_info

    def threads():
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    before = threads()
    with one_blas_thread():
        assert set(threads()) <= {1}
        with one_blas_thread():
            pass
        assert set(threads()) <= {1}
    assert threads() == before
