"""Attention over the edges of a fixed graph in one fused pass, forward and backward, for many members at once.

``additive``, ``gated`` and ``scaled_dot`` are GAT's, SuperGAT's and the Transformer's attention over an
:class:`EdgePattern`. On CPUs attention.cpp computes them, on CUDA Triton, elsewhere plain torch.
"""

from sobgnn.propagation.attention.registration import EdgePattern, additive, gated, scaled_dot

__all__ = ["EdgePattern", "additive", "gated", "scaled_dot"]
