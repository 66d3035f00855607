from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from sobgnn._system.process import limit_threads, one_blas_thread, own_random_state, set_threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_are_limited_or_set_within_and_put_back_after_an_error():
    with limit_threads(1):
        assert torch.get_num_threads() == 1
        with limit_threads(2):
            assert torch.get_num_threads() == 1
        with set_threads(2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), set_threads(1):
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_blocks_that_overlap_in_two_threads_leave_the_number_of_before():
    first_in, second_in = threading.Event(), threading.Event()
    seen = []

    def first():
        with set_threads(1):
            first_in.set()
            second_in.wait(10)

    def second():
        first_in.wait(10)
        with set_threads(1):
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


def test_threads_draw_what_their_seeds_give_and_leave_the_state_as_it_was():
    before, drawn = torch.random.get_rng_state(), {}

    def draw(seed):
        with own_random_state():
            torch.manual_seed(seed)
            drawn[seed] = [torch.rand(1).item() for _ in range(200)]

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.random.get_rng_state(), before)
    for seed, values in drawn.items():
        generator = torch.Generator().manual_seed(seed)
        assert values == [torch.rand(1, generator=generator).item() for _ in range(200)]


def test_the_first_fit_of_a_process_leaves_all_random_states_as_they_were():
    """Not a fit in this process, which has imported everything before."""
    code = """
import random
import numpy as np, torch
from sobgnn import SobolevClassifier
X = np.random.default_rng(0).normal(size=(40, 3)) + np.repeat([[0], [5]], 20, axis=0)
y = np.where(np.arange(40) % 4 == 0, np.arange(40) // 20, -1)
states = lambda: (random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist())
before = states()
SobolevClassifier(families=["forests", "kernel", "sobolev"], random_state=0).fit(X, y)
print(states() == before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "True", done.stderr
