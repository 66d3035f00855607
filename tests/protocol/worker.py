"""Runs the protocol's command in processes of its own: once to the end, then killed again and again and restarted.

Everything is imported once; each run is a fork, so that a test can afford many. Prints the number of kills that hit.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time

import torch

from sobgnn.protocol.__main__ import main


def start(arguments: list[str]) -> int:
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as silence, contextlib.redirect_stdout(silence):
            os._exit(main(arguments))
    return child


def finish(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(1)


if __name__ == "__main__":
    whole, killed, kills, *arguments = sys.argv[1:]
    torch.set_num_threads(1)
    begin = time.monotonic()
    finish(start([*arguments, "--out", whole]))
    duration = time.monotonic() - begin
    moments = random.Random(0)
    hits = 0
    for _ in range(int(kills)):
        child = start([*arguments, "--out", killed])
        time.sleep(moments.uniform(0.05, 0.3) * duration)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        hits += os.WIFSIGNALED(status)
    finish(start([*arguments, "--out", killed]))
    print(hits)
