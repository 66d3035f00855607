"""Eigenvalues and eigenvectors of symmetric matrices, small ones on one thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.runtime.threads import at_most

# Number of rows up to which waiting costs more than a second thread gains.
_SMALL = 2048


def eigen(matrix: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Eigenvalues [n], in ascending order, and eigenvectors [n, n], one per column, of a symmetric matrix.

    Like :func:`numpy.linalg.eigh`, whose threads, however, busy-wait for one another at every step: alongside other
    work, 600 rows took up to 4 s instead of 0.1, and 1 600 rows 16 s instead of 0.8. So all but large matrices are
    computed by one torch thread, which takes as long as two up to 600 rows and 0.9 s longer for 2 048.
    """
    if len(matrix) > _SMALL:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    with at_most(1):
        found = torch.linalg.eigh(torch.from_numpy(np.ascontiguousarray(matrix)))
    return found.eigenvalues.numpy(), found.eigenvectors.numpy()
