r"""Scales of nodes from the weights of their rows, as a torch operator with a gradient.

For a CSR of weights w and self-loops of weight ε, with :math:`m_i = \max(\epsilon, \max_j w_{ij})`,

.. math::
    q_i = m_i^{-1/2}, \quad t_\rho[i] = \Big(\sum_j (w_{ij} q_i^2)^\rho + (\epsilon q_i^2)^\rho\Big)^{-1/2}
    \qquad\text{or, by rows,}\qquad
    q_i = m_i^{-1}, \quad t_\rho[i] = \Big(\sum_j (w_{ij} q_i)^\rho + (\epsilon q_i)^\rho\Big)^{-1} .

q is rounded to 12 bits and has no gradient: the operators do not depend on it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sobgnn.propagation import dispatch
from sobgnn.propagation.functions import call, register_gradient, register_no_gradient
from sobgnn.propagation.stencil import refuse_forward_mode


def scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float = 0.0, *, by_rows: bool = False) -> Tensor:
    """Columns q, t_1 … t_α [N, α + 1] in the type of ``weight`` [E]; zeros where a row has neither weights nor ε."""
    refuse_forward_mode(weight)
    result: Tensor = call("scales", indptr, weight, alpha, epsilon, by_rows)
    return result


@torch.library.custom_op("sobgnn::scales", mutates_args=())
def _scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    return dispatch.scales(indptr, weight, alpha, epsilon, by_rows)


@_scales.register_fake
def _(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    return weight.new_empty((indptr.shape[0] - 1, alpha + 1))


@torch.library.custom_op("sobgnn::scales_backward", mutates_args=())
def _scales_backward(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    return dispatch.scales_backward(indptr, weight, scale, grad, by_rows)


@_scales_backward.register_fake
def _(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    return torch.empty_like(weight, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.by_rows = inputs[-1]
    ctx.save_for_backward(inputs[0], inputs[1], output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, call("scales_backward", *ctx.saved_tensors, grad, ctx.by_rows), None, None, None


register_gradient("scales", _save, _backward)
register_no_gradient("scales_backward")
