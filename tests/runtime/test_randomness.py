from __future__ import annotations

import subprocess
import sys
import threading

import torch

from sobgnn.runtime.randomness import own_random_state


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
SobolevClassifier(families=["forests", "boosting", "logistic"], random_state=0).fit(X, y)
print(states() == before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "True", done.stderr
