"""Claim: layers of attention for all members at once train at least 2.5 times as fast as passes over edges one by one.

Milliseconds of a step (forward, backward, Adam, a fifth of a validation) of 10 members on CUDA, by CUDA graphs, and the
trainings of 500 steps that a minute holds. --mapped times the one fused pass over edges that is mapped over members
instead of whole layers. Before both, 10 members took what BEFORE says, on an H200 with isolet.

Run: python -m benchmarks.attention_step [--data FOLDER] [--dataset isolet] [--members 10] [--mapped]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from sobgnn.baselines.attention import AttentionNet
from sobgnn.protocol import data as datafiles
from sobgnn.protocol.evaluate import Laboratory, Limits
from sobgnn.protocol.plan import Batch, Cell, Member

# Passes of their own for dot products, softmax and sums over the edges: hidden, layers, heads.
BEFORE = {
    ("GAT", (32, 3, 3)): 9.62, ("GAT", (64, 4, 4)): 16.56, ("SuperGAT", (32, 3, 3)): 9.21,
    ("SuperGAT", (64, 4, 4)): 23.37, ("Transformer", (32, 3, 3)): 11.82, ("Transformer", (64, 4, 4)): 30.91,
}  # fmt: skip


def step(lab: Laboratory, model: str, shape: tuple[int, int, int], members: int) -> float:
    """Milliseconds of a step."""
    hidden, layers, heads = shape
    setting: dict[str, Any] = {"lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5}
    setting |= {"hidden": hidden, "layers": layers, "heads": heads}
    batch_members = tuple(Member(0, setting, seed) for seed in range(members))
    batch = Batch(Cell("benchmark", lab.data.name, model, trials=1), "search", batch_members, 1.0)
    times = []
    for count in (10, 20, 100):  # the first compiles
        lab.limits = Limits(count, 10_000)
        torch.cuda.synchronize()
        start = time.perf_counter()
        lab.run(batch)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * (times[2] - times[1]) / 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="isolet")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--mapped", action="store_true")
    chosen = parser.parse_args()
    if chosen.mapped:
        AttentionNet.members = lambda *_: None  # type: ignore[assignment,method-assign]
    torch.set_float32_matmul_precision("high")
    lab = Laboratory(datafiles.load(chosen.dataset, chosen.data), torch.device("cuda"), Limits())
    print(__doc__.splitlines()[0])
    for (model, shape), before in BEFORE.items():
        each = step(lab, model, shape, chosen.members)
        rate = chosen.members * 120 / each
        line = f"{model:12} hidden, layers, heads {shape}  {each:6.2f} ms a step  {rate:5.0f} a minute"
        if chosen.dataset == "isolet" and chosen.members == 10:
            verdict = "holds" if before >= 2.5 * each else "MISSES"
            line += f"   {before / each:.1f} times as fast as before   {verdict}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
