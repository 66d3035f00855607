"""The blend: each family at its best temperature, weighted by shares that out-of-fold labels and a prior support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.labels import Labels

_Array = npt.NDArray[np.float64]

# Weight of the prior, in labels: of 2, 4, 8 and 16 the best mean on the 26 sets of benchmarks.suite_sets, by up to 0.3.
PRIOR_COUNTS = 8.0
# Temperature of every family if nothing is held out: families are underconfident.
USUAL_TEMPERATURE = 0.5
# Number of out-of-fold labels from which a temperature is fitted to the result.
CALIBRATION_LABELS = 50
# A family with a smaller share is dropped, so that it does not slow down predictions of new points.
LEAST_SHARE = 0.02
# Bounds of temperatures.
_SHARPEST, _FLATTEST = 0.05, 5.0
_TINY = 1e-12


@dataclass(frozen=True)
class Blend:
    r"""The weighted mean of the families' probabilities.

    .. math:: P = \sum_f w_f \, P_f^{1/T_f}, \qquad \sum_f w_f = 1,

    with :math:`p^{1/T}` as in :func:`sharpen`.

    Args:
        shares: w, [F].
        temperatures: T, [F].
    """

    shares: tuple[float, ...]
    temperatures: tuple[float, ...]

    def __call__(self, parts: Sequence[Tensor]) -> Tensor:
        """P [..., C] from every family's probabilities [..., C]."""
        rows = zip(parts, self.shares, self.temperatures, strict=True)
        first, *others = (share * sharpen(part, temperature) for part, share, temperature in rows if share > 0)
        for one in others:
            first = first + one
        return first / first.sum(dim=-1, keepdim=True)


def fit_blend(parts: Sequence[_Array], labels: Labels, counts: _Array) -> Blend:
    r"""The blend that out-of-fold labels and a prior support.

    .. math:: w = \arg\min_{w \ge 0} \sum_l v_l \Big\| \sum_f w_f P_{f,l}^{1/T_f} - e_{y_l} \Big\|^2
        + A \, \Big\| w - \frac{a}{A} \Big\|^2, \qquad A = \sum_f a_f

    over the out-of-fold labels l, scaled to the sum 1. With few labels the shares stay near a / A; with many, the error
    decides. Squared errors are bounded: a handful of labels that a family gets very wrong cannot decide by themselves.
    Each family is evaluated at its own best temperature. Shares below 0.02 are set to 0.

    Args:
        parts: Every family's out-of-fold probabilities, [J, C] each; ignored if nothing is held out.
        labels: The labels that were held out.
        counts: a, [F], positive: the prior of each family, in labels.
    """
    codes, weight = labels.codes[labels.judged], labels.weight[labels.judged]
    prior = counts / counts.sum()
    temperatures = np.full(len(prior), USUAL_TEMPERATURE)
    w = prior
    if len(prior) == 1:
        return Blend((1.0,), (1.0,))
    if len(codes):
        temperatures = np.array([fit_temperature(part, codes, weight) for part in parts])
        at_best = np.stack([sharpen(torch.from_numpy(p), t).numpy() for p, t in zip(parts, temperatures, strict=True)])
        w = fit_shares(at_best, codes, weight, counts)
    w = np.where(w >= LEAST_SHARE, w, 0)
    return Blend(tuple((w / w.sum()).tolist()), tuple(temperatures.tolist()))


def fit_shares(parts: _Array, codes: npt.NDArray[np.int64], weight: _Array, counts: _Array) -> _Array:
    """The w of :func:`fit_blend`, [F], for parts [F, J, C]."""
    from scipy.optimize import nnls

    own = parts[:, np.arange(len(codes)), codes]
    products = np.einsum("l,flc,glc->fg", weight, parts, parts) + counts.sum() * np.eye(len(counts))
    root = np.linalg.cholesky(products)
    w, _ = nnls(root.T, np.linalg.solve(root, own @ weight + counts))
    return np.asarray(w / w.sum())


