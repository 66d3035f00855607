"""What is the compiled kernel's own: instruction sets, threads, denormals, and being absent."""

from __future__ import annotations

import warnings

import pytest
import torch

from sobgnn.propagation import dispatch, each, expand, native, portable, reduce
from sobgnn.propagation.stencil import transpose
from tests.propagation.propagation_cases import random_graph, rows_of, stencil_of

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
    stencil = stencil_of(graph, alpha, 0.7, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    for width in (1, 3, 15, 16, 17, 31, 33, 64, 70, 129):
        x, g = features(40, width, dtype=dtype), features(40, alpha, width, dtype=dtype)
        for argument, shape in ((x, g.shape), (g, x.shape), (g, g.shape)):
            # NaN: what the kernel leaves unwritten shows.
            got, want = torch.full(shape, torch.nan, dtype=dtype), torch.empty(shape, dtype=dtype)
            native.run(stencil, argument, got, level=level)
            portable.run(stencil, argument, want)
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@needs_kernel
@pytest.mark.parametrize("width", [37, 48])  # 48, whole vectors: reduce goes along the rows of the transpose
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch, width):
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    stencil = stencil_of(random_graph(3000, 8, hub=True), 4)
    x, g = features(3000, width), features(3000, 4, width)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append((expand(stencil, x), reduce(stencil, g), each(stencil, g)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(first, second) for first, second in zip(results[0], other, strict=True))


@needs_kernel
def test_a_long_row_keeps_its_accuracy():
    # 200 000 equal terms round the same way each time: a running float32 sum drifts a hundred times further.
    nodes = 200_000
    graph = random_graph(nodes, 0, hub=True, low=0.0, high=0.0)
    stencil = rows_of(graph, [0], 1, 1.0)
    got = torch.empty(1, 1, 2)
    native.run(stencil, torch.ones(nodes, 2), got)
    expected = (stencil.scale_in[:, 1].double() * stencil.scale_out[0, 1].double()).sum()
    torch.testing.assert_close(got.double(), expected.expand(1, 1, 2), rtol=3e-5, atol=0)


@needs_kernel
@pytest.mark.parametrize("level", native.LEVELS)
def test_a_result_that_is_written_past_the_caches_is_the_same(level):
    nodes, alpha, width = 70_000, 4, 16
    assert nodes * alpha * width * 4 > 16 << 20
    stencil = stencil_of(random_graph(nodes, 2), alpha)
    for argument in (features(nodes, width), features(nodes, alpha, width)):
        got, want = torch.empty(nodes, alpha, width), torch.empty(nodes, alpha, width)
        native.run(stencil, argument, got, level=level)
        portable.run(stencil, argument, want)
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
        for stencil, inputs, outputs in ((wide, 500, 9), (transpose(wide), 9, 500)):
            g = features(inputs, alpha, 80)
            got, want = torch.full((outputs, 80), torch.nan), torch.empty(outputs, 80)
            native.run(stencil, g, got)
            portable.run(stencil, g, want)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)


@needs_kernel
def test_reduce_onto_a_long_row_keeps_its_accuracy():
    nodes = 50_000
    graph = random_graph(nodes, 0, hub=True, low=0.0, high=0.0)
    stencil = stencil_of(graph, 3)
    got, want = torch.empty(nodes, 16), torch.empty(nodes, 16, dtype=torch.float64)
    native.run(stencil, torch.ones(nodes, 3, 16), got)
    portable.run(stencil_of(graph, 3, dtype=torch.float64), torch.ones(nodes, 3, 16, dtype=torch.float64), want)
    torch.testing.assert_close(got.double(), want, rtol=3e-5, atol=0)


@needs_kernel
def test_the_callers_treatment_of_denormals_comes_back(monkeypatch):
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    stencil = stencil_of(random_graph(50, 4, low=-9.0, high=-8.0), 8)
    expand(stencil, features(50, 4))
    assert (torch.tensor([1e-38]) * 0.01).item() > 0.0


def test_without_the_kernel_the_portable_backend_serves_and_says_so_once(monkeypatch):
    monkeypatch.delenv("SOBGNN_BACKEND", raising=False)
    monkeypatch.setattr(native, "_library", lambda: None)
    dispatch._warn_once.cache_clear()
    stencil = stencil_of(random_graph(10, 3), 2)
    x = features(10, 2)
    assert dispatch.backend(x) == "portable"
    with pytest.warns(UserWarning, match=r"not installed\. The portable backend serves"):
        expand(stencil, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expand(stencil, x)
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    with pytest.raises(ValueError, match=r"SOBGNN_BACKEND=native, but: .* not installed"):
        dispatch.backend(x)
