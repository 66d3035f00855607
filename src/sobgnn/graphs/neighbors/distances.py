"""Dense and sparse rows prepared for comparison, and their distances."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.graphs.neighbors.points import blocks
from sobgnn.graphs.neighbors.scan import measured

# torch runs an elementwise operation on fewer elements than this in the calling thread.
_GRAIN = 32768
_DIFFERENCE_BYTES = 2**28  # of float64 differences held at once on a GPU


class Dense:
    """Rows of an array: scaled by a power of two to at most 1, of unit length under cosine, less X's mean.

    Distances do not change when one point is subtracted from all rows, so an offset common to all points
    costs no digits. Only a float32 copy is kept; float64 is made from the source, block by block.

    Attributes:
        low: [n, terms] float32.
        low_sq: [n] float64, the squared lengths of ``low``.
        reach: The length of the longest row.
    """

    def __init__(
        self,
        X: npt.NDArray[Any] | Tensor,
        *,
        cosine: bool,
        scale: float,
        mean: Tensor,
        device: torch.device,
    ) -> None:
        # A numpy array stays as it is for a search on the CPU: it may be a memory map.
        if isinstance(X, Tensor):
            self.source: npt.NDArray[Any] | Tensor = X.to(device)
        else:
            self.source = X if device.type == "cpu" else torch.from_numpy(np.array(X)).to(device)
        self.cosine, self.scale, self.mean, self.device = cosine, scale, mean.to(device), device
        self.n = X.shape[0]
        self.terms = X.shape[1] + cosine
        self.low = torch.empty((self.n, self.terms), dtype=torch.float32, device=device)
        self.low_sq = torch.empty(self.n, dtype=torch.float64, device=device)
        for start, block in blocks(self.source):
            end = start + len(block)
            self.low[start:end] = self._compared(block).sub_(self.mean)
            self.low_sq[start:end] = self.low[start:end].double().square_().sum(1)
        self.reach = float(self.low_sq.amax().sqrt())

    @cached_property
    def low_sq_32(self) -> Tensor:
        """``low_sq`` in float32."""
        return self.low_sq.float()

    def _compared(self, block: Tensor) -> Tensor:
        return unit_rows(block) if self.cosine else block.mul_(self.scale)

    def _read(self, at: Tensor) -> Tensor:
        """Rows ``at`` [b] in float64, neither centered nor scaled."""
        if isinstance(self.source, Tensor):
            block = self.source.index_select(0, at).double()
        else:
            block = torch.from_numpy(np.asarray(self.source[at.numpy()], dtype=np.float64))
        return unit_rows(block) if self.cosine else block

    def products(self, query: Dense, at: Tensor) -> tuple[Tensor, Tensor]:
        """|x|² + |y|² - 2 x·y in float64, query rows x ``at`` against all rows y [b, n], and |x|² [b]."""
        out = torch.empty((len(at), self.n), dtype=torch.float64, device=self.device)
        x = query._read(at)
        x = (x if self.cosine else x.mul_(self.scale)).sub_(self.mean)
        for start, block in blocks(self.source):
            y = self._compared(block).sub_(self.mean)
            out[:, start : start + len(y)] = torch.addmm(y.square().sum(1), x, y.T, alpha=-2)
        own = x.square().sum(1)
        return out.add_(own.unsqueeze(1)), own

    def first_copies(self, many: int) -> Tensor:
        """Which rows are among the first ``many`` of all rows equal to them: [n] bool."""
        # -0.0 + 0.0 is 0.0
        rows = (row.tobytes() for _, block in blocks(self.source) for row in block.add_(0.0).cpu().numpy())
        return _first_of_equal(rows, many).to(self.device)

    def squared(self, query: Dense, at: Tensor, to: Tensor) -> Tensor:
        """|x - y|² in float64 from differences, query rows ``at`` [b] against rows ``to`` [b, c]: [b, c]."""
        factor = 1.0 if self.cosine else self.scale**2
        if self.device.type == "cpu" and not self.cosine:
            own = query.source[at] if isinstance(query.source, Tensor) else np.asarray(query.source[at.numpy()])
            found = measured(self.source, own, to)
            if found is not None:
                return found.mul_(factor)
        out = torch.empty(to.shape, dtype=torch.float64, device=self.device)

        def fill(piece: tuple[slice, slice]) -> None:
            rows, columns = piece
            chosen = to[rows, columns]
            y = self._read(chosen.reshape(-1)).view(*chosen.shape, self.terms)
            y -= query._read(at[rows]).unsqueeze(1)
            out[piece] = y.square_().sum(2).mul_(factor)

        def fill_all(pieces: list[tuple[slice, slice]]) -> None:
            for piece in pieces:
                fill(piece)

        if self.device.type != "cpu":
            fill_all(list(_pieces(to, max(1, _DIFFERENCE_BYTES // (8 * self.terms)))))
            return out
        # Pieces stay in cache and below torch's own threading, whose barriers would cost more than the work.
        pieces = list(_pieces(to, max(1, (_GRAIN - 1) // self.terms)))
        shares = [pieces[start : start + 64] for start in range(0, len(pieces), 64)]
        if len(shares) == 1 or torch.get_num_threads() == 1:
            fill_all(pieces)
            return out
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for _ in pool.map(fill_all, shares):
                pass
        return out


class Sparse:
    """Rows of a CSR matrix in float64 times ``scale``, or of unit length under cosine; on the CPU, and not centered."""

    device = torch.device("cpu")

    def __init__(self, X: Any, *, cosine: bool, scale: float) -> None:
        matrix = sp.csr_array(X, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        self.cosine, self.scale = cosine, scale
        if cosine:
            matrix = _unit_sparse_rows(matrix)
        else:
            matrix.data *= scale
        self.matrix = matrix
        self.transposed = matrix.T.tocsr()
        self.n = matrix.shape[0]
        self.terms = max(1, int(np.diff(matrix.indptr).max()))
        self.sq = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
        self.reach = float(np.sqrt(self.sq.max()))

    def products(self, query: Sparse, at: Tensor) -> tuple[Tensor, Tensor]:
        """|x|² + |y|² - 2 x·y, query rows x ``at`` against all rows y [b, n], and |x|² [b]."""
        out = torch.from_numpy((query.matrix[at.numpy()] @ self.transposed).toarray())
        own = torch.from_numpy(query.sq[at.numpy()])
        return out.mul_(-2).add_(torch.from_numpy(self.sq)).add_(own.unsqueeze(1)), own

    def first_copies(self, many: int) -> Tensor:
        """Which rows are among the first ``many`` of all rows equal to them: [n] bool."""
        data, indices = self.matrix.data, self.matrix.indices
        spans = (slice(*span) for span in itertools.pairwise(self.matrix.indptr))
        return _first_of_equal((indices[span].tobytes() + data[span].tobytes() for span in spans), many)

    def squared(self, query: Sparse, at: Tensor, to: Tensor) -> Tensor:
        """|x - y|² from differences, query rows ``at`` [b] against rows ``to`` [b, c]: [b, c]."""
        out = torch.empty(to.shape, dtype=torch.float64)
        for rows, columns in _pieces(to, 2**16):
            chosen = to[rows, columns]
            mine = at[rows].repeat_interleave(chosen.shape[1])
            gap = query.matrix[mine.numpy()] - self.matrix[chosen.reshape(-1).numpy()]
            sums = np.asarray(gap.multiply(gap).sum(axis=1))
            out[rows, columns] = torch.from_numpy(sums).view(chosen.shape)
        return out


Space = Dense | Sparse


def dense_spaces(
    points: npt.NDArray[Any] | Tensor,
    asked: npt.NDArray[Any] | Tensor | None,
    *,
    cosine: bool,
    device: torch.device,
) -> tuple[Dense, Dense]:
    """X and the queries in one scale and about one mean, X's; the same object where there are no queries."""
    scale = 1.0
    if not cosine:
        scale = power_of_two(max(peak(part) for part in (points, asked) if part is not None))
    total = torch.zeros(points.shape[1] + cosine, dtype=torch.float64)
    for _, block in blocks(points):
        total += (unit_rows(block) if cosine else block.mul_(scale)).sum(0).cpu()
    mean = total / points.shape[0]
    base = Dense(points, cosine=cosine, scale=scale, mean=mean, device=device)
    return base, base if asked is None else beside(base, asked)


