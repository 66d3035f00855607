r"""``propagate``, ``propagate_sum``, ``propagate_each`` and ``scales``: derivatives, vmap, compiled graphs.

With :math:`S_\rho` the matrices of a :class:`~sobgnn.propagation.csr.SobolevCSR`,

.. math::
    \mathrm{propagate}(x)_\rho = S_\rho x, \qquad
    \mathrm{propagate\_sum}(g) = \sum_\rho S_\rho g_\rho, \qquad
    \mathrm{propagate\_each}(x)_\rho = S_\rho x_\rho .

The adjoint of ``propagate`` over S is ``propagate_sum`` over its transpose and the other way round; that of
``propagate_each`` is ``propagate_each`` over the transpose. So every derivative, of any order, is again one of the
three, and the same bits come out every time.

``propagate`` and ``propagate_each`` have gradients for the weights and the scales too, of first order: with
:math:`P_\rho[i,j]` the product of row i of the output's gradient with row j of x,

.. math::
    \frac{\partial}{\partial w_{ij}} = \sum_\rho \frac{\rho}{w_{ij}} S_\rho[i,j] P_\rho[i,j], \qquad
    \frac{\partial}{\partial t^{out}_{i\rho}} = \frac{1}{t^{out}_{i\rho}} \sum_j S_\rho[i,j] P_\rho[i,j],

and for :math:`t^{in}` likewise over i. They go to ``weight``, never to ``t_weight``, which is its copy. q has
none: as long as t belongs to q, the matrices do not depend on it.

Every operation is an autograd function, which all of ``torch.func`` knows, and a registered operator, which compiled
and exported graphs know: :func:`define` makes both of one set of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn._system import pooled
from sobgnn.propagation import backends
from sobgnn.propagation.csr import SobolevCSR, check, transpose

_FUNCTIONS: dict[str, Any] = {}


class ReverseOnly(torch.autograd.Function):
    """A function whose forward-mode derivatives are refused."""

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Say so: without this torch would call the derivatives 0, or name its own machinery."""
        raise NotImplementedError(
            "Sobolev propagation has no forward-mode derivatives (torch.func.jvp). Use reverse mode: backward() or "
            "torch.autograd.grad."
        )


def call(name: str, *arguments: Any) -> Any:
    """The operation of that name."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return getattr(torch.ops.sobgnn, name)(*arguments)
    return _FUNCTIONS[name].apply(*arguments)


def is_batched(gradient: Tensor) -> bool:
    """Whether a gradient is a batch of several, as with autograd's ``is_grads_batched``."""
    return not torch.compiler.is_compiling() and bool(torch._C._functorch.is_legacy_batchedtensor(gradient))


def define(
    name: str,
    schema: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    save: Callable[..., None],
    backward: Callable[..., Any],
    vmap: Callable[..., Any] | None = None,
) -> None:
    """Make an operation that :func:`call` finds.

    Args:
        name: Without the namespace ``sobgnn``.
        schema: Arguments and results, as :func:`torch.library.custom_op` takes them. The last tensor among the
            arguments tells whether there is anything to compute with.
        compute: The work itself.
        fake: Empty results of the right shapes.
        save: As ``setup_context`` of :class:`torch.autograd.Function`.
        backward: As its ``backward``; operations that it needs it must :func:`call`.
        vmap: As its ``vmap``; ``None``: refused.
    """
    qualified = f"sobgnn::{name}"
    torch.library.custom_op(qualified, compute, mutates_args=(), schema=schema)
    torch.library.register_fake(qualified, fake)
    torch.library.register_autograd(qualified, backward, setup_context=save)

    def refuse(info: Any, *_: Any) -> Any:
        raise NotImplementedError("Edge weights and a learned epsilon cannot be mapped over by vmap. Use a loop.")

    torch.library.register_vmap(qualified, vmap or refuse)

    def forward(*arguments: Any) -> Any:
        x = next(value for value in reversed(arguments) if isinstance(value, Tensor))
        if type(x) in (Tensor, torch.nn.Parameter) and not is_batched(x):
            return compute(*arguments)
        return getattr(torch.ops.sobgnn, name)(*arguments)  # tensors without data, and batches of gradients

    rules = {"forward": forward, "setup_context": save, "backward": backward, "vmap": vmap or refuse}
    _FUNCTIONS[name] = type(name, (ReverseOnly,), {rule: staticmethod(how) for rule, how in rules.items()})


def first_order(ctx: Any, *_: Any) -> Any:
    """The gradient of what is itself a gradient of edge weights."""
    raise NotImplementedError("Gradients of edge weights and of a learned epsilon are of first order alone.")


def keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save nothing for such a gradient."""


def propagate(csr: SobolevCSR, x: Tensor) -> Tensor:
    """Every order of the same features: [C, h] -> [R, α, h]."""
    check(csr, x, orders=False)
    result: Tensor = call("propagate", *csr, x)
    return result


def propagate_sum(csr: SobolevCSR, g: Tensor) -> Tensor:
    """Each order of its own slice, summed over the orders: [C, α, h] -> [R, h]."""
    check(csr, g, orders=True)
    result: Tensor = call("propagate_sum", *csr, g)
    return result


def propagate_each(csr: SobolevCSR, x: Tensor) -> Tensor:
    """Each order of its own slice: [C, α, h] -> [R, α, h]."""
    check(csr, x, orders=True)
    result: Tensor = call("propagate_each", *csr, x)
    return result


def scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float = 0.0, *, by_rows: bool = False) -> Tensor:
    r"""Scales of nodes from the weights [E] of their rows: columns q, t_1 … t_α [N, α + 1] in the type of the weights.

    For a CSR of weights w and self-loops of weight ε, with :math:`m_i = \max(\epsilon, \max_j w_{ij})`,

    .. math::
        q_i = m_i^{-1/2}, \quad t_\rho[i] = \Big(\sum_j (w_{ij} q_i^2)^\rho + (\epsilon q_i^2)^\rho\Big)^{-1/2}
        \qquad\text{or, by rows,}\qquad
        q_i = m_i^{-1}, \quad t_\rho[i] = \Big(\sum_j (w_{ij} q_i)^\rho + (\epsilon q_i)^\rho\Big)^{-1} .

    q is rounded to 12 bits and has no gradient: the operators do not depend on it. Zeros where a row has neither
    weights nor ε. Summed in float64 and rounded once.
    """
    result: Tensor = call("scales", indptr, weight, alpha, epsilon, by_rows)
    return result


def _shape(csr: SobolevCSR, x: Tensor, *, orders: bool) -> tuple[int, ...]:
    """The operator's output shape; ``orders`` says whether the output has them."""
    rows, alpha = csr.row_scale.shape[0], csr.row_scale.shape[1] - 1
    return (rows, alpha, x.shape[-1]) if orders else (rows, x.shape[-1])


# What each operator takes: a SobolevCSR and features.
_CSR = (
    "Tensor indptr, Tensor indices, Tensor weight, Tensor t_indptr, Tensor t_indices, Tensor t_weight, "
    "Tensor row_scale, Tensor column_scale, float epsilon"
)
_WEIGHT, _ROW_SCALE, _COLUMN_SCALE = 2, 6, 7  # places of what has gradients besides x


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, epsilon, x = inputs
    ctx.learned = any(tensors[place].requires_grad for place in (_WEIGHT, _ROW_SCALE, _COLUMN_SCALE))
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
    for place, value in zip((_ROW_SCALE, _COLUMN_SCALE), scales, strict=True):
        if needs[place]:
            result[place] = F.pad(value, (1, 0))  # nothing for q
    return tuple(result)


def _propagation(name: str, adjoint: str, *, orders_in: bool, orders_out: bool) -> None:
    """One of the three."""

    def compute(*arguments: Any) -> Tensor:
        *csr, x = arguments
        operators = SobolevCSR._make(csr)
        return backends.run(operators, x, pooled.empty(x, _shape(operators, x, orders=orders_out)))

    def fake(*arguments: Any) -> Tensor:
        *csr, x = arguments
        result: Tensor = x.new_empty(_shape(SobolevCSR._make(csr), x, orders=orders_out))
        return result

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.learned:
            if not orders_out:
                raise NotImplementedError(f"{name} has no gradients for weights. Use propagate_each and a sum.")
            return _learn(ctx, gradient)
        transposed = transpose(SobolevCSR._make((*ctx.saved_tensors, ctx.epsilon)))
        return (*([None] * len(transposed)), call(adjoint, *transposed, gradient))

    def vmap(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Tensor, int]:
        if any(dim is not None for dim in in_dims[:-1]):
            raise ValueError(f"sobgnn::{name} maps over features only, but the CSR is batched. Use a loop.")
        # A batch is more columns of features: [C, batch, h] is [C, batch · h] without a copy.
        batch = in_dims[-1]
        assert batch is not None  # torch calls this rule only where some argument is batched
        x: Tensor = arguments[-1].movedim(batch, 2 if orders_in else 1)
        width = x.shape[-1]
        result: Tensor = call(name, *arguments[:-1], x.flatten(-2))
        return result.view(*result.shape[:-1], info.batch_size, width), 2 if orders_out else 1

    define(name, f"({_CSR}, Tensor x) -> Tensor", compute, fake, _save, backward, vmap)


_propagation("propagate", "propagate_sum", orders_in=False, orders_out=True)
_propagation("propagate_sum", "propagate", orders_in=True, orders_out=False)
_propagation("propagate_each", "propagate_each", orders_in=True, orders_out=True)


def _gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *csr, x, y, g = arguments
    return backends.gradients(SobolevCSR._make(csr), x, y, g)


def _fake_gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *csr, x, _, g = arguments
    like, alpha = csr[_COLUMN_SCALE], g.shape[1]
    shapes = (csr[_WEIGHT].shape, (g.shape[0], alpha), (x.shape[0], alpha))
    to_weight, to_row_scale, to_column_scale = (like.new_empty(shape) for shape in shapes)
    return x.new_empty(x.shape), to_weight, to_row_scale, to_column_scale


_SCHEMA = f"({_CSR}, Tensor x, Tensor y, Tensor g) -> (Tensor, Tensor, Tensor, Tensor)"
define("gradients", _SCHEMA, _gradients, _fake_gradients, keep_nothing, first_order)


def _fake_scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    return weight.new_empty((indptr.shape[0] - 1, alpha + 1))


def _save_scales(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.by_rows = inputs[-1]
    ctx.save_for_backward(inputs[0], inputs[1], output)


def _scales_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, call("scales_backward", *ctx.saved_tensors, grad, ctx.by_rows), None, None, None


def _fake_scales_backward(indptr: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(weight, memory_format=torch.contiguous_format)


_SCHEMA = "(Tensor indptr, Tensor weight, int alpha, float epsilon, bool by_rows) -> Tensor"
define("scales", _SCHEMA, backends.scales, _fake_scales, _save_scales, _scales_gradient)
_SCHEMA = "(Tensor indptr, Tensor weight, Tensor scale, Tensor grad, bool by_rows) -> Tensor"
define("scales_backward", _SCHEMA, backends.scales_backward, _fake_scales_backward, keep_nothing, first_order)
