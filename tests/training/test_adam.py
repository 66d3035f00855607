from __future__ import annotations

import torch
from torch import Tensor

from sobgnn.training.adam import Moments, adam_step, corrections

MEMBERS, LENGTH = 5, 3001


def draws(device: str, dtype: torch.dtype) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Weights, gradients of a few steps of all sizes (zeros too), learning rates and decays."""
    generator = torch.Generator().manual_seed(3)
    flat = torch.randn(MEMBERS, LENGTH, generator=generator, dtype=dtype)
    gradients = []
    for _ in range(7):
        size = 10 ** (8 * torch.rand(MEMBERS, LENGTH, generator=generator, dtype=dtype) - 8)
        gradient = torch.randn(MEMBERS, LENGTH, generator=generator, dtype=dtype) * size
        gradient[:, ::17] = 0
        gradients.append(gradient.to(device))
    lr = torch.tensor([[0.01], [0.005], [0.1], [0.02], [0.003]], dtype=dtype)
    decay = torch.tensor([[5e-4], [0.0], [1e-3], [1e-5], [1e-2]], dtype=dtype)
    return flat.to(device), gradients, lr.to(device), decay.to(device)


def trained(device: str, dtype: torch.dtype) -> tuple[Tensor, Moments]:
    flat, gradients, lr, decay = draws(device, dtype)
    moments = Moments(torch.zeros_like(flat), torch.zeros_like(flat))
    found = corrections(len(gradients)).to(device)
    for t, gradient in enumerate(gradients):
        adam_step(flat, gradient, moments, lr, decay, found[t : t + 1])
    return flat, moments


def test_steps_are_those_of_torch():
    flat, gradients, lr, decay = draws("cpu", torch.float64)
    got, _ = trained("cpu", torch.float64)
    for member in range(MEMBERS):
        weight = flat[member].clone().requires_grad_()
        adam = torch.optim.Adam([weight], lr=float(lr[member]), weight_decay=float(decay[member]))
        for gradient in gradients:
            weight.grad = gradient[member].clone()
            adam.step()
        torch.testing.assert_close(got[member], weight.detach(), rtol=1e-5, atol=1e-7)
