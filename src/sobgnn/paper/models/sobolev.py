"""S-SobGNN, with Hadamard powers as in the paper or, for comparison, with matrix powers."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from sobgnn.nn.model import SSobGNN
from sobgnn.paper.models.contract import DEEP, Call, Network
from sobgnn.paper.models.source import Source
from sobgnn.paper.models.space import Choice, Setting, Uniform

ALPHA, EPSILON = Choice((1, 2, 3, 4, 5, 6)), Uniform(0.5, 2.0)


def _build(features: int, classes: int, setting: Setting) -> nn.Module:
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


def _inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
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


def _width(setting: Setting) -> int:
    return int(setting["hidden"]) * (int(setting["layers"]) - 1) * (4 + 3 * int(setting["alpha"]))


SOBOLEV = Network(
    _build,
    _inputs,
    {**DEEP, "alpha": ALPHA, "epsilon": EPSILON, "combine": Choice(("linear", "concat"))},
    _width,
    own_rates=("lr", "weight_decay"),
    headed=True,
)
# Not in the paper: each point's own features also bypass the graph. Its search space is that of S-SobGNN.
SOBOLEV_SELF = replace(
    SOBOLEV, build=lambda f, c, setting: _build(f, c, {**setting, "self_branch": True}), headed=False
)
