"""The operators inside a whole S-SobGNN: many seeds as one batch, and compiled as one graph. In float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state

from sobgnn import SobolevOperators, SSobGNN
from sobgnn.graphs.graph import Graph
from tests.propagation.propagation_cases import random_graph

pytestmark = pytest.mark.trains

NODES, FEATURES, CLASSES = 60, 11, 4


@pytest.fixture
def problem():
    operators = SobolevOperators(Graph.from_scipy(random_graph(NODES, 6)), alpha=3)
    return torch.randn(NODES, FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64), operators


def model(seed, **options):
    torch.manual_seed(seed)
    return SSobGNN(FEATURES, 8, CLASSES, alpha=3, **options).double()


@pytest.mark.parametrize("options", [{}, {"self_branch": True}, {"combine": "concat"}])
def test_fifty_seeds_at_once_are_fifty_seeds_one_by_one(problem, options):
    x, operators = problem
    members = [model(seed, **options).eval() for seed in range(50)]
    parameters, buffers = stack_module_state(members)
    skeleton = copy.deepcopy(members[0])
    logits = torch.vmap(lambda p, b: functional_call(skeleton, (p, b), (x, operators)))(parameters, buffers)
    logits.square().mean((1, 2)).sum().backward()
    for index, member in enumerate(members):
        alone = member(x, operators)
        torch.testing.assert_close(logits[index], alone, rtol=1e-10, atol=1e-10)
        alone.square().mean().backward()
        for name, parameter in member.named_parameters():
            torch.testing.assert_close(parameters[name].grad[index], parameter.grad, rtol=1e-10, atol=1e-10)


# Tracing an autograd.Function, torch warns of what it does itself.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"self_branch": True}, {"combine": "concat"}])
def test_a_whole_model_compiles_as_one_graph(problem, options):
    x, operators = problem
    eager = model(0, **options).eval()
    compiled_model = copy.deepcopy(eager)
    torch._dynamo.reset()
    compiled = torch.compile(compiled_model, fullgraph=True, backend="aot_eager")
    expected, got = eager(x, operators), compiled(x, operators)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    expected.square().sum().backward()
    got.square().sum().backward()
    for one, other in zip(compiled_model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-10)
