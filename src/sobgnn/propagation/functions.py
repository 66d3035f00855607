"""Operators of torch.library inside torch.func's transforms, whose gradients need autograd functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_FUNCTIONS: dict[str, Any] = {}


def call(name: str, *arguments: Any) -> Any:
    """``torch.ops.sobgnn.name`` of the arguments."""
    # Inside of vmap, requires_grad does not show whether an outer transform needs a gradient.
    if _within_gradient() and (
        _FUNCTIONS[name].maps or any(isinstance(value, Tensor) and value.requires_grad for value in arguments)
    ):
        return _FUNCTIONS[name].apply(*arguments)
    return getattr(torch.ops.sobgnn, name)(*arguments)


def within_transform() -> bool:
    """Whether the caller runs inside vmap or another of torch.func's transforms."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def is_batched(gradient: Tensor) -> bool:
    """Whether a gradient is a batch of several, as with autograd's ``is_grads_batched``."""
    return not torch.compiler.is_compiling() and bool(torch._C._functorch.is_legacy_batchedtensor(gradient))


def _within_gradient() -> bool:
    """Whether a gradient is among torch.func's transforms."""
    if not within_transform():
        return False
    transforms = torch._C._functorch.get_interpreter_stack()
    return any(transform.key() == torch._C._functorch.TransformType.Grad for transform in transforms)


def register_gradient(
    name: str, save: Callable[..., None], backward: Callable[..., Any], vmap: Callable[..., Any] | None = None
) -> None:
    """Give an operator its gradient, and its rule for vmap, in plain autograd and in torch.func.

    Args:
        name: Without the namespace.
        save: As ``setup_context`` of :func:`torch.library.register_autograd`.
        backward: As its ``backward``; operators that it needs it must :func:`call`.
        vmap: As :func:`torch.library.register_vmap` takes it.
    """
    torch.library.register_autograd(f"sobgnn::{name}", backward, setup_context=save)

    def forward(*arguments: Any) -> Any:
        return getattr(torch.ops.sobgnn, name)(*arguments)

    rules = {"forward": forward, "setup_context": save, "backward": backward}
    if vmap is not None:
        torch.library.register_vmap(f"sobgnn::{name}", vmap)
        rules["vmap"] = vmap
    methods = {rule: staticmethod(how) for rule, how in rules.items()}
    _FUNCTIONS[name] = type(name, (torch.autograd.Function,), methods)
    _FUNCTIONS[name].maps = vmap is not None


def register_no_gradient(name: str) -> None:
    """Refuse gradients of an operator that is a gradient of edge weights itself."""

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError("Gradients of edge weights and of a learned epsilon are of first order alone.")

    register_gradient(name, save, backward)
