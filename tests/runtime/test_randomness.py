from __future__ import annotations

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
