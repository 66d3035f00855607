"""The models of the paper's table and others for comparison: one file each, one line here.

A network is a :class:`~sobgnn.paper.models.contract.Network`, any other model a
:class:`~sobgnn.paper.models.contract.Predictor`; the order is that of the tables.
"""

from sobgnn.paper.models import attention, decoupled, filters, harmonic, mlp, predictors, sobolev
from sobgnn.paper.models.contract import Network, Predictor

MODELS: dict[str, Network | Predictor] = {
    "Cheby": filters.CHEBY,
    "GCN": filters.GCN,
    "GAT": attention.GAT,
    "SIGN": mlp.INCEPTION,
    "SGC": mlp.SGC,
    "ClusterGCN": filters.CLUSTER_GCN,
    "SuperGAT": attention.SUPERGAT,
    "SuperGAT+links": attention.SUPERGAT_LINKS,
    "Transformer": attention.TRANSFORMER,
    "S-SobGNN": sobolev.SOBOLEV,
    "S-SobGNN+self": sobolev.SOBOLEV_SELF,
    "D-SobGNN": decoupled.DECOUPLED,
    "MLP": mlp.PERCEPTRON,
    "LogReg": predictors.LOGISTIC,
    "SVM": predictors.SVM,
    "LabelSpreading": predictors.SPREADING,
    "Laplace": harmonic.LAPLACE,
    "ShiftedLaplace": harmonic.SHIFTED_LAPLACE,
    "Poisson": harmonic.POISSON,
    "PoissonMBO": harmonic.POISSON_MBO,
    "PoissonMBO+sizes": harmonic.POISSON_MBO_SIZES,
    "SobolevClassifier": predictors.ESTIMATOR,
}


def find_model(name: str) -> Network | Predictor:
    """The model of this name; an unknown one is an error that lists them."""
    if name not in MODELS:
        raise ValueError(f"There is no model {name!r}. The models are: {', '.join(MODELS)}.")
    return MODELS[name]
