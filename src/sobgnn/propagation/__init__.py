"""The hot path: every order of the sparse Sobolev operator in one pass, and its adjoint.

``expand``, ``reduce`` and ``each`` apply a :class:`Stencil`; ``backend`` names the code that serves a tensor.
"""

from sobgnn.propagation.backends import backend
from sobgnn.propagation.ops import each, expand, reduce, scales
from sobgnn.propagation.stencil import Stencil, csr_tensors, transpose

__all__ = [
    "Stencil",
    "backend",
    "csr_tensors",
    "each",
    "expand",
    "reduce",
    "scales",
    "transpose",
]
