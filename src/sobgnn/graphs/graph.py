"""The weighted graph, and conversion from and to scipy, torch and PyG."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from sobgnn._system.files import atomic_file, check_regular
from sobgnn._system.unknown import label_values
from sobgnn.graphs.edges import (
    LARGEST_WEIGHT,
    SMALLEST_WEIGHT,
    check_devices,
    check_ends,
    check_sizes,
    check_weights,
    csr_tensors,
    float32_weights,
    sum_repeated,
    symmetrize_csr,
    symmetrize_edges,
)
from sobgnn.graphs.summary import GraphReport, report_adjacency

Symmetrize = Literal["union", "mutual"]


@dataclass(frozen=True, eq=False)
class Graph:
    """A symmetric, weighted graph without self-loops, in compressed sparse rows.

    Made by :func:`knn_graph`, :meth:`from_edges` or :meth:`from_scipy`, which check what they are given;
    the constructor itself trusts its arguments.

    Args:
        indptr: int64 [N+1]. Row i's neighbors stand at ``indptr[i]:indptr[i+1]``.
        indices: int32, or int64 past 2³¹ nodes, [E]. Sorted within a row. Each undirected edge is there twice.
        weight: float32 [E], positive, finite, the same in both directions; not to be changed in place.
        neighbor_recall: Share of true neighbors found, where the search was approximate.

    Examples:
        >>> import torch
        >>> from sobgnn import Graph
        >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([1.0, 0.5]), symmetrize="union")
        >>> path.num_nodes, path.degree.tolist()
        (3, [1, 2, 1])
        >>> path.to_scipy().toarray().tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """

    indptr: Tensor
    indices: Tensor
    weight: Tensor
    neighbor_recall: float | None = field(default=None, kw_only=True)

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Number of stored entries E: twice the number of undirected edges."""
        return self.indices.numel()

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.weight.device

    @property
    def degree(self) -> Tensor:
        """Number of neighbors of each node, int64 [N]."""
        return self.indptr.diff()

    @property
    def nbytes(self) -> int:
        """Bytes held by the three tensors."""
        return sum(t.numel() * t.element_size() for t in (self.indptr, self.indices, self.weight))

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, device={self.device})"

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor | npt.ArrayLike,
        edge_weight: Tensor | npt.ArrayLike | None = None,
        num_nodes: int | None = None,
        *,
        symmetrize: Symmetrize | None = None,
        sum_duplicates: bool = False,
    ) -> Graph:
        """A graph from PyG's ``edge_index`` [2, E] and ``edge_weight`` [E].

        Args:
            edge_index: Each undirected edge in both directions, unless ``symmetrize`` is given.
            edge_weight: Positive and finite. Every weight is 1 if left out.
            num_nodes: Number of nodes, where isolated ones at the end would go unseen. If left out: what PyG's
                EdgeIndex knows, else one more than the largest entry.
            symmetrize: What to do with edges present or heavier in one direction only. ``None`` refuses them (weights
                that only rounding tells apart become the larger one), ``"union"`` keeps the larger weight,
                ``"mutual"`` the smaller, dropping one-way edges.
            sum_duplicates: Add up edges listed more than once, instead of refusing them.

        Where ``edge_weight`` requires gradients, so do the graph's weights, which are then what
        :class:`~sobgnn.SobolevOperators` differentiate with respect to.
        """
        check_devices(edge_index, edge_weight)
        index = as_numpy(edge_index, "edge_index")
        weight = None if edge_weight is None else as_numpy(edge_weight, "edge_weight").reshape(-1)
        check_sizes(index, weight)
        index = index.astype(np.int64, copy=False)
        if weight is None:
            weight = np.ones(index.shape[1], dtype=np.float32)
        check_weights(weight)  # before those of 0 are no edges
        if num_nodes is None:
            num_nodes = _known_nodes(edge_index, int(index.max()) + 1 if index.size else 0)
        elif not hasattr(num_nodes, "__index__") or num_nodes < 0:
            raise ValueError(f"`num_nodes` must be an integer of at least 0, but got {num_nodes!r}.")
        check_ends("entries", torch.from_numpy(index), num_nodes)
        coo = sp.coo_array((weight, (index[0], index[1])), shape=(num_nodes, num_nodes))
        graph = cls.from_scipy(coo, symmetrize=symmetrize, sum_duplicates=sum_duplicates)
        if isinstance(edge_weight, Tensor) and edge_weight.requires_grad and torch.is_grad_enabled():
            pairs, learned = torch.as_tensor(edge_index).long(), edge_weight.reshape(-1)
            if sum_duplicates:
                pairs, learned = sum_repeated(pairs, learned)
            if symmetrize is not None:
                pairs, learned = symmetrize_edges(pairs, learned, symmetrize)
            learned = learned[torch.argsort(pairs[0] * num_nodes + pairs[1])]
            learned = learned if learned.dtype == torch.float64 else learned.float()
            graph = Graph(graph.indptr.to(learned.device), graph.indices.to(learned.device), learned)
        return graph.to(edge_index.device) if isinstance(edge_index, Tensor) else graph

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        *,
        symmetrize: Symmetrize | None = None,
        sum_duplicates: bool = False,
    ) -> Graph:
        """A graph from a scipy sparse adjacency matrix [N, N], which is copied; arguments as in :meth:`from_edges`.

        An entry of 0 that the matrix stores is no edge.
        """
        if not sp.issparse(matrix):
            raise TypeError(
                f"matrix must be a scipy sparse matrix, but got {type(matrix).__name__}. Wrap it in "
                "scipy.sparse.csr_array."
            )
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"An adjacency matrix must be square, but got shape {matrix.shape}.")
        if matrix.dtype == np.float16:  # which scipy does not convert between its formats
            matrix = matrix.astype(np.float32)
        if matrix.format not in ("csr", "csc"):
            matrix = matrix.tocoo()
        csr = matrix.tocsr(copy=True)
        csr.sum_duplicates()
        csr.eliminate_zeros()
        repeated = int(np.count_nonzero(matrix.data)) - csr.nnz
        if repeated and not sum_duplicates:
            raise ValueError(
                f"Each edge may be listed once per direction, but {repeated} are repeated. Pass sum_duplicates=True to "
                "Graph.from_edges to add them up."
            )
        csr.data = float32_weights(csr.data)
        loops = int(np.count_nonzero(csr.diagonal()))
        if loops:
            raise ValueError(
                f"A graph has no self-loops, but got {loops}. Remove them: operators add their own through epsilon."
            )
        return cls(*csr_tensors(symmetrize_csr(csr, symmetrize)))

    def to_scipy(self, *, copy: bool = True) -> sp.csr_array:
        """The adjacency matrix as float32 CSR. ``copy=False`` shares the memory of a graph on the CPU: only read it."""
        n = self.num_nodes
        arrays = (as_numpy(self.weight), as_numpy(self.indices), as_numpy(self.indptr))
        return sp.csr_array(arrays, shape=(n, n), copy=copy and self.device.type == "cpu")

    def edges(self) -> tuple[Tensor, Tensor]:
        """PyG's ``edge_index`` int64 [2, E] and ``edge_weight`` float32 [E], each edge in both directions; copies."""
        rows = torch.repeat_interleave(self.degree)
        return torch.stack([rows, self.indices.long()]), self.weight.clone()

    def to_torch(self) -> Tensor:
        """The adjacency matrix as a torch sparse CSR tensor, float32 [N, N]; a copy."""
        size = (self.num_nodes, self.num_nodes)
        indptr = self.indptr.to(self.indices.dtype, copy=True)
        return torch.sparse_csr_tensor(indptr, self.indices.clone(), self.weight.clone(), size, check_invariants=False)

    def to(self, device: torch.device | str) -> Graph:
        """The same graph on another device."""
        moved = (self.indptr.to(device), self.indices.to(device), self.weight.to(device))
        return Graph(*moved, neighbor_recall=self.neighbor_recall)

    def with_weight(self, weight: Tensor | npt.ArrayLike) -> Graph:
        """The same pattern with other weights, float32 [E], which must be positive, finite and symmetric.

        Weights that require gradients are taken as they are.
        """
        weight = torch.as_tensor(weight)
        if weight.shape != self.weight.shape:
            raise ValueError(f"weight must have shape {list(self.weight.shape)}, but got {list(weight.shape)}.")
        csr = self.to_scipy(copy=False)
        csr.data = float32_weights(as_numpy(weight))
        try:
            checked = symmetrize_csr(csr, None).data
        except ValueError:
            raise ValueError("weight must be the same for both directions of an edge, but differs for some.") from None
        # Gradients go through weights that have them; others are copied, since the caller may change them.
        kept = weight if weight.requires_grad else torch.tensor(checked, device=self.device)
        return Graph(self.indptr, self.indices, kept, neighbor_recall=self.neighbor_recall)

    def permute(self, order: npt.ArrayLike | Tensor) -> Graph:
        """The graph whose node i is this one's node ``order[i]``."""
        rank = as_numpy(order, "order")
        if rank.size and not np.issubdtype(rank.dtype, np.integer):
            raise TypeError(f"order must hold integers, but got {rank.dtype}. Cast it to int64.")
        rank = rank.astype(np.int64, copy=False)
        if not np.array_equal(np.sort(rank), np.arange(self.num_nodes)):
            raise ValueError(f"order must be a permutation of 0..{self.num_nodes - 1}.")
        csr = self.to_scipy(copy=False)[rank][:, rank]
        csr.sort_indices()
        return Graph(*csr_tensors(csr), neighbor_recall=self.neighbor_recall).to(self.device)

    def save(self, path: str | Path) -> None:
        """Write the graph to a safetensors file, whole or not at all."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        tensors = {name: getattr(self, name).detach().cpu().contiguous() for name in ("indptr", "indices", "weight")}
        if self.neighbor_recall is not None:
            tensors["neighbor_recall"] = torch.tensor(self.neighbor_recall, dtype=torch.float64)
        with atomic_file(path) as file:
            try:
                save_file(tensors, file.name)
            except SafetensorError as error:  # such as a full disk
                raise OSError(f"{path} cannot be written: {error}") from None

    @classmethod
    def load(cls, path: str | Path, *, mmap: bool = True) -> Graph:
        """The graph of :meth:`save`; memory-mapped, so that the system reads what is used, unless told otherwise.

        One pass over the file checks that its entries are those of a graph, up to symmetry.
        """
        from safetensors import SafetensorError, safe_open

        check_regular(path)
        try:
            with safe_open(path, "pt") as file:  # maps it copy-on-write
                held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            parts = [held[name] if mmap else held[name].clone() for name in ("indptr", "indices", "weight")]
        except (SafetensorError, KeyError) as error:
            raise ValueError(f"{path} does not hold a graph: {' '.join(str(error).split())[:160]}.") from None
        recall = held.get("neighbor_recall")
        if not _is_graph(*(part.numpy() for part in parts)):
            raise ValueError(f"{path} does not hold a graph: its arrays do not fit together.")
        return cls(*parts, neighbor_recall=None if recall is None else float(recall))

    def describe(self, y: npt.ArrayLike | Tensor | None = None, orders: int = 6) -> GraphReport:
        """Degrees, weights, components and, for labels ``y`` [N], their agreement per power.

        Labels may be text or numbers; -1, None and NaN are unknown.
        """
        return report_adjacency(
            self.to_scipy(copy=False), None if y is None else as_numpy(y, "y"), orders, self.neighbor_recall
        )


def as_numpy(values: Any, name: str = "values") -> npt.NDArray[Any]:
    """An array of what may be an array, a tensor or lists; copies only what it must."""
    if sp.issparse(values) or (isinstance(values, Tensor) and values.layout != torch.strided):
        raise TypeError(f"{name} must be dense, but got a sparse matrix. Pass Graph.from_scipy the matrix of a graph.")
    if not isinstance(values, Tensor):
        try:
            return label_values(values)
        except ValueError:
            raise ValueError(f"{name} must be one array, but its rows differ in length.") from None
    values = values.detach().cpu()
    array: npt.NDArray[Any] = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return array


def _known_nodes(edge_index: Any, least: int) -> int:
    """The number of nodes that PyG's EdgeIndex knows, or the least that the edges need."""
    size = edge_index.sparse_size() if isinstance(edge_index, Tensor) and hasattr(edge_index, "sparse_size") else ()
    known = {number for number in size if number is not None}
    if len(known) > 1:
        raise ValueError(f"A graph has one set of nodes, but edge_index has sparse_size={tuple(size)}. Pass num_nodes.")
    return known.pop() if known else least


