"""The feature map: columns scaled and projected, for networks and the neighbor search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn._system.process import eigen
from sobgnn.estimator.state import shaped

_Array = npt.NDArray[np.float64]

Scale = Literal["range", "standard", "range-unit", "unit", "rank"]

_ROWS_PER_BLOCK = 8192
# Number of knots of a column's distribution that the scale "rank" keeps.
_KNOTS = 129
# Rows and columns up to which an exact decomposition of their products is fast.
_EXACT_ROWS, _EXACT_COLUMNS = 4000, 2048
# Scaled values are clipped at this: a point so far away has no meaningful neighbors, and squares stay finite.
FARTHEST = 1e6


@dataclass(frozen=True)
class FeatureMap:
    r"""A map of columns learned from the training points, kept as arrays.

    .. math:: z = g \, (u((r(x) - m) \odot f \, V) - c)

    with r either the identity or the normal score of each value's rank in its column, and u either the identity or the
    division of each row by its length, after which Euclidean distances depend only on angles; rows of zeros are mapped
    opposite to c. Dense X is centered and scaled (m, f) and, if it has more than ``n_components`` columns, projected on
    its principal components V. Sparse X with more columns than that is never made dense: V are its right singular
    vectors (no centering), and rows get length 1, as is usual for texts. g scales the mean variance of the result to 1.

    Attributes:
        shift, factor, basis, center, gain: m, f (0 for constant columns), V, c and g; ``None`` changes nothing.
        unit_rows: Whether u divides rows by their length.
        knots, scores: Values of each column, ascending, and their normal scores; ``None`` if r is the identity.
    """

    shift: _Array | None = field(metadata=shaped("features", most=np.inf))
    factor: _Array | None = field(metadata=shaped("features", most=np.inf))
    basis: _Array | None = field(metadata=shaped("features", "outputs", most=np.inf))
    center: _Array | None = field(metadata=shaped("outputs", most=np.inf))
    gain: float
    unit_rows: bool
    num_features: int
    knots: _Array | None = field(default=None, metadata=shaped("knots", "features", most=np.inf))
    scores: _Array | None = field(default=None, metadata=shaped("knots", "features", most=np.inf))

    @classmethod
    def fit(cls, X: Any, *, scale: Scale | None, n_components: int | None, seed: int) -> FeatureMap:
        """Fit the map to points X [N, F], dense or scipy sparse.

        Args:
            X: Finite.
            scale: For dense X. ``"range"``: columns are centered and divided by their largest minus smallest entry;
                ``"standard"``: by their standard deviation; ``"range-unit"``: as ``"range"``, then each row by its
                length; ``"unit"``: columns are centered, rows divided by their length; ``"rank"``: the normal scores
                of ranks, for heavy tails; ``None``: no scaling.
            n_components: Maximum number of columns of the result; ``None`` for no limit.
            seed: Seed of the random parts of a decomposition.
        """
        width = X.shape[1]
        reduce = n_components is not None and width > n_components and X.shape[0] > 1
        if sp.issparse(X) and reduce:
            assert n_components is not None
            return _fit_sparse(X, min(n_components, X.shape[0] - 1, width - 1), seed)
        if scale is None:
            plain = cls(None, None, None, None, 1.0, False, width)
        else:
            knots, scores = _ranks(X, seed) if scale == "rank" else (None, None)
            start = cls(None, None, None, None, 1.0, False, width, knots, scores)
            shift, factor, variance = _moments(X, scale, start)
            plain = replace(start, shift=shift, factor=factor, gain=_gain(variance))
        if reduce and n_components:
            plain = _with_principal_components(plain, X, n_components, seed)
        return _with_unit_rows(plain, X) if scale is not None and scale.endswith("unit") else plain

    @property
    def num_outputs(self) -> int:
        """Number of columns D of the result."""
        return self.num_features if self.basis is None else int(self.basis.shape[1])

    def __call__(self, X: Any) -> npt.NDArray[np.float32]:
        """Map X [M, F] to [M, D]."""
        out = np.empty((X.shape[0], self.num_outputs), np.float32)
        for rows, block in _blocks(X, keep_sparse=self.shift is None and self.basis is not None):
            with np.errstate(over="ignore", invalid="ignore"):
                z = self._apply(block)
            out[rows] = np.nan_to_num(z, nan=0.0).clip(-FARTHEST, FARTHEST)
        return out

    def _ranked(self, block: Any) -> Any:
        if self.knots is None or self.scores is None:
            return block
        columns = zip(block.T, self.knots.T, self.scores.T, strict=True)
        return np.stack([np.interp(values, knots, scores) for values, knots, scores in columns], axis=1)

    def _apply(self, block: Any) -> _Array:
        z = self._ranked(block)
        if self.shift is not None:
            z = z - self.shift
        if self.factor is not None:
            z = z * self.factor
        if self.basis is not None and sp.issparse(z):
            z = z @ self.basis
        elif self.basis is not None:  # centered, so single precision loses nothing that the result could hold
            bounded = z.clip(-FARTHEST, FARTHEST).astype(np.float32)
            z = (bounded @ self.basis.astype(np.float32)).astype(np.float64)
        if self.unit_rows:
            z = _unit(z, self.center)
        if self.center is not None:
            z = z - self.center
        return np.asarray(z * self.gain)

    def check(self, sizes: Mapping[str, int], points: Any) -> None:
        """Raise ValueError if the parts contradict each other or the number of features."""
        whole = self.num_features == sizes["features"] >= 1 and (self.knots is None) == (self.scores is None)
        if not whole or (self.center is not None and len(self.center) != self.num_outputs):
            raise ValueError("the parts of its feature map contradict each other")


def _blocks(X: Any, *, keep_sparse: bool) -> Iterator[tuple[slice, Any]]:
    for start in range(0, X.shape[0], _ROWS_PER_BLOCK):
        rows = slice(start, min(start + _ROWS_PER_BLOCK, X.shape[0]))
        block = X[rows]
        if sp.issparse(block):
            yield rows, block.astype(np.float64) if keep_sparse else block.toarray().astype(np.float64, copy=False)
        else:
            yield rows, np.asarray(block, dtype=np.float64)


def _ranks(X: Any, seed: int) -> tuple[_Array, _Array]:
    """Some values of each column and the normal scores of their mean ranks, [K, F] each, from a sample of the rows."""
    from scipy.stats import norm

    count, most = X.shape[0], 20_000
    picked = slice(None) if count <= most else np.sort(np.random.default_rng(seed).permutation(count)[:most])
    sample = X[picked].toarray() if sp.issparse(X) else np.asarray(X[picked], dtype=np.float64)
    columns = []
    for column in sample.T:
        values, counts = np.unique(column, return_counts=True)
        middle = (np.cumsum(counts) - counts / 2) / len(column)
        if len(values) > _KNOTS:
            kept = np.unique(np.searchsorted(middle, np.linspace(0, 1, _KNOTS)).clip(0, len(values) - 1))
            values, middle = values[kept], middle[kept]
        columns.append((values, norm.ppf(middle)))
    longest = max(len(values) for values, _ in columns)
    knots, scores = (
        np.stack([np.pad(pair[part], (0, longest - len(pair[part])), mode="edge") for pair in columns], axis=1)
        for part in (0, 1)
    )
    return knots, scores


def _moments(X: Any, scale: Scale, start: FeatureMap) -> tuple[_Array, _Array, _Array]:
    """Column means, factors (0 for a column that is constant up to rounding), and variances after both."""
    n, width = X.shape
    low, high, total = np.full(width, np.inf), np.full(width, -np.inf), np.zeros(width)
    for _, block in _blocks(X, keep_sparse=False):
        ranked = start._ranked(block)
        total += ranked.sum(axis=0)
        np.minimum(low, ranked.min(axis=0), out=low)
        np.maximum(high, ranked.max(axis=0), out=high)
    mean = (total / n).clip(low, high)
    # In units of each column's range, so that the squares of very small or large values are not lost.
    extent = high - low
    unit = np.where((extent > 0) & np.isfinite(extent), extent, 1.0)
    square = np.zeros(width)
    for _, block in _blocks(X, keep_sparse=False):
        square += np.square((start._ranked(block) - mean) / unit).sum(axis=0)
    deviation = np.sqrt(square / n)
    # What only rounding leaves of a constant column is not information.
    rounding = 8 * np.finfo(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64).eps
    live = (deviation > 0) & (extent > rounding * np.maximum(np.abs(low), np.abs(high)))
    if scale == "unit":  # one factor for all columns, so that none of them is scaled against the others
        largest = unit[live].max(initial=0.0) or 1.0
        size = np.full(width, largest * np.sqrt(np.square(deviation * (unit / largest)).mean()) or 1.0)
    elif scale == "rank":
        size = np.ones(width)
    else:
        size = deviation * unit if scale == "standard" else unit
    with np.errstate(over="ignore"):
        factor = np.where(live, 1 / np.where(live, size, 1.0), 0.0)
    factor = np.where(np.isfinite(factor), factor, 0.0)
    return mean, factor, np.square(deviation * unit * factor)


def _with_principal_components(plain: FeatureMap, X: Any, n_components: int, seed: int) -> FeatureMap:
    count, width = X.shape
    if width > _EXACT_COLUMNS or count < width:
        mean, values, basis = _components_of_rows(plain, X, n_components, seed)
    else:
        total, product = np.zeros(width), np.zeros((width, width))
        for _, block in _blocks(X, keep_sparse=False):
            z = plain._apply(block)
            total += z.sum(axis=0)
            product += z.T @ z
        mean = total / count
        values, vectors = eigen(product / count - np.outer(mean, mean))
        basis, values = _signed(vectors[:, ::-1][:, :n_components]), values[::-1][:n_components]
    gain = _gain(values.clip(min=0))
    # The plain map's own gain has been applied to the products already.
    return replace(plain, basis=basis, center=mean @ basis / plain.gain, gain=gain * plain.gain)


def _components_of_rows(plain: FeatureMap, X: Any, n_components: int, seed: int) -> tuple[_Array, _Array, _Array]:
    """Mean, variances and principal components from the products of rows, at most a few thousand of them."""
    count = X.shape[0]
    picked = np.arange(count)
    if count > _EXACT_ROWS:
        picked = np.sort(np.random.default_rng(seed).permutation(count)[:_EXACT_ROWS])
    z = np.concatenate([plain._apply(block) for _, block in _blocks(X[picked], keep_sparse=False)])
    mean = z.mean(axis=0)
    z -= mean
    values, vectors = eigen(z @ z.T)
    order = np.argsort(values)[::-1][: min(n_components, len(z) - 1)]
    values, vectors = values[order], vectors[:, order]
    kept = values > 1e-12 * max(values.max(initial=0.0), np.finfo(float).tiny)
    kept[0] = True
    values, vectors = values[kept], vectors[:, kept]
    basis = z.T @ vectors / np.sqrt(values.clip(min=np.finfo(float).tiny))
    return mean, values / len(z), _signed(basis)


def _with_unit_rows(plain: FeatureMap, X: Any) -> FeatureMap:
    """The map that scales the rows of ``plain``, which are centered already, to length 1, and centers them again."""
    n, width = X.shape[0], plain.num_outputs
    # What `plain` subtracts after its projection is subtracted before it, so that lengths are those of centered rows.
    shift = plain.shift if plain.shift is not None else np.zeros(plain.num_features)
    bare = replace(plain, shift=shift, center=None, gain=1.0, unit_rows=True)
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


def _unit(z: _Array, center: _Array | None = None) -> _Array:
    """Rows scaled to length 1; a row of zeros becomes the direction opposite to ``center``.

    At zero it would be closer to any row than rows are to each other, and so a neighbor of all of them.
    """
    largest = np.abs(z).max(axis=1, keepdims=True)
    scaled = z / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
    out = scaled / np.where(length > 0, length, 1.0)
    if center is not None:
        size = np.sqrt(np.square(center).sum())
        away = -center / size if size > 0 else np.eye(1, len(center))[0]
        out[length[:, 0] == 0] = away
    return out


def _gain(variance: _Array) -> float:
    mean = float(variance.mean())
    return 1 / np.sqrt(mean) if mean > 0 else 1.0


def _signed(basis: _Array) -> _Array:
    """Columns whose largest entry is positive: the sign that a decomposition returns is arbitrary."""
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])]
    return np.ascontiguousarray(basis * np.where(largest < 0, -1.0, 1.0))
