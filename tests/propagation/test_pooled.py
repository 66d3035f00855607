import gc

import numpy as np
import pytest
import torch

from sobgnn.propagation import native as results

LARGE = (results.SMALLEST_POOLED // 4 + 1000,)


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
    monkeypatch.setattr(results, "MOST_KEPT", 2 * results.SMALLEST_POOLED)
    made = [results.empty(torch.empty(0), LARGE) for _ in range(4)]
    del made
    assert len(results._free) == 1


def test_a_large_result_is_no_view_which_an_operator_must_not_return() -> None:
    assert not results.empty(torch.empty(0), LARGE)._is_view()
