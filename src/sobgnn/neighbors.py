r"""The k nearest neighbours of points: exact in blocks on CPU and CUDA, or approximate by HNSW.

Exact means: ordered by the float64 distance of the rows as given, then by index. Matrix products cannot give
that by themselves, since :math:`|x|^2 + |y|^2 - 2 x \cdot y` cancels. So products in float32 propose a few more
than k candidates, the candidates' distances are recomputed from differences in float64, and a rounding-error
bound on the products proves that no point left out could be closer. Rows it cannot prove (ties, clusters
far smaller than the spread of the data) are done again in float64, and every point within the bound is looked at.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

Metric = Literal["euclidean", "cosine"]
Method = Literal["auto", "exact", "hnsw"]
Progress = Callable[[int, int], None]

# Up to this many multiplications (points × queries × features) a CPU searches exactly under method="auto":
# a few minutes on two cores. MNIST's 70 000 × 784 costs 3.8e12.
AUTO_EXACT_COST = 2e13

_BLOCK_BYTES = 2**29  # of products held at once: the block of the O(block × N) memory
_PIECE_BYTES = 2**25  # of float64 rows held at once when blocks are converted
_DIFFERENCE_BYTES = 2**21  # of float64 differences held at once: stays in cache
_LARGEST = 1e37  # above it float32 distances overflow
_GROUP = 16


class Neighbors(NamedTuple):
    """The k nearest points of each row, nearest first; equal distances by smaller index.

    Attributes:
        indices: [M, k] int64, rows of X.
        distances: [M, k] float32, in the units of X (euclidean) or 1 - cos (cosine).
        recall: Share of the true neighbours found, measured on a sample; None for an exact search.
    """

    indices: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float32]
    recall: float | None


def nearest(
    X: Any,
    k: int,
    *,
    queries: Any = None,
    metric: Metric = "euclidean",
    method: Method = "auto",
    recall: float = 0.95,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Neighbors:
    """The k nearest rows of X: of each row of X without itself, or of each row of ``queries``.

    "Itself" is the row, not the place: a duplicate of a point is its neighbour, at distance 0. X is only read;
    a memory map is read in blocks, and the working copy is float32.

    Args:
        X: [N, F] numpy array or memory map, torch tensor, DataFrame or scipy sparse matrix; any real dtype.
        k: Neighbours per row, 1 <= k < N (k <= N with ``queries``).
        queries: [M, F], of any of these kinds; sparse exactly if X is.
        metric: "euclidean", or "cosine" for 1 - cos. A row of zeros has cosine distance 0 to other rows of
            zeros and 1 to all other rows.
        method: "exact"; "hnsw" (faiss, dense X, CPU); "auto" is exact on CUDA, for sparse X and up to
            ``AUTO_EXACT_COST``, and HNSW past it where faiss is installed.
        recall: What HNSW must reach on 1000 sampled rows before it is used; it warns where it cannot. Its
            distances are exact, its order too; only the choice of neighbours is approximate.
        device: Where to compute; default: where X is. Sparse X is searched on the CPU.
        seed: Draws HNSW's sample and levels. Its build inserts points in parallel, so two runs may differ in
            a few neighbours; after ``faiss.omp_set_num_threads(1)`` they do not. Exact search draws nothing.
        progress: Called with (rows done, rows in all).
    """
    if metric not in get_args(Metric):
        raise ValueError(f"`metric` must be 'euclidean' or 'cosine', but got {metric!r}.")
    if method not in get_args(Method):
        raise ValueError(f"`method` must be 'auto', 'exact' or 'hnsw', but got {method!r}.")
    if not 0 < recall <= 1:
        raise ValueError(f"`recall` must be in (0, 1], but got {recall!r}.")
    points = check_points(X)
    asked = None if queries is None else check_points(queries, name="queries")
    _check_k(k, points.shape[0], without_itself=asked is None)
    if asked is not None:
        _check_pair(points, asked, device)

    if device is not None:
        place = torch.device(device)
    else:  # numpy arrays have a .device too, a string
        place = points.device if isinstance(points, Tensor) else torch.device("cpu")
    base: _Dense | _Sparse
    query: _Dense | _Sparse
    if sp.issparse(points):
        if method == "hnsw":
            raise ValueError(
                "`method='hnsw'` needs dense X, but got a sparse matrix. Reduce it first (TruncatedSVD) "
                "or use method='exact'."
            )
        base = _Sparse(points, metric)
        query = base if asked is None else _Sparse(asked, metric)
    else:
        rows = (points if asked is None else asked).shape[0]
        if method == "hnsw" and place.type != "cpu":
            raise ValueError(
                f"`method='hnsw'` runs on the CPU, but the points are on {place}. Use method='exact', or device='cpu'."
            )
        if method == "auto":
            large = float(points.shape[0]) * rows * points.shape[1] > AUTO_EXACT_COST
            if large and place.type == "cpu" and importlib.util.find_spec("faiss") is not None:
                method = "hnsw"
        base, query = _dense_pair(points, asked, metric, place)
    if method == "hnsw":
        return _hnsw(base, query, k, recall, seed, progress)  # type: ignore[arg-type]
    indices, distances = _exact(base, query, k, np.arange(query.n), progress)
    return Neighbors(indices, _as_distances(distances, base), None)


# ---------------------------------------------------------------------------------------------- input


def check_points(X: Any, name: str = "X") -> Any:
    """X as a 2-D numpy array, torch tensor or CSR matrix of finite real numbers; copies only what it must.

    Raises:
        TypeError: not numeric, or not something with rows and columns.
        ValueError: empty, not 2-D, or with NaN or infinite rows.
    """
    if isinstance(X, Tensor):
        if X.layout != torch.strided:
            raise TypeError(f"`{name}` must be a dense tensor or a scipy sparse matrix, but got {X.layout}.")
        X = X.detach()
        real = not X.is_complex()
    elif sp.issparse(X):
        real = X.dtype.kind in "fiub"
        X = X.tocsr()
    else:
        if hasattr(X, "columns") and hasattr(X, "to_numpy"):
            X = _frame_values(X, name)
        # asanyarray would keep matrix subclasses; asarray keeps a memory map's buffer unread.
        X = np.asarray(X)
        real = X.dtype.kind in "fiub"
    if not real:
        raise TypeError(f"`{name}` must be numeric, but got dtype {X.dtype}. Encode it as numbers first.")
    if len(X.shape) != 2:
        raise ValueError(
            f"`{name}` must have two dimensions (rows, features), but got shape {tuple(X.shape)}."
            + (" Reshape it with X.reshape(-1, 1)." if len(X.shape) == 1 else "")
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"`{name}` is empty: its shape is {tuple(X.shape)}. Give at least one row and feature.")
    _check_finite(X, name)
    return X


def _frame_values(frame: Any, name: str) -> npt.NDArray[Any]:
    values = frame.to_numpy()
    if values.dtype.kind in "fiub":
        return np.asarray(values)
    try:  # columns of mixed or nullable dtypes arrive as objects
        return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError) as error:
        text = [str(c) for c in frame.columns if not _is_numeric(frame[c])]
        raise TypeError(
            f"`{name}` must be numeric, but column {', '.join(map(repr, text[:3]))} is not. Encode or drop it."
        ) from error


def _is_numeric(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "fiub"


def _check_finite(X: Any, name: str) -> None:
    if sp.issparse(X):
        bad = np.flatnonzero(~np.isfinite(X.data)) if X.dtype.kind == "f" else np.empty(0, np.int64)
        rows = np.unique(np.searchsorted(X.indptr, bad, side="right") - 1)
        nan = bool(np.isnan(X.data[bad]).any())
        largest = float(np.abs(X.data[np.isfinite(X.data)]).max(initial=0.0)) if X.nnz else 0.0
    else:
        found: list[npt.NDArray[np.int64]] = []
        nan, largest = False, 0.0
        for start, block in _blocks(X):
            peak = float(torch.nan_to_num(block, nan=0.0, posinf=0.0, neginf=0.0).abs().amax())
            largest = max(largest, peak)
            sick = ~torch.isfinite(block).all(1)
            if bool(sick.any()):
                nan = nan or bool(torch.isnan(block).any())
                found.append(start + sick.nonzero().flatten().cpu().numpy())
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
    if len(rows):
        what, way = ("NaN", "Impute or drop them") if nan else ("infinite values", "Replace or drop them")
        raise ValueError(
            f"{name} has {len(rows)} row{'s' * (len(rows) > 1)} with {what} (first: row {rows[0]}). "
            f"{way}: neighbours are undefined there."
        )
    if largest > _LARGEST:
        raise ValueError(
            f"{name} has values up to {largest:.2g}: their distances overflow float32. Rescale {name}, for "
            "example to unit variance."
        )


def _check_k(k: int, n: int, *, without_itself: bool) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"`k` must be an integer, but got {k!r}.")
    if k < 1:
        raise ValueError(f"`k` must be at least 1, but got k={k}.")
    most = n - 1 if without_itself else n
    if k > most:
        rule = "smaller than" if without_itself else "at most"
        way = f"Pass k={most} or fewer." if most else "Give at least two points."
        raise ValueError(f"`k` must be {rule} the number of points, but got k={k} for {n} points. {way}")


def _check_pair(points: Any, asked: Any, device: torch.device | str | None) -> None:
    if points.shape[1] != asked.shape[1]:
        raise ValueError(
            f"`queries` must have X's {points.shape[1]} features, but got {asked.shape[1]}. Give both the same columns."
        )
    if sp.issparse(points) != sp.issparse(asked):
        raise ValueError("`X` and `queries` must be both sparse or both dense. Convert one of them.")
    places = {t.device for t in (points, asked) if isinstance(t, Tensor)}
    if len(places) > 1 and device is None:
        raise ValueError(
            f"`X` is on {points.device} but `queries` on {asked.device}. Move one, or say where with `device`."
        )


def _blocks(X: npt.NDArray[Any] | Tensor) -> Iterator[tuple[int, Tensor]]:
    """(first row, float64 block) pieces of X on X's own device."""
    step = max(1, _PIECE_BYTES // (8 * X.shape[1]))
    for start in range(0, X.shape[0], step):
        yield start, _to_float64(X[start : start + step])


def _to_float64(block: npt.NDArray[Any] | Tensor) -> Tensor:
    if isinstance(block, Tensor):
        return block.to(torch.float64, copy=True)
    # A copy: torch must not see a read-only buffer, and the caller's must not be written.
    return torch.from_numpy(np.array(block, dtype=np.float64))


# --------------------------------------------------------------------------------------------- spaces


class _Dense:
    """Rows as they are compared: scaled by a power of two to at most 1; of unit length under cosine.

    Distances do not change when a point is subtracted from all rows, so products see rows less their mean:
    an offset common to all points costs no digits.
    """

    levels = (torch.float32, torch.float64)

    def __init__(
        self, X: npt.NDArray[Any] | Tensor, cosine: bool, scale: float, mean: Tensor, device: torch.device
    ) -> None:
        # On CUDA, rows are gathered there; a numpy array stays where it is on the CPU (it may be a memory map).
        if isinstance(X, Tensor):
            self.source: npt.NDArray[Any] | Tensor = X.to(device)
        else:
            self.source = X if device.type == "cpu" else torch.from_numpy(np.array(X)).to(device)
        self.cosine, self.scale, self.mean, self.device = cosine, scale, mean.to(device), device
        self.n = X.shape[0]
        self.terms = X.shape[1] + cosine
        self.low = torch.empty((self.n, self.terms), dtype=torch.float32, device=device)
        self.low_sq = torch.empty(self.n, dtype=torch.float64, device=device)
        for start, block in _blocks(self.source):
            end = start + len(block)
            self.low[start:end] = self._compared(block).sub_(self.mean)
            self.low_sq[start:end] = self.low[start:end].double().square_().sum(1)
        self.reach = float(self.low_sq.amax().sqrt())

    def _compared(self, block: Tensor) -> Tensor:
        block = block.mul_(self.scale)
        return _unit_rows(block) if self.cosine else block

    def rows(self, at: Tensor) -> Tensor:
        """Rows ``at`` [b] in float64, not centred: [b, terms]."""
        if isinstance(self.source, Tensor):
            return self._compared(_to_float64(self.source[at]))
        return self._compared(torch.from_numpy(np.asarray(self.source[at.numpy()], dtype=np.float64)))

    def half_distances(self, query: _Dense, at: Tensor, level: torch.dtype) -> tuple[Tensor, Tensor]:
        """|y|² - 2 x·y of query rows x ``at`` against all rows y, [b, n padded to groups], and |x|² [b]."""
        width = -(-self.n // _GROUP) * _GROUP
        out = torch.empty((len(at), width), dtype=level, device=self.device)
        out[:, self.n :] = torch.inf
        if level == torch.float32:
            x = query.low[at]
            torch.addmm(self.low_sq.float(), x, self.low.T, alpha=-2, out=out[:, : self.n])
            return out, query.low_sq[at]
        x = query.rows(at).sub_(self.mean)
        for start, block in _blocks(self.source):
            y = self._compared(block).sub_(self.mean)
            out[:, start : start + len(y)] = torch.addmm(y.square().sum(1), x, y.T, alpha=-2)
        return out, x.square().sum(1)

    def squared(self, query: _Dense, at: Tensor, to: Tensor) -> Tensor:
        """|x - y|² in float64 from differences, query rows ``at`` [b] against rows ``to`` [b, c]: [b, c]."""
        out = torch.empty(to.shape, dtype=torch.float64, device=self.device)
        step = max(1, _DIFFERENCE_BYTES // (8 * self.terms * to.shape[1]))
        for s in range(0, len(at), step):
            y = self.rows(to[s : s + step].reshape(-1)).view(-1, to.shape[1], self.terms)
            y -= query.rows(at[s : s + step]).unsqueeze(1)
            out[s : s + step] = y.square_().sum(2)
        return out


class _Sparse:
    """Rows of a CSR matrix, in float64; of unit length under cosine. On the CPU, and not centred."""

    levels = (torch.float64,)
    device = torch.device("cpu")
    scale = 1.0

    def __init__(self, X: Any, metric: Metric) -> None:
        self.cosine = metric == "cosine"
        matrix = X.astype(np.float64)
        if matrix is X:
            matrix = X.copy()
        matrix.sum_duplicates()
        peak = float(np.abs(matrix.data).max(initial=0.0))
        if self.cosine:
            top = np.asarray(abs(matrix).max(axis=1).todense()).ravel()
            empty = top == 0
            matrix = sp.diags_array(1 / np.where(empty, 1.0, top)) @ matrix
            norm = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
            matrix = sp.diags_array(1 / np.where(empty, 1.0, norm)) @ matrix
            matrix = sp.hstack([matrix, sp.csr_array(empty[:, None].astype(np.float64))])
        elif peak > 0:
            self.scale = _power_of_two(peak)
            matrix = matrix * self.scale
        self.matrix = sp.csr_array(matrix)
        self.n = matrix.shape[0]
        self.terms = int(np.diff(self.matrix.indptr).max(initial=1))
        self.sq = np.asarray(self.matrix.multiply(self.matrix).sum(axis=1)).ravel()
        self.transposed = self.matrix.T.tocsr()
        self.reach = float(np.sqrt(self.sq.max()))

    def half_distances(self, query: _Sparse, at: Tensor, level: torch.dtype) -> tuple[Tensor, Tensor]:
        """As for dense rows."""
        width = -(-self.n // _GROUP) * _GROUP
        out = torch.empty((len(at), width), dtype=level)
        out[:, self.n :] = torch.inf
        products = (query.matrix[at.numpy()] @ self.transposed).toarray()
        out[:, : self.n] = torch.from_numpy(products).mul_(-2).add_(torch.from_numpy(self.sq))
        return out, torch.from_numpy(query.sq[at.numpy()])

    def squared(self, query: _Sparse, at: Tensor, to: Tensor) -> Tensor:
        """As for dense rows."""
        out = np.empty(to.shape)
        step = max(1, 2**16 // to.shape[1])
        for s in range(0, len(at), step):
            mine = np.repeat(at[s : s + step].numpy(), to.shape[1])
            gap = query.matrix[mine] - self.matrix[to[s : s + step].numpy().ravel()]
            out[s : s + step] = np.asarray(gap.multiply(gap).sum(axis=1)).reshape(-1, to.shape[1])
        return torch.from_numpy(out)


def _dense_pair(
    points: npt.NDArray[Any] | Tensor,
    asked: npt.NDArray[Any] | Tensor | None,
    metric: Metric,
    device: torch.device,
) -> tuple[_Dense, _Dense]:
    """X and the queries in the same scale and about the same mean, X's."""
    cosine = metric == "cosine"
    peak = max(float(b.abs().amax()) for part in (points, asked) if part is not None for _, b in _blocks(part))
    scale = _power_of_two(peak) if peak > 0 else 1.0
    total = torch.zeros(points.shape[1] + cosine, dtype=torch.float64)
    for _, block in _blocks(points):
        block = block.mul_(scale)
        total += (_unit_rows(block) if cosine else block).sum(0).cpu()
    mean = total / points.shape[0]
    base = _Dense(points, cosine, scale, mean, device)
    return base, base if asked is None else _Dense(asked, cosine, scale, mean, device)


def _power_of_two(peak: float) -> float:
    """The power of two that brings ``peak`` into [1/2, 1): scaling by it rounds nothing."""
    return float(2.0 ** -np.frexp(peak)[1])


def _unit_rows(block: Tensor) -> Tensor:
    """Rows of length 1, and one more column that is 1 for rows of zeros: at right angles to all others."""
    top = block.abs().amax(1, keepdim=True)
    empty = top == 0
    block = block / top.masked_fill(empty, 1.0)  # first by the largest entry: squares of tiny rows vanish
    block /= block.square().sum(1, keepdim=True).sqrt_().masked_fill_(empty, 1.0)
    return torch.cat([block, empty.to(block.dtype)], 1)


def _as_distances(squared: npt.NDArray[np.float64], base: _Dense | _Sparse) -> npt.NDArray[np.float32]:
    # Unit vectors: |x - y|² = 2 (1 - cos), which keeps the digits that 1 - cos itself would lose.
    return (squared / 2 if base.cosine else np.sqrt(squared) / base.scale).astype(np.float32)


# -------------------------------------------------------------------------------------- exact search


def _exact(
    base: Any, query: Any, k: int, which: npt.NDArray[np.int64], progress: Progress | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Indices and squared distances of the k nearest rows of ``base`` to the query rows ``which``."""
    indices = np.empty((len(which), k), np.int64)
    squared = np.empty((len(which), k), np.float64)
    levels = base.levels
    if levels[0] == torch.float32 and not _keeps_float32(base.device):
        levels = levels[1:]
    size = torch.finfo(levels[0]).bits // 8
    step = max(1, _BLOCK_BYTES // (size * base.n))
    for start in range(0, len(which), step):
        at = torch.from_numpy(which[start : start + step]).to(base.device)
        found, d2 = _search_block(base, query, k, at, levels)
        indices[start : start + step] = found.cpu().numpy()
        squared[start : start + step] = d2.cpu().numpy()
        if progress is not None:
            progress(min(start + step, len(which)), len(which))
    return indices, squared


def _search_block(base: Any, query: Any, k: int, at: Tensor, levels: tuple[torch.dtype, ...]) -> tuple[Tensor, Tensor]:
    level = levels[0]
    others = base.n - (query is base)
    many = min(k + max(8, k // 4), others)
    values, own = base.half_distances(query, at, level)
    if query is base:
        values.scatter_(1, at.unsqueeze(1), torch.inf)
    last, found = _smallest(values, many)
    d2 = _tidy(base.squared(query, at, found), base)
    found, d2 = _by_distance(found, d2)
    if many == others:
        return found[:, :k], d2[:, :k]

    # A point y that belongs among the k has |x - y| <= far, so |y| <= |x| + far; its computed value is off by
    # no more than `slack`, whatever the order of summation: a sum of t terms in precision u is off by at
    # most t·u times the sum of their sizes. If the first value left out is above that, nothing was missed.
    u = torch.finfo(level).eps / 2
    length, far = own.sqrt(), d2[:, k - 1].sqrt()
    reach = (length + far).clamp_(max=base.reach) + length
    shift = (u + 2.0**-50 * base.terms**0.5) * (reach + 1)  # rows themselves are rounded to this precision
    slack = 2.1 * (base.terms + 8) * u * reach.square() + base.terms * torch.finfo(level).tiny
    bound = (far + shift).square() + slack
    doubtful = (last + own <= bound).nonzero().flatten()
    found, d2 = found[:, :k].contiguous(), d2[:, :k].contiguous()
    if len(doubtful) == 0:
        return found, d2
    if len(levels) > 1:
        del values
        step = max(1, _BLOCK_BYTES // (8 * base.n))
        for part in torch.split(doubtful, step):
            found[part], d2[part] = _search_block(base, query, k, at[part], levels[1:])
        return found, d2
    for part in torch.split(doubtful, max(1, 2**24 // base.n)):
        within = values[part] + own[part].unsqueeze(1) <= bound[part].unsqueeze(1)
        found[part], d2[part] = _among(base, query, k, at[part], within)
    return found, d2


def _among(base: Any, query: Any, k: int, at: Tensor, within: Tensor) -> tuple[Tensor, Tensor]:
    """The k nearest of each row among the columns set in ``within``, all of whose distances are computed."""
    row, column = within.nonzero(as_tuple=True)
    d2 = torch.cat(
        [
            _tidy(base.squared(query, at[r], c.unsqueeze(1)), base).flatten()
            for r, c in zip(row.split(2**18), column.split(2**18), strict=True)
        ]
    )
    # nonzero() lists columns in order, so two stable sorts leave (row, distance, column).
    order = d2.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    counts = torch.bincount(row, minlength=len(at))
    first = counts.cumsum(0) - counts
    take = order[first.unsqueeze(1) + torch.arange(k, device=row.device)]
    return column[take], d2[take]


def _smallest(values: Tensor, many: int) -> tuple[Tensor, Tensor]:
    """The largest of the ``many`` smallest values of each row [b], and their columns [b, many].

    The ``many`` smallest lie in the ``many`` groups with the smallest minima. Taking minima is a vectorised
    pass, so the selection itself, which is not, sees a 16th of the row.
    """
    width = values.shape[1] // _GROUP
    if width <= 2 * many:
        top = values.topk(many, 1, largest=False, sorted=False)
        return top.values.amax(1), top.indices
    grouped = values.view(len(values), _GROUP, width)
    groups = grouped.amin(1).topk(many, 1, largest=False, sorted=False).indices
    members = groups.unsqueeze(1) + width * torch.arange(_GROUP, device=values.device).view(-1, 1)
    members = members.flatten(1)
    top = values.gather(1, members).topk(many, 1, largest=False, sorted=False)
    return top.values.amax(1), members.gather(1, top.indices)


def _by_distance(found: Tensor, d2: Tensor) -> tuple[Tensor, Tensor]:
    found, order = found.sort(1)
    d2, order = d2.gather(1, order).sort(dim=1, stable=True)
    return found.gather(1, order), d2


def _tidy(d2: Tensor, base: Any) -> Tensor:
    # Parallel rows differ by rounding once they have unit length; they are equal, and ties go by index.
    return d2.masked_fill_(d2 < 1e-30, 0.0) if base.cosine else d2


def _keeps_float32(device: torch.device) -> bool:
    """Whether float32 products are float32 here: TF32 or bfloat16 may be on, by any of several switches."""
    probe = torch.full((256, 256), 1 + 2.0**-20, device=device)
    return bool((probe @ torch.eye(256, device=device) == probe).all())


# ------------------------------------------------------------------------------------ approximate search


def _hnsw(base: _Dense, query: _Dense, k: int, recall: float, seed: int, progress: Progress | None) -> Neighbors:
    try:
        import faiss
    except ImportError as error:
        raise ImportError("`method='hnsw'` needs faiss: pip install faiss-cpu. Or use method='exact'.") from error
    alone = query is base
    index = faiss.IndexHNSWFlat(base.terms, 32)
    index.hnsw.efConstruction = max(100, 2 * k)
    index.add(base.low.numpy())

    rng = np.random.default_rng(seed)
    sample = np.sort(rng.choice(query.n, min(1000, query.n), replace=False))
    _, truth_d2 = _exact(base, query, k, sample)
    effort = max(32, k + alone)
    while True:
        index.hnsw.efSearch = effort
        _, got_d2 = _hnsw_search(index, base, query, k, sample)
        # By distance, not by index: any of several points at the k-th distance is a right answer.
        reached = float((got_d2 <= truth_d2[:, -1:]).mean())
        if reached >= recall or effort >= min(base.n, 4096):
            break
        effort *= 2
    if reached < recall:
        warnings.warn(
            f"HNSW reached a recall of {reached:.3f}, not {recall}. Use method='exact', or a lower `recall`.",
            stacklevel=3,
        )
    indices = np.empty((query.n, k), np.int64)
    squared = np.empty((query.n, k), np.float64)
    step = 16384
    for start in range(0, query.n, step):
        rows = np.arange(start, min(start + step, query.n))
        indices[rows], squared[rows] = _hnsw_search(index, base, query, k, rows)
        if progress is not None:
            progress(int(rows[-1]) + 1, query.n)
    return Neighbors(indices, _as_distances(squared, base), reached)


def _hnsw_search(
    index: Any, base: _Dense, query: _Dense, k: int, rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    alone = query is base
    at = torch.from_numpy(rows)
    found = torch.from_numpy(index.search(query.low[at].numpy(), k + alone)[1])
    if alone:  # drop itself where it was found, else the farthest
        itself = found == at.unsqueeze(1)
        itself[~itself.any(1), -1] = True
        found = found[~itself].view(-1, k)
    short = (found < 0).any(1)  # the walk ended early: an island of the index, or many equal points
    d2 = _tidy(base.squared(query, at, found.clamp(min=0)), base)
    found, d2 = _by_distance(found, d2)
    indices, squared = found.numpy(), d2.numpy()
    if bool(short.any()):
        lost = short.numpy()
        indices[lost], squared[lost] = _exact(base, query, k, rows[lost])
    return indices, squared
