"""The table of networks: name -> how to build it, inputs of its forward, what to search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from sobgnn.baselines.attention import AttentionNet, Kind
from sobgnn.baselines.decoupled import DSobGNN, block_orders, sobolev_blocks
from sobgnn.baselines.networks import MLP, SIGN, FilterNet, PaperHead
from sobgnn.baselines.source import Source, chebyshev
from sobgnn.baselines.space import Choice, Setting, Space, Uniform
from sobgnn.nn.model import SSobGNN


@dataclass(frozen=True)
class Call:
    """Arguments of a model's forward."""

    args: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """One row of the table.

    Args:
        build: (features, classes, setting) -> a module for one member, with ``reset_parameters``.
        inputs: (source, setting, rows) -> the inputs of its forward for logits at ``rows`` (``None``: all nodes).
        space: What a random search draws from.
        own_rates: Setting entries in which members of one batch may differ: all others determine shapes or inputs.
        width: Approximate number of floats that a member keeps per node in a step; determines batch sizes.
    """

    build: Callable[[int, int, Setting], nn.Module]
    inputs: Callable[[Source, Setting, Tensor | None], Call]
    space: Space
    width: Callable[[Setting], int]
    own_rates: tuple[str, ...] = ("lr", "weight_decay", "dropout")

    def shape(self, setting: Setting) -> tuple[tuple[str, Any], ...]:
        """What members of one batch must have in common."""
        return tuple(sorted((name, value) for name, value in setting.items() if name not in self.own_rates))


_COMMON: dict[str, Uniform | Choice] = {
    "lr": Uniform(0.005, 0.02),
    "weight_decay": Uniform(1e-4, 1e-3),
    "dropout": Uniform(0.3, 0.7),
}
_HIDDEN = Choice((16, 32, 64))
_DEEP: dict[str, Uniform | Choice] = {**_COMMON, "hidden": _HIDDEN, "layers": Choice((2, 3, 4, 5))}


def _sizes(features: int, classes: int, setting: Setting) -> list[int]:
    return [features, *[int(setting["hidden"])] * (int(setting["layers"]) - 1), classes]


def _headed(model: nn.Module, setting: Setting) -> nn.Module:
    return PaperHead(model, float(setting["dropout"])) if setting.get("head") == "paper" else model


def _at(x: Tensor, rows: Tensor | None) -> Tensor:
    return x if rows is None else x.index_select(0, rows)


# --- S-SobGNN


def _sobolev(features: int, classes: int, setting: Setting) -> nn.Module:
    return SSobGNN(
        features,
        int(setting["hidden"]),
        classes,
        int(setting["layers"]),
        int(setting["alpha"]),
        float(setting["epsilon"]),
        float(setting["dropout"]),
        setting["combine"],  # type: ignore[arg-type]
        bool(setting.get("self_branch", False)),
        last_activation=setting.get("head") == "paper",
    )


def _sobolev_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    if setting.get("powers") == "matrix":
        return _matrix_inputs(source, setting, rows)
    operators = source.sobolev(int(setting["alpha"]), float(setting["epsilon"]))
    known = {"propagated": operators.propagate(source.X)}
    return Call((source.X, operators), known if rows is None else {**known, "rows": operators.rows(rows)})


def _matrix_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    """Matrix powers in place of Hadamard powers."""
    alpha, epsilon = int(setting["alpha"]), float(setting["epsilon"])
    full = source.matrix_powers(alpha, epsilon)
    known = {"propagated": full.propagate(source.X)}
    if rows is None:
        return Call((source.X, full), known)
    last = source.matrix_powers(alpha, epsilon, rows)
    return Call((source.X, full), {**known, "rows": [full] * (int(setting["layers"]) - 1) + [last]})


def _sobolev_width(setting: Setting) -> int:
    return int(setting["hidden"]) * (int(setting["layers"]) - 1) * (4 + 3 * int(setting["alpha"]))


# --- Fixed filters: GCN, Cheby, ClusterGCN


def _degrees(model: str, setting: Setting) -> tuple[int, ...]:
    return {"GCN": (1,), "ClusterGCN": (0, 1)}.get(model) or tuple(range(int(setting["terms"])))


def _filters(model: str, **extra: Uniform | Choice) -> Baseline:
    def build(features: int, classes: int, setting: Setting) -> nn.Module:
        net = FilterNet(_sizes(features, classes, setting), _degrees(model, setting), float(setting["dropout"]))
        return _headed(net, setting)

    def inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
        kind, factor = {"GCN": ("gcn", 1.0), "ClusterGCN": ("cluster", 1.0), "Cheby": ("adjacency", -1.0)}[model]
        degrees = _degrees(model, setting)
        operator, last = (source.operator(kind, at).scaled(factor) for at in (None, rows))  # type: ignore[arg-type]
        terms = chebyshev(operator, source.X, max(degrees))
        return Call((torch.cat([terms[k] for k in degrees], dim=1), operator, last))

    def width(setting: Setting) -> int:
        return int(setting["hidden"]) * (int(setting["layers"]) - 1) * (6 + 2 * len(_degrees(model, setting)))

    return Baseline(build, inputs, {**_DEEP, **extra}, width)


# --- Attention: GAT, SuperGAT, Transformer


