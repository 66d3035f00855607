"""Steps from files to files: what is done is marked, so whoever runs a step may run it again, or resume after it."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from sobgnn.sharded.engine import Engine
from sobgnn.sharded.store import Store

# The share of a whole fit's processor time that each step takes, about, measured with 10⁷ x 128 points; what is not
# listed takes little.
_COSTS = {
    "inspect": 1, "cells": 3, "partition": 6, "gather": 1, "truth": 3, "ask": 4, "find": 21, "merge": 2, "graph": 4,
    "halo": 4, "hop": 2, "diffuse": 43, "seen": 1, "learn": 2, "score": 9,
}  # fmt: skip

Step = Callable[..., "dict[str, Any] | None"]


class Run:
    """What a step is given: the run's files, its plan, and what earlier steps found.

    Args:
        root: The run's folder or URL.
    """

    def __init__(self, root: str) -> None:
        self.store = Store(root)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What was asked for, and how it is cut into parts and shards."""
        plan: dict[str, Any] = self.store.read_json("plan")
        return plan

    @property
    def shards(self) -> int:
        """Number of shards."""
        return int(self.plan["shards"])

    def found(self, step: str) -> list[dict[str, Any]]:
        """What a finished step returned, for each of its arguments."""
        found: list[dict[str, Any]] = self.store.read_json(f"done/{step}")
        return found


class Steps:
    """Runs steps that are not done yet, on an engine.

    Args:
        run: The run.
        engine: Where.
        progress: Called with a line of text whenever something is done.
    """

    def __init__(self, run: Run, engine: Engine, progress: Callable[[str], None] | None) -> None:
        self.run, self.engine, self.progress = run, engine, progress
        self._spent, self._cost, self._passed = 0.0, 0.0, 0.0

    def __call__(self, name: str, step: Step, args: Sequence[Any], share: float = 1.0) -> list[dict[str, Any]]:
        """Results of a step for each argument, from its marks or from running it.

        Args:
            name: The step's name, which marks it.
            step: A function of a module: step(run, argument).
            args: Numbers or texts.
            share: This call's share of all calls of its kind, for the estimate of what is left.
        """
        store, cost = self.run.store, _COSTS.get(name.split("-")[0], 0) * share
        whole = store.read_json(f"done/{name}")
        if whole is not None:
            self._passed += cost
            return list(whole)
        marks = [f"done/{name}/{argument}" for argument in args]
        results = [store.read_json(mark) for mark in marks]
        left = [number for number, result in enumerate(results) if result is None]
        before = time.perf_counter()
        for done, (number, result) in enumerate(
            self.engine.map(partial(perform, store.root, name, step), [args[number] for number in left]), start=1
        ):
            results[left[number]] = result
            self._spent += time.perf_counter() - before
            self._cost += cost / len(args)
            before = time.perf_counter()
            self._say(name, len(args) - len(left) + done, len(args))
        self._passed += cost * (len(args) - len(left)) / max(1, len(args))
        store.write_json(f"done/{name}", results)
        return results

    def _say(self, name: str, done: int, total: int) -> None:
        if self.progress is None:
            return
        left = sum(_COSTS.values()) - self._passed - self._cost
        line = f"{name.replace('-', ' ')}, {done} of {total}"
        if self._cost > 5:  # a share of a fit that an estimate can be made from
            line += f", about {_duration(self._spent / self._cost * max(0.0, left))} left"
        self.progress(line)


def perform(root: str, name: str, step: Step, argument: Any) -> dict[str, Any]:
    """Run a step for one argument, and mark it as done with what it returned, and with its time and memory."""
    run = Run(root)
    _forget_peak()
    clock, processor = time.perf_counter(), time.process_time()
    try:
        with torch.no_grad():
            result = step(run, argument) or {}
    except OSError as error:
        raise _plain(error, run.store) from None
    result |= {
        "seconds": round(time.perf_counter() - clock, 3), "processor": round(time.process_time() - processor, 3),
        "peak_gib": round(_peak(), 3), "process": os.getpid(),
    }  # fmt: skip
    run.store.write_json(f"done/{name}/{argument}", result)
    return result


def _plain(error: OSError, store: Store) -> Exception:
    """An error of the files in one line that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ValueError(
            f"No space left in {store.root}. Make room and run the same again: what was finished is kept."
        )
    if isinstance(error, PermissionError):
        return ValueError(f"{error.filename or store.root} may not be read or written: {error.strerror or error}.")
    if isinstance(error, FileNotFoundError):
        return ValueError(f"{error.filename or error} is missing; it was there when the run began.")
    return ValueError(f"{error.filename or store.root} cannot be used: {error.strerror or error}.")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """Most memory of this process since :func:`_forget_peak`, in GiB, mapped files included; 0 where unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 2**20
    return 0.0
