"""Torch's random state, which belongs to the whole process, for one piece of work at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Seeding and drawing of two threads would mix: each would get numbers of the other's.
_LOCK = threading.RLock()


@contextmanager
def own_random_state(device: torch.device | None = None) -> Iterator[None]:
    """Seed and draw freely inside; the state is put back as it was found, and other threads wait until it is."""
    with _LOCK, torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        yield
