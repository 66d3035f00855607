r"""A layer's filters after propagation: products, bias, ReLU and the weighted sum, with few passes over memory.

.. math:: \mathrm{out} = \sum_a \mu_a \, \sigma(X_a W_a + b_a)

over branches a. What would be a dozen passes over all branches' activations, forward and backward, is one matrix
product and one pass per branch. Members trained side by side stand in neighboring columns, so that those that share
X are one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sobgnn.propagation.native import backend, call, empty
from sobgnn.propagation.ops import is_batched


def filter_bank(inputs: Sequence[Tensor], weight: Tensor, bias: Tensor, mu: Tensor, *, relu: bool) -> Tensor:
    """The weighted sum over A branches [N, o]; can be mapped over members (vmap).

    Args:
        inputs: What each branch reads, [N, i].
        weight: [A, i, o].
        bias: [A, o].
        mu: [A].
        relu: Whether σ is ReLU or nothing.
    """
    parameters = (value.unsqueeze(0) for value in (weight, bias, mu))
    result: tuple[Tensor, ...] = _FilterBank.apply(relu, *parameters, *inputs)  # type: ignore[no-untyped-call]
    return result[0].squeeze(1)


class _FilterBank(torch.autograd.Function):
    """The filters of S members: weight [S, A, i, o], bias [S, A, o], mu [S, A] -> [N, S, o].

    An input [N, i] is shared by all members, or [N, S, i] each member's. Activations are outputs too, so that the
    backward need not compute them again.
    """

    @staticmethod
    def forward(relu: bool, weight: Tensor, bias: Tensor, mu: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        members, branches, _, width = weight.shape
        out = inputs[-1].new_empty((inputs[-1].shape[0], members, width))
        scale, shift = _columns(mu, width), bias.transpose(0, 1).reshape(branches, -1)
        products = []
        for branch, x in enumerate(inputs):
            product = _multiply(x, weight[:, branch])
            bias_relu_mix(product, shift[branch], scale[branch], out.flatten(1), relu, branch == 0)
            products.append(product)
        return out, *products

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.relu, *tensors = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        weight, bias, mu, *rest = ctx.saved_tensors
        members, branches, _, width = weight.shape
        inputs, products = rest[:branches], rest[branches:]
        # Gradients of gradients, and several at once (is_grads_batched), by what torch maps and differentiates.
        if torch.is_grad_enabled() or is_batched(grad):
            return None, *torch.func.vjp(partial(_plain, ctx.relu), weight, bias, mu, *inputs)[1](grad)
        grad = grad.reshape(len(grad), members * width).contiguous()
        scale = _columns(mu, width)
        to_weight, to_bias, to_mu = [], [], []
        to_inputs: list[Tensor | None] = []
        for branch, (x, product) in enumerate(zip(inputs, products, strict=True)):
            to_product, shift, factor = bias_relu_mix_backward(product, grad, scale[branch], ctx.relu)
            to_weight.append(_multiply_to_weight(x, to_product, members))
            to_bias.append(shift)
            to_mu.append(factor)
            needed = ctx.needs_input_grad[4 + branch]
            to_inputs.append(_multiply_to_inputs(to_product, weight[:, branch], x.ndim == 2) if needed else None)
        return (
            None,
            torch.stack(to_weight, dim=1),
            torch.stack(to_bias).view(branches, members, width).transpose(0, 1),
            torch.stack(to_mu).view(branches, members, width).sum(dim=2).t(),
            *to_inputs,
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], relu: bool, *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        size = info.batch_size
        parameters = [_placed(value, dim, 0, size) for value, dim in zip(tensors[:3], in_dims[1:4], strict=True)]
        count, width = parameters[0].shape[1], parameters[0].shape[4]
        inputs = []
        for x, dim in zip(tensors[3:], in_dims[4:], strict=True):
            if dim is not None or x.ndim == 3:  # size times count members side by side
                x = _placed(x, dim, 1, size)
                x = x if x.ndim == 4 else x.unsqueeze(2).expand(-1, -1, count, -1)
                x = x.flatten(1, 2)
            inputs.append(x)
        flat = (value.flatten(0, 1) for value in parameters)
        found: tuple[Tensor, ...] = _FilterBank.apply(relu, *flat, *inputs)  # type: ignore[no-untyped-call]
        return (found[0].view(found[0].shape[0], size, count, width),), (1,)


@torch.library.custom_op("sobgnn::bias_relu_mix", mutates_args=("product", "out"))
def bias_relu_mix(product: Tensor, bias: Tensor, mu: Tensor, out: Tensor, relu: bool, first: bool) -> None:
    """product [n, w] <- relu(product + bias); out [n, w] gets, or adds, mu · product."""
    if product.shape != out.shape or any(part.dtype != product.dtype for part in (bias, mu, out)):
        raise ValueError(
            f"All branches must have one shape and type, but got {list(product.shape)} of {product.dtype} beside "
            f"{list(out.shape)} of {out.dtype}, bias of {bias.dtype} and mu of {mu.dtype}."
        )
    if backend(product) == "native" and product.dtype in (torch.float32, torch.float64):
        call("sobgnn_combine", product.dtype, product, bias, mu, out, *product.shape, relu, first)
        return
    product.add_(bias)
    if relu:
        product.relu_()
    if first:
        torch.mul(product, mu, out=out)
    else:
        out.addcmul_(product, mu)


@torch.library.custom_op("sobgnn::bias_relu_mix_backward", mutates_args=())
def bias_relu_mix_backward(product: Tensor, grad: Tensor, mu: Tensor, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to product [n, w], bias [w] and mu [w]."""
    if backend(product) == "native" and product.dtype in (torch.float32, torch.float64):
        found = (empty(product, product.shape), mu.new_empty(mu.shape), mu.new_empty(mu.shape))
        call("sobgnn_combine_backward", product.dtype, product, grad, mu, *found, *product.shape, relu)
        return found
    to_product = grad * mu
    if relu:
        to_product.masked_fill_(product <= 0, 0)
    return to_product, to_product.sum(dim=0), (grad * product).sum(dim=0)


