"""The normalized sparse Sobolev operators: of a graph, of some of its rows, of new points joined to it."""

from sobgnn.operators.edges import EdgeOperators, Normalize
from sobgnn.operators.sobolev import SobolevOperators, SobolevRows, check_alpha, check_epsilon, shift_diagonal

__all__ = [
    "EdgeOperators",
    "Normalize",
    "SobolevOperators",
    "SobolevRows",
    "check_alpha",
    "check_epsilon",
    "shift_diagonal",
]
