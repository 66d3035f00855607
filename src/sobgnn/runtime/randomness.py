"""Random states that are global to the process: torch's, reserved for one piece of work at a time, and Python's."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Two threads that seed and draw at once would get each other's numbers.
_LOCK = threading.RLock()


@contextmanager
def own_random_state(device: torch.device | None = None) -> Iterator[None]:
    """Seed and draw freely in the block; the state is restored at the end, and other threads wait until then."""
    with _LOCK, torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        yield


@contextmanager
def importing() -> Iterator[None]:
    """Import in the block; Python's random state is restored, which rich, imported by scikit-learn, draws from."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