@bias_relu_mix_backward.register_fake
def _(product: Tensor, grad: Tensor, mu: Tensor, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(product), torch.empty_like(mu), torch.empty_like(mu)


def _plain(relu: bool, weight: Tensor, bias: Tensor, mu: Tensor, *inputs: Tensor) -> Tensor:
    """The same by operations that have gradients of every order."""
    terms = []
    for branch, x in enumerate(inputs):
        product = torch.einsum("ni,sio->nso" if x.ndim == 2 else "nsi,sio->nso", x, weight[:, branch])
        product = product + bias[:, branch]
        terms.append((product.relu() if relu else product) * mu[:, branch, None])
    return torch.stack(terms).sum(dim=0)


def _columns(mu: Tensor, width: int) -> Tensor:
    """mu [S, A] once for each output column: [A, S·o]."""
    return mu.t().repeat_interleave(width, dim=1)


def _multiply(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, i] or [N, S, i] times weight [S, i, o], members side by side: [N, S·o]."""
    members, _, width = weight.shape
    if x.ndim == 2:
        return x @ weight.transpose(0, 1).flatten(1)
    out = x.new_empty((x.shape[0], members, width))
    torch.bmm(x.transpose(0, 1), weight, out=out.transpose(0, 1))
    return out.flatten(1)


def _multiply_to_weight(x: Tensor, to_product: Tensor, members: int) -> Tensor:
    """[S, i, o]."""
    if x.ndim == 2:
        return (x.t() @ to_product).view(x.shape[1], members, -1).transpose(0, 1)
    return torch.bmm(x.permute(1, 2, 0), to_product.view(len(x), members, -1).transpose(0, 1))


def _multiply_to_inputs(to_product: Tensor, weight: Tensor, shared: bool) -> Tensor:
    """[N, i], summed over members, or [N, S, i]."""
    if shared:
        return to_product @ weight.transpose(0, 1).flatten(1).t()
    own = to_product.view(len(to_product), len(weight), -1).transpose(0, 1)
    return torch.bmm(own, weight.transpose(1, 2)).transpose(0, 1)


def _placed(value: Tensor, dim: int | None, place: int, size: int) -> Tensor:
    """``value`` with its members' dimension at ``place``; repeated where it has none."""
    if dim is None:
        return value.unsqueeze(place).expand(*value.shape[:place], size, *value.shape[place:])
    return value.movedim(dim, place)


def shared_product(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, a, i] times weight [a, i, o], branch by branch: [N, a, o].

    Mapped over members that share x, it is one matrix product per branch with the members' weights side by side;
    vmap by itself would copy x once for each member.
    """
    product: Tensor = _SharedProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product


class _SharedProduct(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return torch.einsum("nai,aio->nao", x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        # Not by einsum, which autograd's is_grads_batched does not know.
        grad = grad.transpose(0, 1)
        to_x = torch.matmul(grad, weight.transpose(1, 2)).transpose(0, 1) if ctx.needs_input_grad[0] else None
        to_weight = torch.matmul(x.permute(1, 2, 0), grad) if ctx.needs_input_grad[1] else None
        return to_x, to_weight

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
        # Ordinary operations, one level further out: their gradients are autograd's own.
        if in_dims[1] is None:
            assert in_dims[0] is not None
            return torch.einsum("snai,aio->snao", x.movedim(in_dims[0], 0), weight), 0
        weight = weight.movedim(in_dims[1], 0)
        if in_dims[0] is not None:
            return torch.einsum("snai,saio->snao", x.movedim(in_dims[0], 0), weight), 0
        members, branches, i, o = weight.shape
        beside = weight.permute(1, 2, 0, 3).reshape(branches, i, members * o)
        product = torch.bmm(x.transpose(0, 1), beside).view(branches, -1, members, o)
        return product.transpose(0, 1), 2


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The type that autocast, where it is on, gives products with x; as in torch, it leaves float64 alone."""
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(x.device.type):
        return None
    return torch.get_autocast_dtype(x.device.type)


def row_product(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, i], dense or sparse, times weight [a, i, o]: [N, a, o]."""
    if x.layout == torch.strided:
        return torch.einsum("ni,aio->nao", x, weight)
    dtype = autocast_dtype(x) or x.dtype
    beside = weight.transpose(0, 1).flatten(1)
    if x.dtype in (torch.float16, torch.bfloat16):  # which not every sparse product knows
        x, beside = x.float(), beside.float()
    with torch.autocast(x.device.type, enabled=False):
        found: Tensor = torch.sparse.mm(x, beside)
    return found.to(dtype).view(x.shape[0], weight.shape[0], weight.shape[2])
