"""What is the CUDA kernel's own: long rows cut into chunks, and tiles of any shape."""

from __future__ import annotations

import pytest
import torch

from sobgnn.propagation import portable, propagate, propagate_each, propagate_sum
from tests.propagation.propagation_cases import csr_of, random_graph

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("nodes", [2047, 2049, 4097, 9000])
@pytest.mark.parametrize("width", [1, 33, 64, 130, 200])
def test_a_hub_is_cut_into_chunks_that_add_up_to_the_same_bits_every_time(nodes, width):
    graph = random_graph(nodes, 4, hub=True)
    csr = csr_of(graph, 3, device="cuda")
    double = csr_of(graph, 3, dtype=torch.float64, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(nodes, width, device="cuda", generator=generator)
    g = torch.randn(nodes, 3, width, device="cuda", generator=generator)
    for operator, argument in ((propagate, x), (propagate_sum, g), (propagate_each, g)):
        got = operator(csr, argument)
        want = torch.empty(got.shape, dtype=torch.float64, device="cuda")
        portable.run(double, argument.double(), want)
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)
        assert all(torch.equal(got, operator(csr, argument)) for _ in range(3))
