"""S-SobGNN: features and operators in, logits out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from sobgnn.nn.conv import Combine, SobolevConv
from sobgnn.nn.dropout import dropout as drop
from sobgnn.operators import SobolevRows
from sobgnn.operators.sobolev import check_count


class SSobGNN(BasicGNN):  # type: ignore[misc]
    r"""A Sparse Sobolev Graph Neural Network: ``num_layers`` cascades of filters, one after another.

    .. math:: H^{(1)} = X, \quad H^{(l+1)} = \mathrm{SobolevConv}(\mathrm{dropout}(H^{(l)})), \quad
        \mathrm{logits} = H^{(n+1)}

    Dropout is applied to hidden rows, not to X, so that X's propagation can be computed once. By default the last
    layer's filters have no ReLU: their sum is plain logits, and with α = 1, ε = 1, μ = 1 the model is GCN. In the
    paper's equation they have it, as in every layer: ``last_activation=True``.

    Args:
        in_channels: Number of features; -1: taken from the first input.
        hidden_channels: Size of hidden rows.
        out_channels: Number of classes.
        num_layers: At least 1.
        alpha: Filters per layer, at least 1.
        epsilon: Weight of self-loops, at least 0. Used when operators are built here from edges.
        dropout: Share of hidden entries dropped in training, in [0, 1).
        combine: ``"linear"`` or ``"concat"``, see :class:`~sobgnn.SobolevConv`.
        self_branch: Add the graph-free filter to every layer.
        norm, act, jk: As in PyG's models: normalization of hidden rows after each layer, a function of them after that
            (``None``: nothing, since filters end in ReLU already), and jumping knowledge over all layers, which then
            all give hidden rows. ``norm`` may also be a function from the number of channels to a module. Norms that
            read all rows of a graph need ``batch`` where there are several.
        residual: Add each hidden layer's input to its output, through a linear map where their sizes differ.
        last_activation: ReLU on the filters of the last layer too, as in the paper.
        **options: Others of :class:`~sobgnn.SobolevConv`: ``learn_epsilon``, ``normalize``, ``cached``, ``bias`` …

    Shapes:
        x [N, in_channels] and operators of N nodes, or ``edge_index`` [2, E] and ``edge_weight`` [E]; gives
        [N, out_channels], or [R, out_channels] where ``rows`` are given.

    Examples:
        >>> import torch
        >>> from sobgnn import SobolevOperators, SSobGNN, knn_graph
        >>> x = torch.rand(20, 8)
        >>> operators = SobolevOperators(knn_graph(x, k=3), alpha=3)
        >>> SSobGNN(8, 16, 4, alpha=3)(x, operators).shape
        torch.Size([20, 4])
    """

    keyed_dropout = True
    supports_edge_weight, supports_edge_attr = True, False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        alpha: int = 3,
        epsilon: float = 1.0,
        dropout: float = 0.5,
        combine: Combine = "linear",
        self_branch: bool = False,
        *,
        norm: str | Callable[[int], nn.Module] | nn.Module | None = None,
        act: str | Callable[[Tensor], Tensor] | None = None,
        jk: Literal["last", "cat", "max", "lstm"] | None = None,
        residual: bool = False,
        last_activation: bool = False,
        **options: Any,
    ) -> None:
        num_layers = check_count("num_layers", num_layers, 1)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be in [0, 1), but got {dropout}.")
        if jk not in (None, "last", "cat", "max", "lstm"):
            raise ValueError(f'`jk` must be "last", "cat", "max", "lstm" or None, but got {jk!r}.')
        hidden = num_layers if jk else num_layers - 1  # layers that give hidden rows
        active = num_layers if last_activation else hidden
        if callable(norm) and not isinstance(norm, nn.Module):
            norm = norm(hidden_channels)
        super().__init__(
            in_channels,
            hidden_channels,
            num_layers,
            out_channels,
            dropout=dropout,
            act=act,
            norm=norm,
            jk=jk,
            activations=iter(i < active for i in range(num_layers)),
            alpha=alpha,
            epsilon=epsilon,
            combine=combine,
            self_branch=self_branch,
            **options,
        )
        self.alpha, self.epsilon = alpha, self.layers[0].epsilon
        # A norm of one's own may take less than PyG's.
        names = [*inspect.signature(self.norms[0].forward).parameters]
        self.supports_norm_batch = names[1:2] == ["batch"] and len(names) > 2
        sizes = [in_channels, *[hidden_channels] * hidden]
        self.skips = nn.ModuleList(skip(*sizes[i : i + 2]) for i in range(hidden)) if residual else None

    def init_conv(self, in_channels: int, out_channels: int, **options: Any) -> SobolevConv:
        """One layer, as PyG's models ask for it."""
        return SobolevConv(in_channels, out_channels, activation=next(options.pop("activations")), **options)

    @property
    def layers(self) -> list[SobolevConv]:
        """The layers, first to last."""
        return cast("list[SobolevConv]", list(self.convs))

    def reset_parameters(self) -> None:
        """Draw new weights in every layer."""
        super().reset_parameters()
        for module in self.skips or ():
            if isinstance(module, nn.Linear):
                module.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        propagated: Tensor | None = None,
        rows: SobolevRows | Sequence[SobolevRows] | None = None,
        dropout_key: Tensor | None = None,
    ) -> Tensor:
        """Logits of every node, or of some.

        Args:
            x: Features [N, F], or B signals [B, N, F] of one graph.
            edge_index: Operators of the graph with this model's α, or what :class:`~sobgnn.SobolevConv` takes for them.
            edge_weight: Weights of ``edge_index``.
            batch: int64 [N], the graph of each node, for a norm by graph; as in PyG's models.
            batch_size: Number of graphs, where known.
            propagated: ``operators.propagate(x)``, computed once and used at every call; at the first layer's rows
                where ``rows`` restrict it.
            rows: ``operators.rows(index)``: the last layer is computed at those nodes alone. Or
                ``operators.receptive_field(index, num_layers)``: every layer where the next one reads it, x being
                the features at the first entry's ``columns``.
            dropout_key: Integer of a training step from which :func:`sobgnn.nn.dropout.dropout` draws, whatever part of
                the graph is computed where; torch's own generator if left out.
        """
        first = self.layers[0]
        at = [edge_index] * len(self.convs)
        traced = isinstance(edge_index, torch.fx.Proxy)
        if traced:  # by to_hetero, whose layers get edges of their own
            batch, batch_size, propagated, rows, dropout_key = None, None, None, None, None
        elif first.log_epsilon is None:  # else each layer has operators of its own
            at = [first.operators(edge_index, edge_weight, x)] * len(self.convs)
            edge_weight = None
        if isinstance(rows, SobolevRows):
            at[-1] = rows
        elif rows is not None:
            at = list(rows)
            if len(at) != len(self.convs):
                raise ValueError(f"`rows` must have one entry per layer, {len(self.convs)}, but got {len(at)}.")
        if rows is not None and self.jk_mode is not None:
            raise ValueError("Jumping knowledge reads every layer at every row. Leave `rows` out.")
        if rows is not None and not isinstance(rows, SobolevRows) and any(map(mixes_rows, self.norms)):
            raise ValueError("The norm reads all rows of a layer, and some are not computed. Leave `rows` out.")
        h, seen = x, []
        for i, (layer, where) in enumerate(zip(self.layers, at, strict=True)):
            if i > 0 and traced:
                h = self.dropout(h)  # a module knows whether it trains, which a traced function does not
            elif i > 0:
                nodes = getattr(at[i - 1], "nodes", None)
                h = drop(h, self.dropout.p, self.training, dropout_key, nodes, i)
            before = h
            h = layer(h, where, edge_weight, propagated=propagated if i == 0 else None)
            if i < len(self.convs) - 1 or self.jk_mode is not None:
                if self.skips is not None:
                    own = before[..., where.own, :] if isinstance(where, SobolevRows) else before
                    h = h + self.skips[i](own)
                h = self._normalized(self.norms[i], h, batch, batch_size)
                h = h if self.act is None else self.act(h)
                seen.append(h)
        if self.jk_mode in ("cat", "max"):
            h = self.jk(seen)
        elif self.jk_mode == "lstm":  # which knows no signals
            h = self.jk(seen if traced or h.ndim == 2 else [part.flatten(0, 1) for part in seen]).view_as(h)
        return h if self.jk_mode is None else self.lin(h)

    def _normalized(self, norm: nn.Module, h: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        """Hidden rows normalized: several signals of a graph each by itself, or by batch norm all together."""
        result: Tensor
        if isinstance(h, torch.fx.Proxy) or h.ndim == 2:
            result = norm(h, batch, batch_size) if self.supports_norm_batch else norm(h)
        elif self.supports_norm_batch:
            result = torch.stack([norm(signal, batch, batch_size) for signal in h])
        else:
            result = norm(h.flatten(0, 1)).view_as(h)
        return result

    def inference_per_layer(self, *_: Any) -> Tensor:
        """Refused: what PyG's ``inference`` calls reads no edge weights."""
        raise NotImplementedError(
            "PyG's layer-wise inference reads no edge weights. Call the model with operators of the whole graph, or "
            "with their receptive_field."
        )

    @torch.no_grad()
    def filter_weights(self) -> Tensor:
        """How much each filter counts in each layer: [num_layers, branches], rows summing to 1.

        See :meth:`sobgnn.SobolevConv.filter_weights`.
        """
        return torch.stack([layer.filter_weights() for layer in self.layers])


def mixes_rows(norm: nn.Module) -> bool:
    """Whether a norm of PyG reads other rows too: all but batch norm in evaluation and those of single nodes do."""
    kind = type(norm).__name__
    if kind == "BatchNorm":
        return norm.training
    by_node = kind == "LayerNorm" and getattr(norm, "mode", "node") == "node"
    return type(norm).__module__.startswith("torch_geometric") and not by_node and kind != "MessageNorm"


def skip(channels: int, out_channels: int) -> nn.Module:
    """A way past a layer: nothing, or a linear map where the sizes differ."""
    if channels == out_channels:
        return nn.Identity()
    return nn.LazyLinear(out_channels, bias=False) if channels == -1 else nn.Linear(channels, out_channels, bias=False)