def cross_fit(
    parts: Sequence[_Array], labels: Labels, decide: Callable[[Sequence[_Array], Labels], tuple[Blend, float]]
) -> _Array:
    """Out-of-fold probabilities of the result, [J, C]: those of a fold are blended as the other folds' labels decide.

    Shares and temperatures that were decided on a label would flatter its own prediction.

    Args:
        parts: Every family's out-of-fold probabilities, [J, C] each.
        labels: The labels that were held out.
        decide: From some of the parts' rows, and the labels that these are of, to a blend and its result's temperature.
    """
    fold = labels.fold[labels.judged]
    out = np.zeros((len(fold), labels.classes))
    for one in np.unique(fold):
        rest = fold != one
        others = replace(labels, counted=labels.judged & (labels.fold != one))
        blend, temperature = decide([part[rest] for part in parts], others)
        out[~rest] = sharpen(blend([torch.from_numpy(part[~rest]) for part in parts]), temperature).numpy()
    return out


def result_temperature(parts: Sequence[_Array], blend: Blend, labels: Labels) -> float:
    """The temperature of the blend's result; 1 with fewer than 50 out-of-fold labels."""
    codes = labels.codes[labels.judged]
    if len(codes) < CALIBRATION_LABELS:
        return 1.0
    mixed = blend([torch.from_numpy(part) for part in parts]).numpy()
    return fit_temperature(mixed, codes, labels.weight[labels.judged])


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    r""":math:`p_c^{1/T} / \sum_d p_d^{1/T}`: what dividing the logits by T does; rows [..., C]."""
    if temperature == 1.0:
        return probabilities
    return (probabilities.clamp(min=_TINY).log() / temperature).softmax(dim=-1)


def log_loss(probabilities: npt.NDArray[Any], codes: npt.NDArray[np.int64]) -> _Array:
    """Minus the logarithm of each row's probability of its own class, [L]."""
    own = probabilities[np.arange(len(codes)), codes].astype(np.float64)
    return np.asarray(-np.log(own.clip(min=_TINY)))


def fit_temperature(probabilities: npt.NDArray[Any], codes: npt.NDArray[np.int64], weight: Any = None) -> float:
    r"""The temperature in [0.05, 5] with the least log loss on held-out labels, no sharper than their number supports.

    If all n labels are predicted correctly, the loss is least for probabilities of 1, which n labels do not prove. So
    the temperature is lowered below 1 only while the mean of the largest probabilities is at most (right + 1) / (n +
    2), Laplace's rule of succession. For labels of a single class the temperature is 1.

    The loss is convex in b = 1/T, with the slope :math:`\sum_l w_l \sum_c p_{lc}(b) (\log p_{lc} - \log p_{l y_l})`,
    whose zero is found up to rounding: a coarser solution would jump when probabilities change by rounding, and so
    would every choice that depends on it.
    """
    from scipy.optimize import brentq

    if len(codes) == 0 or (codes == codes[0]).all():
        return 1.0
    logits = np.log(probabilities.astype(np.float64).clip(min=_TINY))
    right = logits.argmax(axis=1) == codes
    logits -= logits.max(axis=1, keepdims=True)
    own = logits[np.arange(len(codes)), codes]
    shares = np.full(len(codes), 1 / len(codes)) if weight is None else weight / weight.sum()
    most = (float(shares @ right) * len(codes) + 1) / (len(codes) + 2)

    def slope(b: float) -> float:
        powered = np.exp(b * logits)
        return float(shares @ ((powered * logits).sum(axis=1) / powered.sum(axis=1) - own))

    def too_sure(b: float) -> float:
        return float(shares @ (1 / np.exp(b * logits).sum(axis=1))) - most

    low, high = 1 / _FLATTEST, 1 / _SHARPEST
    b = high if slope(high) <= 0 else low if slope(low) >= 0 else brentq(slope, low, high, xtol=1e-13)
    if b > 1 and too_sure(b) > 0:
        b = brentq(too_sure, 1, b, xtol=1e-13) if too_sure(1) < 0 else 1.0
    return float(1 / b)
