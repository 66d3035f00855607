r"""``expand``, ``reduce`` and ``each`` as torch operators: autograd, vmap, fake tensors.

With :math:`S_\rho` the matrices of a :class:`~sobgnn.propagation.stencil.Stencil`,

.. math::
    \mathrm{expand}(x)_\rho = S_\rho x, \qquad
    \mathrm{reduce}(g) = \sum_\rho S_\rho g_\rho, \qquad
    \mathrm{each}(x)_\rho = S_\rho x_\rho .

The adjoint of ``expand`` over S is ``reduce`` over its transpose and the other way round; that of ``each`` is
``each`` over the transpose. So every derivative, of any order, is again one of the three, and the same
bits come out every time.

``expand`` and ``each`` have gradients for the weights and the scales too, of first order: with :math:`P_\rho[i,j]` the
product of row i of the output's gradient with row j of x,

.. math::
    \frac{\partial}{\partial w_{ij}} = \sum_\rho \frac{\rho}{w_{ij}} S_\rho[i,j] P_\rho[i,j], \qquad
    \frac{\partial}{\partial t^{out}_{i\rho}} = \frac{1}{t^{out}_{i\rho}} \sum_j S_\rho[i,j] P_\rho[i,j],

and for :math:`t^{in}` likewise over i. They go to ``weight``, never to ``t_weight``, which is its copy. q has
none: as long as t belongs to q, the matrices do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.propagation import dispatch
from sobgnn.propagation.functions import call, register_gradient, register_no_gradient
from sobgnn.propagation.stencil import Stencil, check, transpose
from sobgnn.runtime import pages


def expand(stencil: Stencil, x: Tensor) -> Tensor:
    """Every order of the same features: [C, h] -> [R, α, h]."""
    check(stencil, x, orders=False)
    result: Tensor = call("expand", *stencil, x)
    return result


def reduce(stencil: Stencil, g: Tensor) -> Tensor:
    """Each order of its own slice, summed over the orders: [C, α, h] -> [R, h]."""
    check(stencil, g, orders=True)
    result: Tensor = call("reduce", *stencil, g)
    return result


def each(stencil: Stencil, x: Tensor) -> Tensor:
    """Each order of its own slice: [C, α, h] -> [R, α, h]."""
    check(stencil, x, orders=True)
    result: Tensor = call("each", *stencil, x)
    return result


def _shape(stencil: Stencil, x: Tensor, *, orders: bool) -> tuple[int, ...]:
    """The operator's output shape; ``orders`` says whether the output has them."""
    rows, alpha = stencil.scale_out.shape[0], stencil.scale_out.shape[1] - 1
    return (rows, alpha, x.shape[-1]) if orders else (rows, x.shape[-1])


# What each operator takes: a stencil and features.
_STENCIL = (
    "Tensor indptr, Tensor indices, Tensor weight, Tensor t_indptr, Tensor t_indices, Tensor t_weight, "
    "Tensor scale_out, Tensor scale_in, float epsilon"
)
_SCHEMA = f"({_STENCIL}, Tensor x) -> Tensor"
_GRADIENTS_SCHEMA = f"({_STENCIL}, Tensor x, Tensor y, Tensor g) -> (Tensor, Tensor, Tensor, Tensor)"

_WEIGHT, _SCALE_OUT, _SCALE_IN = 2, 6, 7  # places of what has gradients besides x


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, epsilon, x = inputs
    ctx.learned = any(tensors[place].requires_grad for place in (_WEIGHT, _SCALE_OUT, _SCALE_IN))
    ctx.epsilon = epsilon
    ctx.save_for_backward(*tensors, *((x, output) if ctx.learned else ()))


def _learn(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of every argument where weights or scales have one too."""
    *tensors, x, output = ctx.saved_tensors
    needs = ctx.needs_input_grad
    to_x, to_weight, *scales = call("gradients", *tensors, ctx.epsilon, x, output, gradient)
    result: list[Tensor | None] = [None] * len(needs)
    if needs[-1]:
        result[-1] = to_x
    if needs[_WEIGHT]:
        result[_WEIGHT] = to_weight.to(tensors[_WEIGHT].dtype)
    for place, value in zip((_SCALE_OUT, _SCALE_IN), scales, strict=True):
        if needs[place]:
            result[place] = F.pad(value, (1, 0))  # nothing for q
    return tuple(result)


def _register(name: str, adjoint: str, *, orders_in: bool, orders_out: bool) -> None:
    """One operator: what it computes, its autograd, fake tensors and vmap."""

    def compute(*arguments: Any) -> Tensor:
        *stencil, x = arguments
        operators = Stencil._make(stencil)
        return dispatch.run(operators, x, pages.empty(x, _shape(operators, x, orders=orders_out)))

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.learned:
            if not orders_out:
                raise NotImplementedError(f"sobgnn::{name} has no gradients for weights. Use `each` and a sum.")
            return _learn(ctx, gradient)
        transposed = transpose(Stencil._make((*ctx.saved_tensors, ctx.epsilon)))
        return (*([None] * len(transposed)), call(adjoint, *transposed, gradient))

    def fake(*arguments: Any) -> Tensor:
        *stencil, x = arguments
        result: Tensor = x.new_empty(_shape(Stencil._make(stencil), x, orders=orders_out))
        return result

    def vmap(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Tensor, int]:
        if any(dim is not None for dim in in_dims[:-1]):
            raise ValueError(f"sobgnn::{name} maps over features only, but the stencil is batched. Use a loop.")
        # A batch is more columns of features: [C, batch, h] is [C, batch · h] without a copy.
        batch = in_dims[-1]
        assert batch is not None  # torch calls this rule only where some argument is batched
        x: Tensor = arguments[-1].movedim(batch, 2 if orders_in else 1)
        width = x.shape[-1]
        result: Tensor = call(name, *arguments[:-1], x.flatten(-2))
        return result.view(*result.shape[:-1], info.batch_size, width), 2 if orders_out else 1

    qualified = f"sobgnn::{name}"
    torch.library.custom_op(qualified, compute, mutates_args=(), schema=_SCHEMA)
    torch.library.register_fake(qualified, fake)
    register_gradient(name, _save, backward, vmap)


_register("expand", "reduce", orders_in=False, orders_out=True)
_register("reduce", "expand", orders_in=True, orders_out=False)
_register("each", "each", orders_in=True, orders_out=True)


def _gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *stencil, x, y, g = arguments
    return dispatch.gradients(Stencil._make(stencil), x, y, g)


def _fake_gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *stencil, x, _, g = arguments
    like, alpha = stencil[_SCALE_IN], g.shape[1]
    shapes = (stencil[_WEIGHT].shape, (g.shape[0], alpha), (x.shape[0], alpha))
    to_weight, to_scale_out, to_scale_in = (like.new_empty(shape) for shape in shapes)
    return x.new_empty(x.shape), to_weight, to_scale_out, to_scale_in


torch.library.custom_op("sobgnn::gradients", _gradients, mutates_args=(), schema=_GRADIENTS_SCHEMA)
torch.library.register_fake("sobgnn::gradients", _fake_gradients)
register_no_gradient("gradients")
