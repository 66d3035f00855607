"""Features as the networks and the neighbour search want them: scaled, dense, not too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Scale = Literal["range", "standard", "range-unit", "unit"]

_ROWS_PER_BLOCK = 8192


@dataclass(frozen=True)
class FeatureMap:
    r"""An affine map learned from the training points, kept as arrays.

    .. math:: z = g \, (u((x - m) \odot f \, V) - c)

    with u either the identity or the division of each row by its length, after which Euclidean distances are those
    of angles; rows without a direction are put opposite to c. Dense X is centred and scaled (m, f) and, where it has
    more than ``n_components`` columns, projected on its principal components V. Sparse X with more columns than that
    is never made dense: V are its right singular vectors (no centring), rows get length 1, as is usual for texts. g
    brings the mean variance of the outcome to 1.

    Attributes:
        shift: m [F], or ``None`` for 0.
        factor: f [F], 0 for constant columns, or ``None`` for 1.
        basis: V [F, D], or ``None`` for the identity.
        center: c [D], or ``None`` for 0.
        gain: g.
        unit_rows: Whether u divides rows by their length.
        num_features: F.
    """

    shift: npt.NDArray[np.float64] | None
    factor: npt.NDArray[np.float64] | None
    basis: npt.NDArray[np.float64] | None
    center: npt.NDArray[np.float64] | None
    gain: float
    unit_rows: bool
    num_features: int

    @classmethod
    def fit(cls, X: Any, *, scale: Scale | None, n_components: int | None, seed: int) -> FeatureMap:
        """The map for points X [N, F], dense or scipy sparse.

        Args:
            X: Finite.
            scale: For dense X. ``"range"``: columns are centred and divided by their largest minus smallest entry;
                ``"standard"``: by their standard deviation; ``"range-unit"``: as ``"range"``, then each row by its
                length; ``"unit"``: columns are centred, rows divided by their length; ``None``: nothing.
            n_components: Columns at the most; ``None`` for no limit.
            seed: Of the randomised singular value decomposition, for sparse X.
        """
        width = X.shape[1]
        reduce = n_components is not None and width > n_components and X.shape[0] > 1
        if sp.issparse(X) and reduce:
            assert n_components is not None
            return _fit_sparse(X, min(n_components, X.shape[0] - 1, width - 1), seed)
        if scale is None:
            plain = cls(None, None, None, None, 1.0, False, width)
        else:
            shift, factor, variance = _moments(X, scale)
            plain = cls(shift, factor, None, None, _gain(variance), False, width)
        if reduce and n_components:
            plain = _with_principal_components(plain, X, n_components)
        return _with_unit_rows(plain, X) if scale is not None and scale.endswith("unit") else plain

    @property
    def num_outputs(self) -> int:
        """D."""
        return self.num_features if self.basis is None else int(self.basis.shape[1])

    def __call__(self, X: Any) -> npt.NDArray[np.float32]:
        """X [M, F] to [M, D]."""
        out = np.empty((X.shape[0], self.num_outputs), np.float32)
        for rows, block in _blocks(X, keep_sparse=self.shift is None and self.basis is not None):
            out[rows] = self._apply(block)
        return out

    def _apply(self, block: Any) -> npt.NDArray[np.float64]:
        z = block
        if self.shift is not None:
            z = z - self.shift
        if self.factor is not None:
            z = z * self.factor
        if self.basis is not None and sp.issparse(z):
            z = z @ self.basis
        elif self.basis is not None:  # centred, so single precision loses nothing that the outcome could hold
            z = (z.astype(np.float32) @ self.basis.astype(np.float32)).astype(np.float64)
        if self.unit_rows:
            z = _unit(z, self.center)
        if self.center is not None:
            z = z - self.center
        return np.asarray(z * self.gain)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The map's parts by name, those that are not ``None``."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: np.atleast_1d(part) for name, part in parts.items() if part is not None}

    @classmethod
    def from_arrays(cls, parts: dict[str, npt.NDArray[Any]]) -> FeatureMap:
        """The map that :meth:`arrays` took apart."""
        get = parts.get
        last = (parts["gain"].item(), parts["unit_rows"].item(), parts["num_features"].item())
        return cls(get("shift"), get("factor"), get("basis"), get("center"), *last)


def _blocks(X: Any, *, keep_sparse: bool) -> Iterator[tuple[slice, Any]]:
    for start in range(0, X.shape[0], _ROWS_PER_BLOCK):
        rows = slice(start, min(start + _ROWS_PER_BLOCK, X.shape[0]))
        block = X[rows]
        if sp.issparse(block):
            yield rows, block.astype(np.float64) if keep_sparse else block.toarray().astype(np.float64, copy=False)
        else:
            yield rows, np.asarray(block, dtype=np.float64)


def _moments(X: Any, scale: Scale) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Column means, factors (0 where a column is constant up to rounding), and variances after both."""
    n, width = X.shape
    total = np.zeros(width)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for _, block in _blocks(X, keep_sparse=False):
        total += block.sum(axis=0)
        np.minimum(low, block.min(axis=0), out=low)
        np.maximum(high, block.max(axis=0), out=high)
    mean = total / n
    square = np.zeros(width)
    for _, block in _blocks(X, keep_sparse=False):
        square += np.square(block - mean).sum(axis=0)
    deviation = np.sqrt(square / n)
    live = deviation > 1e-9 * np.abs(mean)
    if scale == "unit":  # one factor for all columns, so that none of them is scaled against the others
        size = np.full(width, np.sqrt(np.square(deviation).mean()) or 1.0)
    else:
        size = deviation if scale == "standard" else high - low
    factor = np.where(live, 1 / np.where(live, size, 1.0), 0.0)
    return mean, factor, np.square(deviation * factor)


