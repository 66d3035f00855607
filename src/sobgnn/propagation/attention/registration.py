r"""Attention over the edges of a fixed graph in one pass: scores, softmax, weighting and sum, for every head at once.

For every head, row i and edge e = (i, j) of weight w,

.. math::
    o_i = \sum_{e = (i, j)} p_e v_j, \qquad m_i = \sum_{e = (i, j)} p_e w_e, \qquad
    p = \mathrm{softmax}_i(s_e) ,

with one of three scores:

.. math::
    \text{additive} &: s = \mathrm{LeakyReLU}(t_i + u_j + w a) \\
    \text{gated} &: s = \mathrm{LeakyReLU}((t_i + u_j) \, \sigma(q_i \cdot v_j)) \\
    \text{scaled dot} &: s = (q_i \cdot k_j + w t_i) / \sqrt{c}

Nothing of the size of the edges is kept: the backward pass computes the scores again from each row's logarithm of
the softmax's sum. It goes over the rows once for what belongs to rows and over the columns once for what belongs to
columns, without atomics, so that the same bits come out every time. Members that are mapped over (vmap) are further
heads, so that one launch serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sobgnn.propagation import dispatch
from sobgnn.propagation.attention.terms import ADDITIVE, GATED, SCALED_DOT, EdgePattern, Gradients, Outputs, Terms

__all__ = ["EdgePattern", "additive", "gated", "scaled_dot"]


def additive(edges: EdgePattern, target: Tensor, source: Tensor, edge: Tensor, value: Tensor) -> Tensor:
    """GAT's attention.

    Args:
        edges: The pattern.
        target: [R, H], the rows' part of the score.
        source: [N, H], the neighbors' part.
        edge: [H], the factor of the edge's weight.
        value: [N, H, c].

    Returns:
        The sums [R, H, c].
    """
    return _attend(edges, ADDITIVE, Terms(None, None, target, source, edge, value))[0]


def gated(edges: EdgePattern, query: Tensor, target: Tensor, source: Tensor, value: Tensor) -> Tensor:
    """SuperGAT's attention (MX), whose keys are its values.

    Args:
        edges: The pattern.
        query: [R, H, c], the rows' own values.
        target: [R, H], the rows' part of the score.
        source: [N, H], the neighbors' part.
        value: [N, H, c].

    Returns:
        The sums [R, H, c].
    """
    return _attend(edges, GATED, Terms(query, None, target, source, None, value))[0]


def scaled_dot(edges: EdgePattern, query: Tensor, key: Tensor, target: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The Transformer's attention.

    Args:
        edges: The pattern.
        query: [R, H, c].
        key: [N, H, c].
        target: [R, H], the factor of the edge's weight in the score.
        value: [N, H, c].

    Returns:
        The sums [R, H, c], and the mean weight of each row's edges under the attention [R, H].
    """
    return _attend(edges, SCALED_DOT, Terms(query, key, target, None, None, value))


def _attend(edges: EdgePattern, kind: int, terms: Terms) -> tuple[Tensor, Tensor]:
    rows, nodes = len(edges.indptr) - 1, len(edges.t_indptr) - 1
    heads = terms.value.shape[-2]
    for name, value in zip(Terms._fields, terms, strict=True):
        if value is None:
            continue
        if value.dtype != terms.value.dtype or value.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"Attention computes in float32 or float64, all terms alike, but `{name}` is {value.dtype} and "
                f"`value` is {terms.value.dtype}. Convert them with .to()."
            )
        lengths = () if name == "edge" else (rows if name in ("query", "target") else nodes,)
        expected = (*lengths, heads, *terms.value.shape[2:]) if name in ("query", "key") else (*lengths, heads)
        if name != "value" and value.shape != torch.Size(expected):
            raise ValueError(f"`{name}` must have shape {list(expected)}, but got {list(value.shape)}.")
    if terms.value.ndim != 3 or len(terms.value) != nodes:
        raise ValueError(f"`value` must have shape [{nodes}, heads, channels], but got {list(terms.value.shape)}.")
    out, moment, _ = torch.ops.sobgnn.attend(*edges, kind, *terms)
    return out, moment


