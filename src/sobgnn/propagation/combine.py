"""Bias, ReLU and weighted sum in one pass, and its backward, as torch operators."""

from __future__ import annotations

import torch
from torch import Tensor

from sobgnn.propagation import native
from sobgnn.propagation.backends import backend


@torch.library.custom_op("sobgnn::combine", mutates_args=("product", "out"))
def combine(product: Tensor, bias: Tensor, mu: Tensor, out: Tensor, relu: bool, first: bool) -> None:
    """product [n, w] <- relu(product + bias); out [n, w] gets, or adds, mu · product."""
    if product.shape != out.shape or any(part.dtype != product.dtype for part in (bias, mu, out)):
        raise ValueError(
            f"All branches must have one shape and type, but got {list(product.shape)} of {product.dtype} beside "
            f"{list(out.shape)} of {out.dtype}, bias of {bias.dtype} and mu of {mu.dtype}."
        )
    if backend(product) == "native" and product.dtype in (torch.float32, torch.float64):
        native.combine(product, bias.contiguous(), mu.contiguous(), out, relu=relu, first=first)
        return
    product.add_(bias)
    if relu:
        product.relu_()
    if first:
        torch.mul(product, mu, out=out)
    else:
        out.addcmul_(product, mu)


@torch.library.custom_op("sobgnn::combine_backward", mutates_args=())
def combine_backward(product: Tensor, grad: Tensor, mu: Tensor, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to product [n, w], bias [w] and mu [w]."""
    if backend(product) == "native" and product.dtype in (torch.float32, torch.float64):
        return native.combine_backward(product, grad.contiguous(), mu.contiguous(), relu=relu)
    to_product = grad * mu
    if relu:
        to_product.masked_fill_(product <= 0, 0)
    return to_product, to_product.sum(dim=0), (grad * product).sum(dim=0)


@combine_backward.register_fake
def _(product: Tensor, grad: Tensor, mu: Tensor, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(product), torch.empty_like(mu), torch.empty_like(mu)