def _with_principal_components(plain: FeatureMap, X: Any, n_components: int) -> FeatureMap:
    width = X.shape[1]
    total, product = np.zeros(width), np.zeros((width, width))
    for _, block in _blocks(X, keep_sparse=False):
        z = plain._apply(block)
        total += z.sum(axis=0)
        product += z.T @ z
    mean = total / X.shape[0]
    values, vectors = np.linalg.eigh(product / X.shape[0] - np.outer(mean, mean))
    basis, values = _signed(vectors[:, ::-1][:, :n_components]), values[::-1][:n_components]
    gain = _gain(values.clip(min=0))
    # The plain map's own gain has been applied to the products already.
    return FeatureMap(plain.shift, plain.factor, basis, mean @ basis / plain.gain, gain * plain.gain, False, width)


def _with_unit_rows(plain: FeatureMap, X: Any) -> FeatureMap:
    """The map whose rows have length 1 before they are centred; those of ``plain`` are centred already."""
    n, width = X.shape[0], plain.num_outputs
    # What `plain` takes off after its projection is taken off before it, so that lengths are of centred rows.
    shift = plain.shift if plain.shift is not None else np.zeros(plain.num_features)
    bare = FeatureMap(shift, plain.factor, plain.basis, None, 1.0, True, plain.num_features)
    total, square = np.zeros(width), np.zeros(width)
    for _, block in _blocks(X, keep_sparse=False):
        z = bare._apply(block)
        total += z.sum(axis=0)
        square += np.square(z).sum(axis=0)
    mean = total / n
    return replace(bare, center=mean, gain=_gain((square / n - np.square(mean)).clip(min=0)))


def _fit_sparse(X: Any, rank: int, seed: int) -> FeatureMap:
    from sklearn.utils.extmath import randomized_svd

    _, _, vectors = randomized_svd(X.astype(np.float64), rank, n_iter=4, random_state=seed)
    basis = _signed(vectors.T)
    z = _unit(X @ basis)
    return FeatureMap(None, None, basis, z.mean(axis=0), _gain(z.var(axis=0)), True, X.shape[1])


def _unit(z: npt.NDArray[np.float64], center: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
    """Rows of length 1; one of zeros becomes the direction opposite to ``center``.

    Left at zero it would be nearer to any row than they are to each other, and so a neighbour of all.
    """
    length = np.sqrt(np.square(z).sum(axis=1, keepdims=True))
    out = z / np.where(length > 0, length, 1.0)
    if center is not None:
        size = np.sqrt(np.square(center).sum())
        away = -center / size if size > 0 else np.eye(1, len(center))[0]
        out[length[:, 0] == 0] = away
    return out


def _gain(variance: npt.NDArray[np.float64]) -> float:
    mean = float(variance.mean())
    return 1 / np.sqrt(mean) if mean > 0 else 1.0


def _signed(basis: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Columns whose largest entry is positive: the sign that a decomposition returns is arbitrary."""
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])]
    return np.ascontiguousarray(basis * np.where(largest < 0, -1.0, 1.0))
