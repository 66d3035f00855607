"""Medians of interleaved runs, and the line in which a claim holds or misses."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


def medians(work: dict[str, Callable[[], object]], *, rounds: int = 7, warm: int = 2) -> dict[str, float]:
    """Median seconds of each function. Rounds interleave them, so that a busy machine is unfair to none."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(warm + rounds):
        for name, function in work.items():
            seconds = once(function)
            if number >= warm:
                times[name].append(seconds)
    return {name: statistics.median(values) for name, values in times.items()}


def once(function: Callable[[], object]) -> float:
    """Seconds of one call; on a GPU, until its work is done."""
    if not torch.cuda.is_available():
        return timed(function)[0]
    start_event, end_event = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start_event.record()
    function()
    end_event.record()
    end_event.synchronize()
    return start_event.elapsed_time(end_event) / 1e3


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall time and processor time of a call, in seconds, and what it returns."""
    wall, processor = time.perf_counter(), time.process_time()
    done = call()
    return time.perf_counter() - wall, time.process_time() - processor, done


def copy_bandwidth(device: str = "cpu", size: int = 1 << 26) -> float:
    """Bytes per second, read and written, of copying ``size`` float32 values."""
    source = torch.ones(size, device=device)
    target = torch.zeros(size, device=device)
    seconds = medians({"copy": lambda: target.copy_(source)})["copy"]
    return 2 * source.nbytes / seconds


def line(case: str, work: str, ratio: float, goal: float, *, at_most: bool = False) -> str:
    """One row of the table: what was compared, the ratio measured, and whether the claim holds."""
    holds = ratio <= goal if at_most else ratio >= goal
    sign = "<=" if at_most else ">="
    return f"{case:<34} {work:<38} {ratio:8.2f}x  {sign} {goal:g}x  {'holds' if holds else 'misses'}"


def machine(device: str = "cpu") -> str:
    """The machine and the version that the numbers come from."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
