"""The models of the paper's table and others for comparison: a file each or a few alike, one line here.

A network is a :class:`~sobgnn.paper.models.contract.Network`, any other model a
:class:`~sobgnn.paper.models.contract.Predictor`; the order is that of the tables.
"""

from sobgnn.paper.models import attention, decoupled, filters, predictors, sobolev
from sobgnn.paper.models.contract import Network, Predictor

MODELS: dict[str, Network | Predictor] = {
    "Cheby": filters.CHEBY,
    "GCN": filters.GCN,
    "GAT": attention.GAT,
    "SIGN": filters.SIGN,
    "SGC": filters.SGC,
    "ClusterGCN": filters.CLUSTER_GCN,
    "SuperGAT": attention.SUPERGAT,
    "SuperGAT+links": attention.SUPERGAT_LINKS,
    "Transformer": attention.TRANSFORMER,
    "S-SobGNN": sobolev.SOBOLEV,
    "S-SobGNN+self": sobolev.SOBOLEV_SELF,
    "D-SobGNN": decoupled.DECOUPLED,
    "MLP": filters.MLP,
    "LogReg": predictors.LOGISTIC,
    "SVM": predictors.SVM,
    "LabelSpreading": predictors.SPREADING,
    "Laplace": predictors.LAPLACE,
    "ShiftedLaplace": predictors.SHIFTED_LAPLACE,
    "Poisson": predictors.POISSON,
    "PoissonMBO": predictors.POISSON_MBO,
    "PoissonMBO+sizes": predictors.POISSON_MBO_SIZES,
    "SobolevClassifier": predictors.ESTIMATOR,
}