def sparse_spaces(points: Any, asked: Any, *, cosine: bool) -> tuple[Sparse, Sparse]:
    """X and the queries in one scale; the same object where there are no queries."""
    scale = 1.0
    if not cosine:
        entries = (part.data.astype(np.float64) for part in (points, asked) if part is not None)
        scale = power_of_two(max(float(np.abs(values).max(initial=0.0)) for values in entries))
    base = Sparse(points, cosine=cosine, scale=scale)
    return base, base if asked is None else Sparse(asked, cosine=cosine, scale=scale)


def beside(base: Dense, asked: npt.NDArray[Any] | Tensor) -> Dense:
    """Queries in the scale and about the mean of points."""
    return Dense(asked, cosine=base.cosine, scale=base.scale, mean=base.mean, device=base.device)


def distances(squared: npt.NDArray[np.float64], space: Space) -> npt.NDArray[np.float32]:
    """Distances in the caller's units from squared ones in the space's."""
    # Unit vectors: |x - y|² = 2 (1 - cos), which keeps the digits that 1 - cos itself would lose.
    return (squared / 2 if space.cosine else np.sqrt(squared) / space.scale).astype(np.float32)


def peak(X: npt.NDArray[Any] | Tensor) -> float:
    """The largest absolute entry."""
    ends = (block.aminmax() for _, block in blocks(X))
    return max(max(-float(low), float(high)) for low, high in ends)


