"""Layers and networks."""

from sobgnn.nn.conv import Combine, SobolevConv
from sobgnn.nn.decoupled import DecoupledSobolev, SobolevFeatures
from sobgnn.nn.mlp import MLP
from sobgnn.nn.model import SSobGNN

__all__ = ["MLP", "Combine", "DecoupledSobolev", "SSobGNN", "SobolevConv", "SobolevFeatures"]
