"""Claim: "auto" needs 60 % of random's labels, and "more labels will hardly help now" is right when it is said.

    python -m benchmarks.labeling_report results/labeling.jsonl.gz [--plot results/labeling.png]
    python -m benchmarks.labeling_report results/labeling_estimator.jsonl.gz --strategies random,auto

Reads what benchmarks/labeling_efficiency.py or benchmarks/labeling_estimator.py wrote, prints the tables of
results/labeling.md, and draws the plot. Of each data set, the draws count that every strategy has.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from sobgnn.labeling.progress import CHANGED, FEWEST

SIZES = (10, 20, 50, 100, 200)
ORDER = ("random", "uncertain", "core-set", "TypiClust", "typical", "auto")
# A doubling of the labels that brings at most this much is "hardly help".
HARDLY = 0.01

Curves = dict[tuple[str, str], dict[int, list[float]]]


def read(path: Path, only: str | None) -> tuple[Curves, list[dict]]:
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    lines = [json.loads(line) for line in content.splitlines()]
    strategies = set(only.split(",")) if only else {line["strategy"] for line in lines}
    lines = [line for line in lines if line["strategy"] in strategies]
    have = Counter((line["dataset"], line["draw"]) for line in lines)
    lines = [line for line in lines if have[line["dataset"], line["draw"]] == len(strategies)]
    curves: Curves = defaultdict(lambda: defaultdict(list))
    for line in sorted(lines, key=lambda line: line["draw"]):
        for size, accuracy in line["accuracy"].items():
            curves[line["dataset"], line["strategy"]][int(size)].append(accuracy)
    return curves, lines


def needed(curve: dict[int, list[float]], goal: float) -> float:
    """Labels at which the mean curve first reaches the goal, between two sizes by a straight line; inf if never."""
    sizes = sorted(curve)
    means = [float(np.mean(curve[size])) for size in sizes]
    for place, mean in enumerate(means):
        if mean >= goal:
            if place == 0:
                return sizes[0]
            share = (goal - means[place - 1]) / max(mean - means[place - 1], 1e-12)
            return sizes[place - 1] + share * (sizes[place] - sizes[place - 1])
    return float("inf")


def efficiency(curves: Curves, names: list[str], strategies: list[str]) -> None:
    print("| accuracy % at 10 / 20 / 50 / 100 / 200 labels | " + " | ".join(strategies) + " |")
    print("|---" * (len(strategies) + 1) + "|")
    for name in names:
        cells = []
        for strategy in strategies:
            curve = curves[name, strategy]
            cells.append(" / ".join(f"{100 * np.mean(curve[size]):.1f}" for size in SIZES if size in curve))
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()
    print(
        "| | labels for random's accuracy at 100 (median) | mean gain over random, points, at 10 / 20 / 50 / 100 / 200 "
        "| cells worse than random by over a point | of these by over two standard errors | worst |"
    )
    print("|---|---|---|---|---|---|")
    for strategy in strategies:
        need, gains, worst, behind, clear = [], defaultdict(list), (1.0, "", 0), [], 0
        for name in names:
            random, own = curves[name, "random"], curves[name, strategy]
            if 100 in random:
                need.append(needed(own, float(np.mean(random[100]))))
            for size in SIZES:
                if size not in own or size not in random:
                    continue
                gap = np.asarray(own[size]) - np.asarray(random[size])
                gains[size].append(gap.mean())
                worst = min(worst, (float(gap.mean()), name, size))
                if gap.mean() < -HARDLY:
                    behind.append((name, size))
                    clear += bool(gap.mean() + HARDLY < -2 * gap.std(ddof=1) / np.sqrt(len(gap)))
        mean = " / ".join(f"{100 * np.mean(gains[size]):+.1f}" for size in SIZES)
        cells = sum(len(gains[size]) for size in SIZES)
        said = f"{100 * worst[0]:+.1f} ({worst[1]}, {worst[2]} labels)" if strategy != "random" else ""
        print(f"| {strategy} | {np.median(need):.0f} | {mean} | {len(behind)} of {cells} | {clear} | {said} |")
    print()
    print("Cells where auto is behind by over a point:", end=" ")
    for name in names:
        for size in SIZES:
            gap = np.asarray(curves[name, "auto"].get(size, [0])) - np.asarray(curves[name, "random"].get(size, [0]))
            if gap.mean() < -HARDLY:
                print(
                    f"{name} at {size} ({100 * gap.mean():+.1f} ± {100 * gap.std(ddof=1) / np.sqrt(len(gap)):.1f});",
                    end=" ",
                )
    print("\n")


def stopping(lines: list[dict]) -> None:
    """Compare the rule of sobgnn.labeling.progress with what doubling the labels once more did."""
    print("| changed by the last doubling | times | mean gain of the next, points | over 1 point | over 2 points |")
    print("|---|---|---|---|---|")
    pairs = []
    for line in lines:
        if line["strategy"] != "auto":
            continue
        accuracy = {int(size): value for size, value in line["accuracy"].items()}
        for size, changed in line["changed"].items():
            if int(size) >= FEWEST and 2 * int(size) in accuracy:
                pairs.append((changed, accuracy[2 * int(size)] - accuracy[int(size)]))
    changed, gain = np.array(pairs).T
    edges = (0, 0.01, CHANGED, 0.05, 0.1, 0.2, 1)
    for low, high in itertools.pairwise(edges):
        chosen = (changed > low if low else changed >= 0) & (changed <= high)
        if chosen.any():
            over = [f"{(gain[chosen] > limit).mean():.0%}" for limit in (0.01, 0.02)]
            mean = f"{100 * gain[chosen].mean():+.2f}"
            print(f"| {low:.0%} to {high:.0%} | {chosen.sum()} | {mean} | {over[0]} | {over[1]} |")
    little = gain <= HARDLY
    said = (changed[little] <= CHANGED).sum()
    print(f"\nOf {little.sum()} times that doubling brought at most a point, the rule said so {said} times.\n")


def draw(curves: Curves, names: list[str], strategies: list[str], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 4
    figure, axes = plt.subplots(-(-len(names) // columns), columns, figsize=(11, 10), sharex=True)
    for name, axis in zip(names, axes.flat, strict=False):
        for strategy in strategies:
            curve = curves[name, strategy]
            sizes = sorted(curve)
            strong = strategy in ("auto", "random")
            axis.plot(sizes, [100 * np.mean(curve[s]) for s in sizes], label=strategy, lw=2 if strong else 0.9)
        axis.set_title(name, fontsize=9)
        axis.set_xscale("log")
        axis.set_xticks(SIZES, [str(size) for size in SIZES])
        axis.minorticks_off()
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    axes.flat[0].legend(fontsize=7)
    figure.supxlabel("labels", fontsize=9)
    figure.supylabel("accuracy on points that are never chosen, %", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--strategies", help="these alone, so that more draws are common to all")
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    curves, lines = read(asked.lines, asked.strategies)
    names = list(dict.fromkeys(line["dataset"] for line in lines))
    strategies = [name for name in ORDER if any(line["strategy"] == name for line in lines)]
    efficiency(curves, names, strategies)
    stopping(lines)
    if asked.plot:
        draw(curves, names, strategies, asked.plot)


if __name__ == "__main__":
    main()
