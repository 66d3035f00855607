"""What is the compiled kernel's own: instruction sets, threads, denormals, and being absent."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from sobgnn.propagation import backend, native, ops, portable, propagate, propagate_each, propagate_sum
from tests.propagation.propagation_cases import csr_of, random_graph, rows_of

needs_kernel = pytest.mark.skipif(not native.available(), reason="the compiled kernel is not installed")


def features(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", native.LEVELS)
@pytest.mark.parametrize("alpha", [1, 2, 3, 4, 5, 6, 7, 13])
def test_every_instruction_set_and_number_of_orders_agrees_with_the_portable_backend(level, alpha, dtype):
    # Widths on either side of each block of columns, from less than a vector to several blocks.
    graph = random_graph(40, 6, isolated=2, hub=True)
    csr = csr_of(graph, alpha, 0.7, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    for width in (1, 3, 15, 16, 17, 31, 33, 64, 70, 129):
        x, g = features(40, width, dtype=dtype), features(40, alpha, width, dtype=dtype)
        for argument, shape in ((x, g.shape), (g, x.shape), (g, g.shape)):
            # NaN: what the kernel leaves unwritten shows.
            got, want = torch.full(shape, torch.nan, dtype=dtype), torch.empty(shape, dtype=dtype)
            native.run(csr, argument, got, level=level)
            portable.run(csr, argument, want)
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@needs_kernel
@pytest.mark.parametrize("width", [37, 48])  # 48, whole vectors: reduce goes along the rows of the transpose
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch, width):
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    csr = csr_of(random_graph(3000, 8, hub=True), 4)
    x, g = features(3000, width), features(3000, 4, width)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append((propagate(csr, x), propagate_sum(csr, g), propagate_each(csr, g)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(first, second) for first, second in zip(results[0], other, strict=True))


@needs_kernel
def test_a_long_row_keeps_its_accuracy():
    # 200 000 equal terms round the same way each time: a running float32 sum drifts a hundred times further.
    nodes = 200_000
    graph = random_graph(nodes, 0, hub=True, low=0.0, high=0.0)
    csr = rows_of(graph, [0], 1, 1.0)
    got = torch.empty(1, 1, 2)
    native.run(csr, torch.ones(nodes, 2), got)
    expected = (csr.column_scale[:, 1].double() * csr.row_scale[0, 1].double()).sum()
    torch.testing.assert_close(got.double(), expected.expand(1, 1, 2), rtol=3e-5, atol=0)


@needs_kernel
@pytest.mark.parametrize("level", native.LEVELS)
def test_a_result_that_is_written_past_the_caches_is_the_same(level):
    nodes, alpha, width = 70_000, 4, 16
    assert nodes * alpha * width * 4 > 16 << 20
    csr = csr_of(random_graph(nodes, 2), alpha)
    for argument in (features(nodes, width), features(nodes, alpha, width)):
        got, want = torch.empty(nodes, alpha, width), torch.empty(nodes, alpha, width)
        native.run(csr, argument, got, level=level)
        portable.run(csr, argument, want)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("alpha", [3, 8])
def test_reduce_over_more_inputs_than_outputs_and_the_other_way_round(alpha, threads):
    # Rectangular, int64, some rows and columns empty, several parts: what each thread takes from everywhere adds up.
    graph = random_graph(500, 6, isolated=20)
    keep = [3, 4, 77, 499, 120, 121, 122, 250, 8]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        wide = rows_of(graph, keep, alpha, 0.7, index=torch.int64)
        for csr, inputs, outputs in ((wide, 500, 9), (wide.transposed(), 9, 500)):
            g = features(inputs, alpha, 80)
            got, want = torch.full((outputs, 80), torch.nan), torch.empty(outputs, 80)
            native.run(csr, g, got)
            portable.run(csr, g, want)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)


@needs_kernel
def test_the_callers_treatment_of_denormals_comes_back(monkeypatch):
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    csr = csr_of(random_graph(50, 4, low=-9.0, high=-8.0), 8)
    propagate(csr, features(50, 4))
    assert (torch.tensor([1e-38]) * 0.01).item() > 0.0


ONE_LAYER = """
import torch
from sobgnn.nn.filter_bank import bias_relu_mix, bias_relu_mix_backward
from sobgnn.propagation import native
from tests.propagation.propagation_cases import random_graph, csr_of
x = torch.linspace(-1, 1, 40 * 19).view(40, 19)
out = torch.empty(40, 3, 19)
native.run(csr_of(random_graph(40, 6), 3), x, out)
flat = out.flatten(1).contiguous()
total = torch.zeros_like(flat)
bias_relu_mix(flat, flat[0].clone(), flat[1].clone(), total, True, False)
print(native.instruction_set(), *bias_relu_mix_backward(flat, total, flat[1].clone(), True)[1].tolist())
"""


def run_with(**environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *sys.path])
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", ONE_LAYER], env=given, capture_output=True, text=True, cwd=root)


@needs_kernel
def test_the_environment_holds_every_kernel_to_an_instruction_set():
    # Which one is in use is the processor's affair, but never more than was asked for.
    order = list(native.LEVELS)
    results, used = [], []
    for held in order:
        done = run_with(SOBGNN_CPU=held)
        assert done.returncode == 0, done.stderr
        name, *values = done.stdout.split()
        assert order.index(name) <= order.index(held)
        used.append(name)
        results.append(torch.tensor([float(value) for value in values]))
    assert used[0] == "plain"
    assert sorted(used, key=order.index) == used
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-5)
    wrong = run_with(SOBGNN_CPU="sse9")
    assert "ValueError: SOBGNN_CPU must be plain, avx2, avx512 or unset, but got 'sse9'." in wrong.stderr


def test_without_the_kernel_the_portable_backend_serves_and_says_so_once(monkeypatch):
    monkeypatch.delenv("SOBGNN_BACKEND", raising=False)
    monkeypatch.setattr(native, "_library", lambda: None)
    ops._warn_once.cache_clear()
    csr = csr_of(random_graph(10, 3), 2)
    x = features(10, 2)
    assert backend(x) == "portable"
    with pytest.warns(UserWarning, match=r"not installed\. The portable backend serves"):
        propagate(csr, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        propagate(csr, x)
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    with pytest.raises(ValueError, match=r"SOBGNN_BACKEND=native, but: .* not installed"):
        backend(x)
