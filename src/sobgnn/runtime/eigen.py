"""Eigenvalues and eigenvectors of symmetric matrices, small ones on one thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.runtime.threads import at_most

# Rows up to which further threads do not pay.
_SMALL = 1000


def eigen(matrix: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Eigenvalues [n], the smallest first, and eigenvectors [n, n], one in each column, of a symmetric matrix.

    As :func:`numpy.linalg.eigh`, whose threads however wait for one another at every step without ever resting: beside
    other work, 600 rows took it up to 4 s instead of 0.1. A small matrix is therefore left to one thread of torch's,
    which takes as long as two do on an idle machine.
    """
    if len(matrix) > _SMALL:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    with at_most(1):
        found = torch.linalg.eigh(torch.from_numpy(np.ascontiguousarray(matrix)))
    return found.eigenvalues.numpy(), found.eigenvectors.numpy()
