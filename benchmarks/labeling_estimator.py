"""Claim: what benchmarks/labeling_efficiency.py finds with a stand-in model holds for SobolevClassifier.

    python -m benchmarks.labeling_estimator --data FOLDER --names digits,segment,vehicle --draws 3

The same points, test parts and strategies; the model is SobolevClassifier(random_state=0), refitted at 10, 20, 35, 50,
75 and 100 labels. Prints accuracy on the test part at 20, 50 and 100 labels, mean over the draws.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from benchmarks.labeling_efficiency import FIRST_SEED, World
from sobgnn import SobolevClassifier
from sobgnn.estimator.suggestion import suggest_points

STEPS = (10, 20, 35, 50, 75, 100)
SHOWN = (20, 50, 100)


def run(world: World, strategy: str, seed: int) -> dict[int, float]:
    n = len(world.y)
    test = np.sort(np.random.default_rng(seed).permutation(n)[: n * 3 // 10])
    labelled, probabilities = np.array([], dtype=np.int64), None
    model = SobolevClassifier(random_state=0, warm_start=True)
    accuracy = {}
    for size in STEPS if strategy == "auto" else SHOWN:
        new = suggest_points(
            world.graph,
            probabilities,
            labelled,
            size - len(labelled),
            exclude=test,
            strategy=strategy,
            seed=seed + size,
        )
        labelled = np.concatenate([labelled, new])
        given = np.full(n, -1)
        given[labelled] = world.y[labelled]
        probabilities = model.fit(world.X, given).label_distributions_
        accuracy[size] = float((model.transduction_ == world.y)[test].mean())
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("SOBGNN_DATA"))
    parser.add_argument("--names", default="digits,segment,vehicle")
    parser.add_argument("--draws", type=int, default=3)
    asked = parser.parse_args()
    for name in asked.names.split(","):
        world = World(name, asked.data)
        for strategy in ("random", "auto"):
            found = [run(world, strategy, FIRST_SEED + draw) for draw in range(asked.draws)]
            shown = " / ".join(f"{100 * np.mean([one[size] for one in found]):.1f}" for size in SHOWN)
            print(f"{name:<12} {strategy:<8} {shown}", flush=True)


if __name__ == "__main__":
    main()