def _attention(kind: Kind, *, links: bool = False) -> Baseline:
    def build(features: int, classes: int, setting: Setting) -> nn.Module:
        sizes = _sizes(features, classes, setting)
        return _headed(AttentionNet(kind, sizes, int(setting["heads"]), float(setting["dropout"])), setting)

    def inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
        loops = kind != "Transformer"
        full = source.edges(loops=loops)
        last = full if rows is None else source.edges(rows, loops=loops)
        return Call((source.X, full, last, source.links) if links else (source.X, full, last))

    def width(setting: Setting) -> int:
        heads, layers, hidden = (int(setting[name]) for name in ("heads", "layers", "hidden"))
        edges = 8 * 50  # scores, shares and their gradients of a typical node's edges
        return heads * layers * ((24 if kind == "Transformer" else 14 if links else 12) * hidden + edges)

    return Baseline(build, inputs, {**_DEEP, "heads": Choice((1, 2, 3, 4, 5, 6))}, width)


# --- Models of constant inputs: D-SobGNN, SIGN, SGC, MLP


def _blocks(setting: Setting) -> int:
    return 1 + int(setting["hops"]) * len(block_orders(int(setting["alpha"])))


def _decoupled(features: int, classes: int, setting: Setting) -> nn.Module:
    size = (features, int(setting["hidden"]), classes, _blocks(setting), float(setting["dropout"]))
    drop_input = bool(setting.get("drop_input", False))
    return DSobGNN(*size, norm=str(setting["norm"]), drop_input=drop_input, smooth=float(setting["smooth"]))


def _decoupled_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    alpha = int(setting["alpha"])
    operators = source.sobolev(alpha, float(setting["epsilon"]))
    blocks = sobolev_blocks(operators, source.X, block_orders(alpha), int(setting["hops"]))
    if setting["smooth"] == 0:
        return Call((_at(blocks, rows),))
    return Call((_at(blocks, rows), blocks, source.operator("adjacency", rows)))


def _decoupled_width(setting: Setting) -> int:
    dropped = 1200 if setting.get("drop_input") else 0  # each member's own features
    return (int(setting["hidden"]) * 6 + dropped) * _blocks(setting)


def _sign(features: int, classes: int, setting: Setting) -> nn.Module:
    hidden, layers, hops = (int(setting[name]) for name in ("hidden", "layers", "hops"))
    return SIGN(features, hidden, classes, layers, hops, float(setting["dropout"]))


def _sign_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    hops = source.powers("adjacency", int(setting["hops"]))
    return Call((torch.stack([_at(x, rows) for x in hops], dim=1),))


def _sign_width(setting: Setting) -> int:
    return int(setting["hidden"]) * 5 * (int(setting["hops"]) + int(setting["layers"]))


def _sgc(features: int, classes: int, setting: Setting) -> nn.Module:
    return _headed(MLP([features, classes], float(setting["dropout"])), setting)


def _sgc_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    return Call((_at(source.powers("gcn", int(setting["layers"]))[-1], rows),))


def _mlp(features: int, classes: int, setting: Setting) -> nn.Module:
    return MLP(_sizes(features, classes, setting), float(setting["dropout"]))


def _mlp_inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    return Call((_at(source.X, rows),))


_ALPHA, _EPSILON = Choice((1, 2, 3, 4, 5, 6)), Uniform(0.5, 2.0)
_SOBOLEV = Baseline(
    _sobolev,
    _sobolev_inputs,
    {
        **_DEEP,
        "alpha": _ALPHA,
        "epsilon": _EPSILON,
        "combine": Choice(("linear", "concat")),
    },
    _sobolev_width,
    own_rates=("lr", "weight_decay"),
)

MODELS: dict[str, Baseline] = {
    "S-SobGNN": _SOBOLEV,
    # Not in the paper: each point's own features also bypass the graph. Its search space is that of S-SobGNN.
    "S-SobGNN+self": replace(_SOBOLEV, build=lambda f, c, setting: _sobolev(f, c, {**setting, "self_branch": True})),
    # Not in the paper either: it reads Sobolev orders of the features and has no layers over the graph.
    "D-SobGNN": Baseline(
        _decoupled,
        _decoupled_inputs,
        {
            **_COMMON,
            "hidden": _HIDDEN,
            "alpha": _ALPHA,
            "epsilon": _EPSILON,
            "hops": Choice((1, 2)),
            "norm": Choice(("none", "layer")),
            "smooth": Choice((0.25, 0.5)),
        },
        _decoupled_width,
    ),
    "GCN": _filters("GCN"),
    "SIGN": Baseline(_sign, _sign_inputs, {**_DEEP, "hops": Choice((1, 2, 3))}, _sign_width),
    "SGC": Baseline(_sgc, _sgc_inputs, {**_COMMON, "layers": Choice((2, 3, 4, 5))}, lambda setting: 128),
    "Cheby": _filters("Cheby", terms=Choice((1, 2, 3))),
    "MLP": Baseline(_mlp, _mlp_inputs, _DEEP, lambda setting: int(setting["hidden"]) * 6 * int(setting["layers"])),
    "ClusterGCN": _filters("ClusterGCN"),
    "GAT": _attention("GAT"),
    "SuperGAT": _attention("SuperGAT"),
    "SuperGAT+links": _attention("SuperGAT", links=True),
    "Transformer": _attention("Transformer"),
}
