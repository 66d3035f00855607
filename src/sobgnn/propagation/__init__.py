"""The hot path: every order of the sparse Sobolev operator in one pass, and its adjoint.

``propagate``, ``propagate_sum`` and ``propagate_each`` apply a :class:`SobolevCSR`, and ``propagate_into`` fills memory
that is there; ``backend`` names the code that serves a tensor.
"""

from sobgnn.propagation.csr import SobolevCSR, csr_tensors
from sobgnn.propagation.native import backend
from sobgnn.propagation.ops import propagate, propagate_each, propagate_into, propagate_sum, scales

__all__ = [
    "SobolevCSR",
    "backend",
    "csr_tensors",
    "propagate",
    "propagate_each",
    "propagate_into",
    "propagate_sum",
    "scales",
]
