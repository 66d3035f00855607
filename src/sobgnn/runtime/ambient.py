"""Global settings of torch and NumPy that an estimator ignores, and its device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def own_precision() -> Iterator[None]:
    """Ignore torch.autocast, torch.set_default_device and numpy.errstate in the block."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))  # NumPy's default
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def check_device(device: torch.device | str | None) -> None:
    """Raise if torch has no such device; ``None`` and ``"auto"`` are always valid."""
    if device is None or (isinstance(device, str) and device == "auto"):
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        raise ValueError(f"There is no device {device!r:.60} here. Try 'cpu', or leave it out.") from None
