"""Sparse Sobolev graph neural networks: labels for many points from a few."""

__version__ = "0.1.0"
