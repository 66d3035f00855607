r"""``propagate``, ``propagate_sum``, ``propagate_each`` and ``scales``: backends, derivatives, vmap, compiled graphs.

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

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.propagation import native, portable
from sobgnn.propagation.csr import SobolevCSR
from sobgnn.propagation.native import backend

_FUNCTIONS: dict[str, Any] = {}


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        f"{native.MISSING} The portable backend serves, which is slower. Reinstall sobgnn where a C++ compiler "
        "is found, or set SOBGNN_BACKEND=portable to choose it.",
        stacklevel=2,
    )


def _kernels(tensor: Tensor) -> Any:
    """The module of the backend that serves a tensor: its run, gradients, scales and scales_backward."""
    name = backend(tensor)
    if name == "triton":
        from sobgnn.propagation import triton_gradient

        return triton_gradient
    if name == "portable" and tensor.device.type == "cpu" and not os.environ.get("SOBGNN_BACKEND"):
        _warn_once()
    return native if name == "native" else portable


def propagate_into(csr: SobolevCSR, x: Tensor, out: Tensor) -> Tensor:
    """Fill ``out`` from ``x``, without gradients; which of the three operators is meant follows from dimensions."""
    if out.numel():
        _kernels(x).run(csr, x, out)
    return out


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
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
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
        backward: As its ``backward``; operations that it needs it must :func:`call`. ``None``, of what is itself a
            gradient of edge weights: refused.
        vmap: As its ``vmap``; ``None``: refused.
    """

    def save_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    def refuse_forward_mode(ctx: Any, *_: Any) -> Any:
        # Without this torch would call the derivatives 0, or name its own machinery.
        raise NotImplementedError(
            "Sobolev propagation has no forward-mode derivatives (torch.func.jvp). Use reverse mode: backward() or "
            "torch.autograd.grad."
        )

    def refuse_backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError("Gradients of edge weights and of a learned epsilon are of first order alone.")

    def refuse_vmap(info: Any, *_: Any) -> Any:
        raise NotImplementedError("Edge weights and a learned epsilon cannot be mapped over by vmap. Use a loop.")

    save, backward, vmap = save or save_nothing, backward or refuse_backward, vmap or refuse_vmap
    qualified = f"sobgnn::{name}"
    torch.library.custom_op(qualified, compute, mutates_args=(), schema=schema)
    torch.library.register_fake(qualified, fake)
    torch.library.register_autograd(qualified, backward, setup_context=save)
    torch.library.register_vmap(qualified, vmap)

    def forward(*arguments: Any) -> Any:
        x = next(value for value in reversed(arguments) if isinstance(value, Tensor))
        if type(x) in (Tensor, torch.nn.Parameter) and not is_batched(x):
            return compute(*arguments)
        return getattr(torch.ops.sobgnn, name)(*arguments)  # tensors without data, and batches of gradients

    rules = {"forward": forward, "setup_context": save, "backward": backward, "vmap": vmap, "jvp": refuse_forward_mode}
    functions = {rule: staticmethod(how) for rule, how in rules.items()}
    _FUNCTIONS[name] = type(name, (torch.autograd.Function,), functions)


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


