"""The contract tests run once for each backend."""

from __future__ import annotations

import os

import pytest
import torch

from sobgnn.propagation import native

# Triton's interpreter runs kernels line by line on the CPU: slowly, but without a GPU.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BACKENDS = [
    pytest.param("portable", id="portable"),
    pytest.param("native", id="native"),
    pytest.param("triton", id="triton", marks=[] if INTERPRETED else [pytest.mark.cuda]),
]


@pytest.fixture(params=BACKENDS)
def device(request, monkeypatch):
    """The device that one backend serves, with that backend forced."""
    if request.param == "native" and not native.available():
        pytest.skip("the compiled kernel is not installed")
    if request.param == "triton" and not (native._has_triton() and (INTERPRETED or torch.cuda.is_available())):
        pytest.skip("no CUDA device")
    monkeypatch.setenv("SOBGNN_BACKEND", request.param)
    return "cuda" if request.param == "triton" and not INTERPRETED else "cpu"


@pytest.fixture(autouse=True)
def single_thread():
    """Small problems on one thread: on a busy machine, waiting for a second one takes longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
