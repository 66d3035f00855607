"""Runs the protocol's command in processes of its own: once to the end, then killed again and again and restarted.

Everything is imported once; each run is a fork, so that a test can afford many. A run is killed after a number of calls
of Python functions, a share of those of a whole run, so that no clock decides where. Prints the
number of kills that hit.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from typing import Any

import torch

from sobgnn.paper.__main__ import main


def run(arguments: list[str], most: int | None = None) -> int | None:
    """The number of calls that a run made; ``None`` where it was killed, at ``most`` of them."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == most:
                os.kill(os.getpid(), signal.SIGKILL)

        with open(os.devnull, "w") as silence, contextlib.redirect_stdout(silence):
            sys.setprofile(count)
            code = main(arguments)
            sys.setprofile(None)
        os.write(writing, str(calls).encode())
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as told:
        calls_made = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(1)
    return int(calls_made)


if __name__ == "__main__":
    whole, killed, kills, *arguments = sys.argv[1:]
    torch.set_num_threads(1)
    total = run([*arguments, "--out", whole])
    assert total is not None
    moments = random.Random(0)
    interrupted = [*arguments, "--out", killed]
    hits = sum(run(interrupted, int(moments.uniform(0.05, 0.3) * total)) is None for _ in range(int(kills)))
    run(interrupted)
    print(hits)