def check(csr: SobolevCSR, x: Tensor, *, orders: bool) -> None:
    """Raise on sizes, types or devices that do not fit; ``orders`` says whether x has a dimension of orders."""
    rows, columns, entries = csr.indptr.numel() - 1, csr.t_indptr.numel() - 1, csr.indices.numel()
    alpha = csr.column_scale.shape[-1] - 1
    if not isinstance(x, Tensor):
        raise TypeError(f"The signal must be a torch tensor, but got {type(x).__name__}. Use torch.as_tensor.")
    if x.layout != torch.strided:
        raise TypeError(f"The signal must be dense, but got {x.layout}. Convert it with .to_dense().")
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise TypeError(
            f"The signal must be float32, float64 or bfloat16, but got {x.dtype}. Convert it with .float()."
        )
    leading = (columns, alpha) if orders else (columns,)
    if x.ndim != len(leading) + 1 or tuple(x.shape[:-1]) != leading:
        expected = f"[{columns}, {alpha}, h]" if orders else f"[{columns}, h]"
        raise ValueError(
            f"The signal must have one row per node, {expected}, but got shape {list(x.shape)} for {columns} nodes."
        )
    real = torch.float64 if x.dtype == torch.float64 else torch.float32
    pointer, index = (torch.int64,), (torch.int32, torch.int64)
    weight = (torch.float32, real) if csr.weight.dtype == csr.t_weight.dtype else ()
    sizes = ((rows + 1,), (entries,), (entries,), (columns + 1,), (entries,), (entries,))
    shapes = (*sizes, (rows, alpha + 1), (columns, alpha + 1))
    kinds = (pointer, index, weight, pointer, index, weight, (real,), (real,))
    for name, tensor, shape, kind in zip(csr._fields, csr[:8], shapes, kinds, strict=False):
        if tensor.device != x.device:
            raise ValueError(
                f"The signal and the operators must be on one device, but got {x.device} and {tensor.device}. Move one "
                "with .to()."
            )
        if tuple(tensor.shape) != shape or tensor.dtype not in kind:
            raise ValueError(
                f"`{name}` does not fit a signal of {x.dtype} and the other tensors: it must have shape {list(shape)} "
                f"and one of the types {kind}, but has {list(tensor.shape)} and {tensor.dtype}."
            )
    if csr.epsilon != 0.0 and rows != columns:
        raise ValueError(
            f"`epsilon` must be 0.0 where rows and columns differ, but got {csr.epsilon} for {rows} by {columns}. "
            "Give the self-loops as entries of the pattern."
        )


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

    def shape(csr: Sequence[Any], x: Tensor) -> tuple[int, ...]:
        rows, columns = csr[_ROW_SCALE].shape
        return (rows, columns - 1, x.shape[-1]) if orders_out else (rows, x.shape[-1])

    def compute(*arguments: Any) -> Tensor:
        *csr, x = arguments
        return propagate_into(SobolevCSR._make(csr), x, native.empty(x, shape(csr, x)))

    def fake(*arguments: Any) -> Tensor:
        *csr, x = arguments
        result: Tensor = x.new_empty(shape(csr, x))
        return result

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.learned:
            if not orders_out:
                raise NotImplementedError(f"{name} has no gradients for weights. Use propagate_each and a sum.")
            return _learn(ctx, gradient)
        transposed = SobolevCSR._make((*ctx.saved_tensors, ctx.epsilon)).transposed()
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
    """Gradients of x, the weights [E] (0 for those of 0, which are no edges), row_scale [R, α], column_scale [C, α]."""
    *parts, x, y, g = arguments
    csr = SobolevCSR._make(parts)
    if x.numel() == 0 or g.numel() == 0:
        to_x, *rest = _fake_gradients(*arguments)
        return to_x.zero_(), *(value.zero_() for value in rest)  # type: ignore[return-value]
    to_x, to_weight, to_row_scale, to_column_scale = _kernels(x).gradients(csr, x, y, g)
    to_weight.masked_fill_(csr.weight == 0, 0.0)
    return to_x.to(x.dtype).contiguous(), to_weight, to_row_scale, to_column_scale


def _fake_gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *csr, x, _, g = arguments
    like, alpha = csr[_COLUMN_SCALE], g.shape[1]
    shapes = (csr[_WEIGHT].shape, (g.shape[0], alpha), (x.shape[0], alpha))
    to_weight, to_row_scale, to_column_scale = (like.new_empty(shape) for shape in shapes)
    return x.new_empty(x.shape), to_weight, to_row_scale, to_column_scale


_SCHEMA = f"({_CSR}, Tensor x, Tensor y, Tensor g) -> (Tensor, Tensor, Tensor, Tensor)"
define("gradients", _SCHEMA, _gradients, _fake_gradients)


def _scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    kernels = native if backend(weight) == "native" else portable  # few numbers, made once: not in Triton
    result: Tensor = kernels.scales(indptr, weight, alpha, epsilon, by_rows)
    return result


def _fake_scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    return weight.new_empty((indptr.shape[0] - 1, alpha + 1))


def _save_scales(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.by_rows = inputs[-1]
    ctx.save_for_backward(inputs[0], inputs[1], output)


def _scales_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, call("scales_backward", *ctx.saved_tensors, grad, ctx.by_rows), None, None, None


def _scales_backward(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    found: Tensor = _kernels(weight).scales_backward(indptr, weight, scale, grad, by_rows)
    return found.masked_fill_(weight == 0, 0.0)


def _fake_scales_backward(indptr: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(weight, memory_format=torch.contiguous_format)


_SCHEMA = "(Tensor indptr, Tensor weight, int alpha, float epsilon, bool by_rows) -> Tensor"
define("scales", _SCHEMA, _scales, _fake_scales, _save_scales, _scales_gradient)
_SCHEMA = "(Tensor indptr, Tensor weight, Tensor scale, Tensor grad, bool by_rows) -> Tensor"
define("scales_backward", _SCHEMA, _scales_backward, _fake_scales_backward)
