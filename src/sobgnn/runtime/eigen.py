"""Eigenvalues and eigenvectors of symmetric matrices, small ones on one thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.runtime.threads import at_most

# Rows up to which waiting costs more than a second thread gains.
_SMALL = 2048


def eigen(matrix: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Eigenvalues [n], the smallest first, and eigenvectors [n, n], one in each column, of a symmetric matrix.

    As :func:`numpy.linalg.eigh`, whose threads however wait for one another at every step without ever resting: beside
    other work, 600 rows took it up to 4 s instead of 0.1, and 1 600 rows 16 s instead of 0.8. All but large matrices
    are therefore left to one thread of torch's, which takes as long as two up to 600 rows and 0.9 s longer for 2 048.
    """
    if len(matrix) > _SMALL:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    with at_most(1):
        found = torch.linalg.eigh(torch.from_numpy(np.ascontiguousarray(matrix)))
    return found.eigenvalues.numpy(), found.eigenvectors.numpy()
