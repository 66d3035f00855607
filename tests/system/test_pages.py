import gc

import numpy as np
import pytest
import torch

from sobgnn._system import pages as results

LARGE = (results.SMALLEST // 4 + 1000,)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_free", [])


def test_a_large_result_gets_the_pages_of_one_that_is_gone() -> None:
    first = results.empty(torch.empty(0), LARGE)
    address = first.data_ptr()
    del first
    assert results.empty(torch.empty(0), LARGE).data_ptr() == address


def test_pages_stay_while_a_view_or_a_gradient_needs_them() -> None:
    first = results.empty(torch.empty(0), LARGE)
    first.fill_(1.0)
    view = first[5:10].numpy()
    factor = torch.ones(LARGE, requires_grad=True)
    product = factor * first
    del first
    gc.collect()
    results.empty(torch.empty(0), LARGE).fill_(2.0)
    np.testing.assert_array_equal(view, 1.0)
    (gradient,) = torch.autograd.grad(product.sum(), factor)
    assert bool((gradient == 1.0).all())


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT", 2 * results.SMALLEST)
    made = [results.empty(torch.empty(0), LARGE) for _ in range(4)]
    del made
    assert len(results._free) == 1


def test_pages_much_too_large_are_not_taken() -> None:
    results.empty(torch.empty(0), (2 * LARGE[0],))
    assert len(results._free) == 1
    small = results.empty(torch.empty(0), LARGE)
    assert len(results._free) == 1
    assert small.shape == LARGE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shape_and_type_are_as_asked(dtype: torch.dtype) -> None:
    shape = (LARGE[0] // 8, 3, 8)
    result = results.empty(torch.empty(0, dtype=dtype), shape)
    assert result.shape == shape
    assert result.dtype == dtype
    assert result.is_contiguous()


def test_a_large_result_is_no_view_which_an_operator_must_not_return() -> None:
    assert not results.empty(torch.empty(0), LARGE)._is_view()


def test_small_results_are_left_to_torch() -> None:
    results.empty(torch.empty(0), (1000,))
    assert results._free == []
