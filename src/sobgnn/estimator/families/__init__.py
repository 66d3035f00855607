"""The families of the estimator: each learns from the labels in its own way, all by one contract.

To add a family, add a file with a class that follows :class:`~sobgnn.estimator.families.contract.Family`, and list the
class here.
"""

from __future__ import annotations

from sobgnn.estimator.families.contract import Family, FittedFamily, Sometimes
from sobgnn.estimator.families.diffusion import DiffusedLabels
from sobgnn.estimator.families.gaussian import GaussianRegression
from sobgnn.estimator.families.kernel import KernelRegression, ObliqueKernelRegression
from sobgnn.estimator.families.linear import SelfTrainedLinear
from sobgnn.estimator.families.links import LinkedLinear
from sobgnn.estimator.families.logistic import LogisticColumns
from sobgnn.estimator.families.networks import MLPs, SobolevNetworks
from sobgnn.estimator.families.pagerank import PageRankLinear
from sobgnn.estimator.families.poisson import PoissonLabels
from sobgnn.estimator.families.ssobgnn import SSobGNNs
from sobgnn.estimator.families.trees import BoostedTrees, Forests
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import Problem

__all__ = ["FAMILIES", "Family", "FittedFamily", "default_families", "make_family"]

# By the name that users type in ``families=``.
FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (
        SobolevNetworks,
        MLPs,
        DiffusedLabels,
        PoissonLabels,
        SelfTrainedLinear,
        LogisticColumns,
        GaussianRegression,
        KernelRegression,
        ObliqueKernelRegression,
        Forests,
        BoostedTrees,
        PageRankLinear,
        LinkedLinear,
        SSobGNNs,
    )
}


def make_family(name: str, view: str | None = None) -> Family:
    """Make the family with this name; ``view`` is the graph it learns on, if it learns on one."""
    return FAMILIES[name](view) if FAMILIES[name].on_graph else FAMILIES[name]()  # type: ignore[call-arg]


def default_families(problem: Problem, labels: Labels) -> list[str]:
    """The families that are used by default.

    A family that helps only under some conditions implements ``worth_it(problem, labels)``. Families for given graphs
    are listed too; without a given graph they have nothing to learn on, and are skipped.
    """
    kinds: dict[str, object] = {**FAMILIES}
    return [name for name, kind in kinds.items() if not isinstance(kind, Sometimes) or kind.worth_it(problem, labels)]
