"""How what several families say becomes one probability, and how that is decided on held-out labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.temperature import fit_temperature, sharpen

_Array = npt.NDArray[np.floating]

MIXING_GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
DIFFUSION_GRID = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
FURTHER_GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_TINY = 1e-12


@dataclass(frozen=True)
class Blend:
    r"""One probability out of what five families say.

    .. math:: P = \sigma S^{1/T_4} + (1 - \sigma) \left(\lambda L^{1/T_5} + (1 - \lambda) \left(\delta D^{1/T_3}
        + (1 - \delta) \left(\beta G^{1/T_1} + (1 - \beta) F^{1/T_2}\right)\right)\right)

    with G what the S-SobGNNs say, F the perceptrons and S the students, all three smoothed over the graph, D the
    diffused labels and L the linear classifier that teaches itself; :math:`p^{1/T}` is
    :func:`~sobgnn.estimator.temperature.sharpen`.

    Args:
        mixing: β.
        diffusion: δ.
        smoothing: Strength with which G, F and S are smoothed.
        students: σ.
        linear: λ.
        heats: T_1 to T_5.
    """

    mixing: float
    diffusion: float
    smoothing: float
    students: float = 0.0
    linear: float = 0.0
    heats: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0)

    @property
    def shares(self) -> tuple[float, float, float, float, float]:
        """Of G, F, D, S and L; they sum to 1."""
        taught = (1 - self.students) * (1 - self.linear)
        networks = taught * (1 - self.diffusion)
        own = networks * self.mixing, networks * (1 - self.mixing), taught * self.diffusion
        return *own, self.students, (1 - self.students) * self.linear

    def __call__(self, parts: Sequence[Tensor | None]) -> Tensor:
        """P [..., C] of G, F, D, S and L, each [..., C]; one without a share may be ``None``."""
        out: Tensor | None = None
        for part, share, heat in zip(parts, self.shares, self.heats, strict=True):
            if share > 0:
                assert part is not None
                one = share * (part if heat == 1 else (part.clamp(min=_TINY).log() / heat).softmax(dim=-1))
                out = one if out is None else out + one
        assert out is not None
        return out

    def of_arrays(self, parts: Sequence[_Array | None]) -> npt.NDArray[np.float32]:
        """The same for arrays."""
        out: npt.NDArray[np.float32] = self([None if p is None else torch.from_numpy(p) for p in parts]).numpy()
        return out


def weigh(
    held: Iterable[tuple[float, _Array | None, _Array | None]],
    diffused: _Array | None,
    codes: npt.NDArray[np.int64],
    weight: _Array,
    mixings: Sequence[float],
    diffusions: Sequence[float],
) -> Blend:
    r"""The blend that held-out labels support.

    Every triple (a, β, δ) of the grids has the posterior

    .. math:: p \propto \exp\left(-2 \sum_l \lVert P_l - e_{y_l} \rVert^2\right),

    all of them being alike at first. Of a the most probable value is taken, of the shares the mean: where labels are
    few it stays near equal shares, and where they are many it is the best triple. Squared errors, which are bounded,
    since a handful of labels that a family gets very wrong would else decide alone. Each family is judged at its own
    best temperature, since smoothing flattens.

    Args:
        held: For each strength a: a, G and F of the held-out labels, [L, C] each, ``None`` where there is none.
        diffused: D of them [L, C], or ``None``.
        codes: Their classes [L].
        weight: What each of them counts [L].
        mixings: Values of β.
        diffusions: Values of δ.
    """
    third, third_heat = _at_best_temperature(diffused, codes, weight)
    best: tuple[float, Blend] | None = None
    for strength, by_graph, by_features in held:
        first, first_heat = _at_best_temperature(by_graph, codes, weight)
        second, second_heat = _at_best_temperature(by_features, codes, weight)
        grid = [Blend(beta, delta, strength) for beta in mixings for delta in diffusions]
        shares = np.array([blend.shares[:3] for blend in grid])
        support = _support(shares, [first, second, third], codes, weight)
        top = support.max()
        posterior = np.exp(support - top)
        evidence = float(top + np.log(posterior.mean()))
        if best is None or evidence > best[0]:
            graph, features, delta = posterior @ shares / posterior.sum()
            beta = graph / (graph + features) if graph + features > 0 else float(np.mean(mixings))
            heats = (first_heat, second_heat, third_heat, 1.0, 1.0)
            best = evidence, Blend(float(beta), float(delta), strength, heats=heats)
    assert best is not None
    return best[1]


def weigh_further(
    blend: Blend,
    family: Literal["students", "linear"],
    taught: _Array,
    said: _Array,
    codes: npt.NDArray[np.int64],
    weight: _Array,
    shares: Sequence[float],
) -> Blend:
    """The blend with one family more: its share is the mean of its posterior, as in :func:`weigh`.

    Args:
        blend: Without it.
        family: Which one: the students, or the linear classifier.
        taught: What the blend says of the held-out labels [L, C].
        said: What the family says of them [L, C].
        codes: Their classes [L].
        weight: What each of them counts [L].
        shares: Values of σ or λ.
    """
    own, heat = _at_best_temperature(said, codes, weight)
    grid = np.array(shares)
    support = _support(np.stack([1 - grid, grid], axis=1), [taught, own], codes, weight)
    posterior = np.exp(support - support.max())
    share = float(posterior @ grid / posterior.sum())
    if family == "students":
        return replace(blend, students=share, heats=(*blend.heats[:3], heat, blend.heats[4]))
    return replace(blend, linear=share, heats=(*blend.heats[:4], heat))


def _at_best_temperature(
    probabilities: _Array | None, codes: npt.NDArray[np.int64], weight: _Array
) -> tuple[_Array | None, float]:
    if probabilities is None:
        return None, 1.0
    heat = fit_temperature(probabilities, codes, weight)
    return sharpen(probabilities, heat), heat


def _support(
    shares: npt.NDArray[np.float64], parts: Sequence[_Array | None], codes: npt.NDArray[np.int64], weight: _Array
) -> npt.NDArray[np.float64]:
    """-2 times the summed squared error of each mixture of the parts, [M] for shares [M, F].

    The error of a mixture is quadratic in its shares: products of the parts say it for all of them.
    """
    weight = weight / weight.mean()
    rows = np.arange(len(codes))
    there = [place for place, part in enumerate(parts) if part is not None]
    kept = [np.asarray(parts[place], dtype=np.float64) for place in there]
    products = np.array([[np.einsum("l,lc,lc->", weight, one, other) for other in kept] for one in kept])
    own = np.array([weight @ part[rows, codes] for part in kept])
    w = shares[:, there]
    support: npt.NDArray[np.float64] = -2 * (np.einsum("mf,fg,mg->m", w, products, w) - 2 * w @ own + weight.sum())
    # A part that is not there has no say: shares given to it are ruled out.
    missing = 1 - w.sum(axis=1)
    return np.where(missing > 1e-9, -np.inf, support)
