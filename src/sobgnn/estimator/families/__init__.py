"""The families of the estimator: each learns from the labels in its own way, all by one contract.

To add a family, add a file with a class that follows :class:`~sobgnn.estimator.families.contract.Family`, and list the
class here.
"""

from __future__ import annotations

from sobgnn.estimator.families.contract import Family, FittedFamily, Learned, Sometimes
from sobgnn.estimator.families.diffusion import DiffusedLabels, SpreadLabels
from sobgnn.estimator.families.kernel import FittedKernel, GaussianRegression, KernelRegression
from sobgnn.estimator.families.linear import FittedLinear, SelfTrainedLinear
from sobgnn.estimator.families.links import FittedLinks, LinkedLinear
from sobgnn.estimator.families.networks import FittedNetworks, SobolevNetworks
from sobgnn.estimator.families.pagerank import FittedPageRank, PageRankLinear
from sobgnn.estimator.families.poisson import PoissonLabels
from sobgnn.estimator.families.ssobgnn import FittedSSobGNNs, SSobGNNs
from sobgnn.estimator.families.trees import FittedTrees, Forests
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points

__all__ = ["FAMILIES", "FITTED", "Family", "FittedFamily", "Learned", "default_families", "make_family"]

# By the name that users type in ``families=``.
FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (
        SobolevNetworks,
        DiffusedLabels,
        PoissonLabels,
        SelfTrainedLinear,
        GaussianRegression,
        KernelRegression,
        Forests,
        PageRankLinear,
        LinkedLinear,
        SSobGNNs,
    )
}

# What a saved model may hold.
FITTED = (
    SpreadLabels, FittedNetworks, FittedLinear, FittedKernel, FittedTrees, FittedPageRank, FittedLinks, FittedSSobGNNs,
)  # fmt: skip


def make_family(name: str, graph: str | None = None) -> Family:
    """Make the family with this name; ``graph`` names the graph it learns on, if it learns on one."""
    return FAMILIES[name]() if FAMILIES[name].graphs == "none" else FAMILIES[name](graph)  # type: ignore[call-arg]


def default_families(points: Points, labels: Labels) -> list[str]:
    """The families that are used by default.

    A family that helps only under some conditions implements ``worth_it(points, labels)``. Families for given graphs
    are listed too; without a given graph they have nothing to learn on, and are skipped.
    """
    kinds: dict[str, object] = {**FAMILIES}
    return [name for name, kind in kinds.items() if not isinstance(kind, Sometimes) or kind.worth_it(points, labels)]
