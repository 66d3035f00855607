"""Layers and networks."""

from sobgnn.nn.conv import Combine, SobolevConv
from sobgnn.nn.features import SobolevFeatures
from sobgnn.nn.model import SSobGNN

__all__ = ["Combine", "SSobGNN", "SobolevConv", "SobolevFeatures"]
