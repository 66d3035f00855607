"""The families of the estimator: each learns from the labels in its own way, all by one contract.

To add a family, add a file with a class that follows :class:`~sobgnn.estimator.families.contract.Family`, and list the
class here.
"""

from __future__ import annotations

from sobgnn.estimator.families.contract import Family, FittedFamily, Learned
from sobgnn.estimator.families.given import FittedLinks, FittedPageRank, LinkedLinear, PageRankLinear
from sobgnn.estimator.families.kernel import FittedKernel, GaussianRegression, KernelRegression
from sobgnn.estimator.families.linear import FittedLinear, PlainLinear, SelfTrainedLinear
from sobgnn.estimator.families.networks import FittedNetworks, SobolevNetworks
from sobgnn.estimator.families.spreading import DiffusedLabels, PoissonLabels, SpreadLabels
from sobgnn.estimator.families.ssobgnn import FittedSSobGNNs, SSobGNNs
from sobgnn.estimator.families.trees import FittedTrees, Forests

__all__ = ["AUTO", "FAMILIES", "FITTED", "Family", "FittedFamily", "Learned"]

# Those that ``families="auto"`` means where they are worth it, and all, by the name that users type in ``families=``.
AUTO: tuple[type[Family], ...] = (
    SobolevNetworks, DiffusedLabels, PoissonLabels, SelfTrainedLinear, PlainLinear, GaussianRegression,
    KernelRegression, Forests, PageRankLinear, LinkedLinear,
)  # fmt: skip
FAMILIES: dict[str, type[Family]] = {family.name: family for family in AUTO} | {SSobGNNs.name: SSobGNNs}

# What a saved model may hold.
FITTED = (
    SpreadLabels, FittedNetworks, FittedLinear, FittedKernel, FittedTrees, FittedPageRank, FittedLinks, FittedSSobGNNs,
)  # fmt: skip
