from __future__ import annotations

import subprocess
import sys

import pytest

from sobgnn.runtime import memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_goes_back_to_the_system():
    code = """
import numpy as np
from pathlib import Path
from sobgnn.runtime.memory import _trim, give_back

def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

if _trim() is not None:
    before = pages()
    parts = [np.ones(10_000) for _ in range(2000)]  # 160 MB in pieces that the C library keeps
    last = np.ones(10_000)
    del parts
    kept = pages() - before
    give_back()
    print(kept, pages() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    if not done.stdout:
        pytest.skip("the C library has no malloc_trim")
    kept, left = map(int, done.stdout.split())
    assert kept > 30_000  # else there was nothing to give back
    assert left < 10_000


def test_where_the_library_has_no_such_call_nothing_happens(monkeypatch):
    class Other:
        """A C library without malloc_trim."""

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Other())
    memory._trim.cache_clear()
    try:
        assert memory._trim() is None
        memory.give_back()
    finally:
        monkeypatch.undo()
        memory._trim.cache_clear()


def test_where_it_has_the_call_it_is_made_once_for_each_give_back(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(memory, "_trim", lambda: asked.append)
    memory.give_back()
    assert asked == [0]
