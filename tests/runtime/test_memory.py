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
    give_back()
    assert pages() - before < 10_000, pages() - before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_where_the_library_has_no_such_call_nothing_happens(monkeypatch):
    monkeypatch.setattr(memory, "_trim", lambda: None)
    memory.give_back()
