"""Which points to label next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sobgnn.graphs.graph import Graph


def suggest_points(
    graph: Graph,
    distributions: npt.NDArray[np.floating],
    labelled: npt.NDArray[np.int64],
    reached: npt.NDArray[np.bool_],
    count: int,
) -> npt.NDArray[np.int64]:
    r"""Unlabelled points, best first: uncertain, in dense places, and apart from each other.

    .. math:: s_i = u_i \, d_i, \qquad s_j \leftarrow s_j (1 - w_{ij} / \max_k w_{ik})^2 \text{ after choosing } i

    with :math:`u_i` one minus the gap between the two largest probabilities and :math:`d_i` the degree as a share
    of the largest, so that a chosen point silences its surroundings, neighbours of neighbours by the same rule
    with the weights of a two-step walk. Points whose component holds no label have u = 1.

    Args:
        graph: Of N nodes.
        distributions: [N, C].
        labelled: Points that have a label.
        reached: bool [N], whether a point's component holds a label.
        count: How many, at the most; fewer where fewer are unlabelled.
    """
    adjacency = graph.to_scipy().astype(np.float64)
    top = np.sort(distributions, axis=1)[:, -2:].astype(np.float64)
    uncertainty = np.where(reached, 1 - (top[:, 1] - top[:, 0]), 1.0)
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    score = uncertainty * (degree / max(degree.max(initial=0.0), np.finfo(float).tiny) + 1e-3)
    # A tiny share for all, so that certain points are still in order of density once the uncertain are used up.
    score += 1e-9 * (1 + degree / max(degree.max(initial=0.0), 1.0))
    score[labelled] = -np.inf
    chosen = []
    for _ in range(min(count, len(score) - len(labelled))):
        best = int(score.argmax())
        chosen.append(best)
        near = adjacency[[best]]
        if near.nnz:
            reach = near / near.data.max()
            walk = (near / near.data.sum()) @ adjacency
            far = walk / walk.data.max()
            for part in (reach, far):
                score[part.indices] *= np.square(1 - part.data * (1 - 1e-6))
        score[best] = -np.inf
    return np.array(chosen, dtype=np.int64)
