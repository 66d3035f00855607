"""Blending of the families' probabilities, with shares decided by out-of-fold labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.temperature import fit_temperature, sharpen

# Weight of a summed squared error of 1 against the prior.
EVIDENCE = 2.0
# Weight of the prior, in labels.
PRIOR_COUNTS = 4.0
# Temperature of every family if nothing is held out: families are underconfident.
USUAL_TEMPERATURE = 0.5
_TINY = 1e-12


@dataclass(frozen=True)
class Blend:
    r"""The weighted mean of the families' probabilities.

    .. math:: P = \sum_f w_f \, P_f^{1/T_f}, \qquad \sum_f w_f = 1,

    with :math:`p^{1/T}` as in :func:`~sobgnn.estimator.temperature.sharpen`.

    Args:
        shares: w, [F].
        temperatures: T, [F].
    """

    shares: tuple[float, ...]
    temperatures: tuple[float, ...]

    def __call__(self, parts: Sequence[Tensor | None]) -> Tensor:
        """P [..., C] from every family's probabilities [..., C]; ``None`` for a family that is left out."""
        out: Tensor | None = None
        for part, share, temperature in zip(parts, self.shares, self.temperatures, strict=True):
            if part is not None and share > 0:
                one = share * tempered(part, temperature)
                out = one if out is None else out + one
        if out is None:
            raise ValueError("A blend needs at least one family.")
        return out / out.sum(dim=-1, keepdim=True)


def tempered(part: Tensor, temperature: float) -> Tensor:
    """:math:`p^{1/T}`, rows summing to 1."""
    return part if temperature == 1 else (part.clamp(min=_TINY).log() / temperature).softmax(dim=-1)


def blend_families(parts: Sequence[npt.NDArray[np.float64]], labels: Labels, counts: npt.NDArray[np.float64]) -> Blend:
    r"""The blend that out-of-fold labels and a prior support.

    .. math:: w = \arg\min_{w \in \Delta} \; \kappa \sum_l v_l \Big\| \sum_f w_f P_{f,l}^{1/T_f} - e_{y_l} \Big\|^2
        - \sum_f a_f \log w_f

    over the out-of-fold labels l. With few labels the shares stay near a; with many, the error decides. No share
    becomes exactly 0. Squared errors are used because they are bounded: otherwise a handful of labels that a family
    gets very wrong could decide by themselves. Each family is evaluated at its own best temperature.

    Args:
        parts: Every family's out-of-fold probabilities, [J, C] each; ignored if nothing is held out.
        labels: The labels that were held out.
        counts: a, [F], positive: the prior of each family, in labels.
    """
    if not labels.folds:
        usual = USUAL_TEMPERATURE if len(counts) > 1 else 1.0
        return Blend(tuple((counts / counts.sum()).tolist()), (usual,) * len(counts))
    codes, weight = labels.codes[labels.judged], labels.weight[labels.judged]
    if len(parts) == 1:
        return Blend((1.0,), (1.0,))
    temperatures = [fit_temperature(part, codes, weight) for part in parts]
    at_best = np.stack([sharpen(part, t) for part, t in zip(parts, temperatures, strict=True)])
    return Blend(tuple(shares(at_best, codes, weight, counts).tolist()), tuple(temperatures))


def shares(
    parts: npt.NDArray[np.float64],
    codes: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    counts: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """The w of :func:`blend_families`, [F], for parts [F, J, C]: by Newton's method, since the problem is convex."""
    # The error is quadratic in w: products of the parts give it for all shares.
    products = 2 * EVIDENCE * np.einsum("l,flc,glc->fg", weight, parts, parts)
    own = 2 * EVIDENCE * np.einsum("l,fl->f", weight, parts[:, np.arange(len(codes)), codes])
    w = counts / counts.sum()

    def objective(at: npt.NDArray[np.float64]) -> float:
        return float(at @ products @ at / 2 - own @ at - counts @ np.log(at))

    for _ in range(100):
        gradient = products @ w - own - counts / w
        system = np.block(
            [
                [products + np.diag(counts / np.square(w)), np.ones((len(w), 1))],
                [np.ones((1, len(w))), np.zeros((1, 1))],
            ]
        )
        step = np.linalg.solve(system, np.append(-gradient, 0.0))[:-1]
        # Stay inside the simplex, and do not go uphill.
        falling = step < 0
        size = min(1.0, 0.99 * float((-w[falling] / step[falling]).min(initial=np.inf)))
        before, slope = objective(w), float(gradient @ step)
        while size > 1e-12 and objective(w + size * step) > before + 1e-4 * size * slope:
            size /= 2
        w = w + size * step
        if -slope < 1e-12:
            break
    return np.asarray(w / w.sum())


def blended(blend: Blend, parts: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """A blend of arrays [J, C]."""
    out: npt.NDArray[np.float64] = blend([torch.from_numpy(part) for part in parts]).numpy()
    return out


def blend_error(parts: Sequence[npt.NDArray[np.float64]], blend: Blend, labels: Labels) -> float:
    """The summed squared error of a blend on the labels that were held out."""
    codes, weight = labels.codes[labels.judged], labels.weight[labels.judged]
    errors = np.square(blended(blend, parts) - np.eye(labels.classes)[codes]).sum(axis=1)
    return float(weight @ errors)