_EDGES = "Tensor indptr, Tensor sources, Tensor weight, Tensor t_indptr, Tensor t_targets, Tensor t_weight"
_TERMS = "Tensor? query, Tensor? key, Tensor target, Tensor? source, Tensor? edge, Tensor value"
_SCHEMA = f"({_EDGES}, int kind, {_TERMS}) -> (Tensor, Tensor, Tensor)"
_BACKWARD_SCHEMA = (
    f"({_EDGES}, int kind, {_TERMS}, Tensor out, Tensor moment, Tensor log_sum, Tensor to_out, Tensor to_moment) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_COUNT = len(EdgePattern._fields)


def _split(arguments: Sequence[Any]) -> tuple[EdgePattern, int, Terms, Sequence[Any]]:
    kind, first = arguments[_COUNT], _COUNT + 1
    after = first + len(Terms._fields)
    return EdgePattern(*arguments[:_COUNT]), kind, Terms(*arguments[first:after]), arguments[after:]


def _contiguous(terms: Terms) -> Terms:
    return Terms(*(None if value is None else value.contiguous() for value in terms))  # type: ignore[arg-type]


def _compute(*arguments: Any) -> tuple[Tensor, ...]:
    edges, kind, terms, _ = _split(arguments)
    found: Outputs = _kernels(terms.value).forward(edges, kind, _contiguous(terms))
    return tuple(found)


def _compute_backward(*arguments: Any) -> tuple[Tensor, ...]:
    edges, kind, terms, rest = _split(arguments)
    *found, to_out, to_moment = (value.contiguous() for value in rest)
    backward = _kernels(terms.value).backward
    gradients: Gradients = backward(edges, kind, _contiguous(terms), Outputs(*found), to_out, to_moment)
    return tuple(terms.value.new_empty(0) if value is None else value for value in gradients)


def _fake(*arguments: Any) -> tuple[Tensor, ...]:
    edges, _, terms, _ = _split(arguments)
    return tuple(Outputs.empty(edges, terms))


def _fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    _, _, terms, _ = _split(arguments)
    return tuple(
        terms.value.new_empty(0) if value is None else torch.empty_like(value, memory_format=torch.contiguous_format)
        for value in terms
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    edges, ctx.kind, terms, _ = _split(inputs)
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*edges, *terms, *output)


def _backward(ctx: Any, to_out: Tensor, to_moment: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    edges, saved = ctx.saved_tensors[:_COUNT], ctx.saved_tensors[_COUNT:]
    gradients = torch.ops.sobgnn.attend_backward(*edges, ctx.kind, *saved, to_out, to_moment)
    terms = saved[: len(Terms._fields)]
    own = (None if term is None else gradient for term, gradient in zip(terms, gradients, strict=True))
    return (*([None] * (_COUNT + 1)), *own)


def _vmap(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int, int, int]]:
    edges, kind, terms, _ = _split(arguments)
    if any(dim is not None for dim in in_dims[:_COUNT]):
        raise ValueError("Attention maps over its terms only, but the edges are batched. Use a loop.")
    size = info.batch_size

    def fold(name: str, value: Tensor | None, dim: int | None) -> Tensor | None:
        """Members as further heads: their dimension goes before the heads' and is joined with it."""
        if value is None:
            return None
        at = 0 if name == "edge" else 1
        if dim is None:
            value = value.unsqueeze(at).expand(*value.shape[:at], size, *value.shape[at:])
        else:
            value = value.movedim(dim, at)
        return value.flatten(at, at + 1)

    folded = (fold(*each) for each in zip(Terms._fields, terms, in_dims[_COUNT + 1 :], strict=True))
    outputs = torch.ops.sobgnn.attend(*edges, kind, *folded)
    return tuple(value.unflatten(1, (size, -1)) for value in outputs), (1, 1, 1)


def _kernels(value: Tensor) -> ModuleType:
    """The module that computes for a tensor's device and type."""
    name = dispatch.backend(value)
    if name == "triton" and value.dtype == torch.float32:
        from sobgnn.propagation.attention import triton

        return triton
    if name == "native":
        from sobgnn.propagation.attention import native

        return native
    from sobgnn.propagation.attention import portable

    return portable


torch.library.custom_op("sobgnn::attend", _compute, mutates_args=(), schema=_SCHEMA)
torch.library.custom_op("sobgnn::attend_backward", _compute_backward, mutates_args=(), schema=_BACKWARD_SCHEMA)
torch.library.register_fake("sobgnn::attend", _fake)
torch.library.register_fake("sobgnn::attend_backward", _fake_backward)
torch.library.register_autograd("sobgnn::attend", _backward, setup_context=_save)
torch.library.register_vmap("sobgnn::attend", _vmap)
