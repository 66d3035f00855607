"""The hot path: every order of the sparse Sobolev operator in one pass, and its adjoint.

``expand``, ``reduce`` and ``each`` apply a :class:`Stencil`; ``backend`` names the code that serves a tensor.
"""

from sobgnn.propagation.dispatch import backend
from sobgnn.propagation.registration import each, expand, reduce
from sobgnn.propagation.scales import scales
from sobgnn.propagation.sorting import sort_edges
from sobgnn.propagation.stencil import Stencil, csr_tensors, transpose

__all__ = [
    "Stencil",
    "backend",
    "csr_tensors",
    "each",
    "expand",
    "reduce",
    "scales",
    "sort_edges",
    "transpose",
]