def _is_graph(indptr: npt.NDArray[Any], indices: npt.NDArray[Any], weight: npt.NDArray[Any]) -> bool:
    """Whether arrays are those of a graph, up to symmetry: kernels read the rows of neighbors unchecked."""
    sound = (
        indptr.ndim == indices.ndim == weight.ndim == 1
        and indptr.dtype == np.int64
        and weight.dtype == np.float32
        and indices.dtype in (np.int32, np.int64)
        and len(indptr) >= 1
        and len(indices) == len(weight) == indptr[-1]
        and indptr[0] == 0
        and bool((np.diff(indptr) >= 0).all())
    )
    if not sound or not len(indices):
        return sound
    # Each row's neighbors ascend, none twice: threads look up parts of rows by it.
    descents = 1 + np.flatnonzero(indices[1:] <= indices[:-1])
    return bool(
        indices.min() >= 0
        and indices.max() < len(indptr) - 1
        and np.isin(descents, indptr).all()
        and weight.min() >= SMALLEST_WEIGHT
        and weight.max() <= LARGEST_WEIGHT
    )


def locality_order(graph: Graph) -> npt.NDArray[np.int64]:
    """Reverse Cuthill–McKee: neighbors get positions close to one another."""
    if graph.num_edges == 0:
        return np.arange(graph.num_nodes)
    order: npt.NDArray[np.int64] = reverse_cuthill_mckee(graph.to_scipy(copy=False), symmetric_mode=True).astype(
        np.int64, "C"
    )
    return order
