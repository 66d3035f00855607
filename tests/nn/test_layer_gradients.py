"""Gradients of edge weights and of ε through the layer, in float64, against finite differences."""

from __future__ import annotations

import pytest
import torch

from sobgnn import SobolevConv, SobolevOperators


def layer(**options):
    torch.manual_seed(3)
    conv = SobolevConv(3, 4, 2, **{"epsilon": 0.7, **options}).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            if parameter.ndim:
                parameter.normal_()
    return conv


@pytest.fixture
def x():
    return torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("normalize", ["sym", "row"])
def test_a_learned_epsilon_passes_gradcheck_and_starts_where_it_was_told(path5, x, normalize):
    conv = layer(learn_epsilon=True, normalize=normalize)
    assert conv.epsilon == pytest.approx(0.7)
    names = [name for name, _ in conv.named_parameters()]

    def run(log_epsilon):
        return torch.func.functional_call(conv, {"log_epsilon": log_epsilon}, (x, *path5.edges()))

    assert "log_epsilon" in names
    assert torch.autograd.gradcheck(run, conv.log_epsilon.detach().clone().requires_grad_())
    plain = layer(normalize=normalize)
    plain.load_state_dict({name: value for name, value in conv.state_dict().items() if name != "log_epsilon"})
    torch.testing.assert_close(conv(x, path5), plain(x, path5))
    torch.testing.assert_close(conv(x, SobolevOperators(path5, 2, 5.0)), plain(x, path5))  # its epsilon, not theirs
    with pytest.raises(ValueError, match="above 0"):
        SobolevConv(3, 4, epsilon=0.0, learn_epsilon=True)


@pytest.mark.parametrize("normalize", ["sym", "row"])
@pytest.mark.parametrize("epsilon", [1e-300, 1e-40, 1e38, 1e300])
def test_an_epsilon_learned_past_float32_acts_as_its_bound(path5, x, epsilon, normalize):
    """A huge loop leaves each node by itself, and the layer is one without a graph; a tiny one is none at all."""
    edges = path5.edges()
    conv = layer(epsilon=epsilon, learn_epsilon=True, normalize=normalize).float()
    plain = layer(epsilon=0.0 if epsilon < 1 else 1e30, normalize=normalize).float()
    result = conv(x.float(), *edges)
    torch.testing.assert_close(result, plain(x.float(), *edges))
    result.sum().backward()
    assert conv.log_epsilon.grad == 0


@pytest.mark.parametrize("width", [3, 9])  # aggregated first, transformed first
@pytest.mark.parametrize(
    "options", [{}, {"combine": "concat"}, {"self_branch": True}, {"normalize": "row"}, {"learn_epsilon": True}]
)
def test_many_gradients_at_once_are_those_of_one_after_another(path5, width, options):
    torch.manual_seed(0)
    layer = SobolevConv(width, 2 if width == 9 else 4, alpha=2, **options).double()
    edge_index, weight = path5.edges()
    x = torch.randn(5, width, dtype=torch.float64)

    def call(z):
        return layer(z, edge_index, weight)

    jacobian = torch.autograd.functional.jacobian(call, x)
    torch.testing.assert_close(torch.autograd.functional.jacobian(call, x, vectorize=True), jacobian)
    torch.testing.assert_close(torch.func.jacrev(call)(x), jacobian)
    z = x.clone().requires_grad_()
    probes = torch.randn(7, *call(x).shape, dtype=torch.float64)
    (got,) = torch.autograd.grad(call(z), z, probes, is_grads_batched=True)
    torch.testing.assert_close(got, torch.einsum("pno,noij->pij", probes, jacobian))


@pytest.mark.parametrize("width", [3, 9])
@pytest.mark.parametrize("combine", ["linear", "concat"])
def test_jacobians_of_jacobians_are_second_derivatives(path5, width, combine):
    torch.manual_seed(0)
    layer = SobolevConv(width, 2 if width == 9 else 4, alpha=2, combine=combine).double()
    edge_index, weight = path5.edges()
    x = torch.randn(5, width, dtype=torch.float64)

    def call(z):
        return layer(z, edge_index, weight).square().sum()

    twice = torch.func.jacrev(torch.func.jacrev(call))(x)
    for vectorize in (False, True):
        torch.testing.assert_close(torch.autograd.functional.hessian(call, x, vectorize=vectorize), twice)
    rows = torch.func.jacrev(torch.func.jacrev(lambda z: layer(z, edge_index, weight)))(x)
    assert rows.shape == (5, layer.out_channels, 5, width, 5, width)