def power_of_two(peak: float) -> float:
    """The power of two that brings ``peak`` into [1/2, 1): scaling by it rounds nothing."""
    return float(2.0 ** -float(np.frexp(peak)[1])) if peak > 0 else 1.0


def unit_rows(block: Tensor) -> Tensor:
    """Rows of length 1, and one more column, 1 for rows of zeros: at right angles to all the others."""
    top = block.abs().amax(1, keepdim=True)
    empty = top == 0
    block = block / top.masked_fill(empty, 1.0)  # by the largest entry first: squares of tiny rows vanish
    block /= block.square().sum(1, keepdim=True).sqrt_().masked_fill_(empty, 1.0)
    return torch.cat([block, empty.to(block.dtype)], 1)


def _unit_sparse_rows(matrix: Any) -> Any:
    top = abs(matrix).max(axis=1).toarray().ravel()
    empty = top == 0
    lengths = np.diff(matrix.indptr)
    matrix.data /= np.repeat(np.where(empty, 1.0, top), lengths)
    norm = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data /= np.repeat(np.where(empty, 1.0, norm), lengths)
    return sp.csr_array(sp.hstack([matrix, sp.csr_array(empty[:, None].astype(np.float64))]))


def _first_of_equal(rows: Iterable[bytes], many: int) -> Tensor:
    """Which rows are among the first ``many`` of those with the same bytes."""
    seen: Counter[bytes] = Counter()
    keep = []
    for row in rows:
        key = hashlib.blake2b(row, digest_size=16).digest()
        seen[key] += 1
        keep.append(seen[key] <= many)
    return torch.tensor(keep)


def _pieces(to: Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """[b, c] cut into pieces of at most ``size`` entries, whole rows where they fit."""
    count, width = to.shape
    if size >= width:
        for start in range(0, count, size // width):
            yield slice(start, start + size // width), slice(0, width)
    else:
        for row in range(count):
            for start in range(0, width, size):
                yield slice(row, row + 1), slice(start, start + size)
