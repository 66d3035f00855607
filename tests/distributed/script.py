"""A user's script: it fits, and knows nothing of ranks but the number that tells its output files apart."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn import SobolevClassifier

CASES: dict[str, dict[str, Any]] = {
    "defaults": {"random_state": 0, "epochs": 60},
    "hnsw": {"random_state": 0, "epochs": 10, "method": "hnsw"},
    "two-labels": {"random_state": 0, "epochs": 20},
    "sparse": {"random_state": 0, "epochs": 10, "n_components": None},
    "no-seed": {"epochs": 10, "n_members": 2, "verbose": 1},
}


def data(case: str) -> tuple[Any, np.ndarray]:
    generator = np.random.default_rng(0)
    truth = generator.integers(3, size=300)
    X = (generator.normal(size=(300, 8)) + 2.0 * np.eye(8)[truth]).astype(np.float32)
    y = np.full(300, -1)
    shown = [np.flatnonzero(truth == 0)[0], np.flatnonzero(truth == 1)[0]] if case == "two-labels" else np.arange(90)
    y[shown] = truth[shown]
    if case == "sparse":
        import scipy.sparse as sp

        return sp.csr_array(np.where(X > 1, X, 0)), y
    return X, y


def fitted(case: str) -> dict[str, np.ndarray]:
    """Two fits: what a first one leaves behind must not disturb a second."""
    X, y = data(case)
    SobolevClassifier(**{**CASES[case], "epochs": 2, "verbose": 0}).fit(X, y)
    model = SobolevClassifier(**CASES[case]).fit(X, y)
    edges = model.graph_.edges()[0].numpy()
    return {
        "transduction": model.transduction_,
        "distributions": model.label_distributions_,
        "edges": edges[0] * model.graph_.num_nodes + edges[1],  # one number for each pair of nodes
        "edge_weights": model.graph_.weight.numpy(),
        "embedding": np.abs(model.embedding_),
        "shares": np.array(list(model.family_shares_.values())),
        "temperature": np.array(model.temperature_),
        "new": model.predict_proba(X[:20]),
    }


if __name__ == "__main__":
    case, folder = sys.argv[1], Path(sys.argv[2])
    if case == "other-data":
        X, y = data("defaults")
        SobolevClassifier().fit(X + int(os.environ["RANK"]), y)
    if case == "other-settings":
        X, y = data("defaults")
        SobolevClassifier(epsilon=0.1 + int(os.environ["RANK"])).fit(X, y)
    np.savez(folder / f"{os.environ['RANK']}.npz", **fitted(case))
