"""The hot path: every order of the sparse Sobolev operator in one pass, and its adjoint.

``expand``, ``reduce`` and ``each`` apply a :class:`Stencil`; ``backend`` names the code that serves a tensor.
"""

from sobgnn.propagation.dispatch import backend
from sobgnn.propagation.operators import each, expand, reduce
from sobgnn.propagation.stencil import Stencil, transpose

__all__ = ["Stencil", "backend", "each", "expand", "reduce", "transpose"]
