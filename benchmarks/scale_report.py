"""results/scale.md from the lines that the scale benchmarks left in results/scale.jsonl.

python -m benchmarks.scale_report
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.scale_meter import LINES, kept
from benchmarks.scale_stages import NEIGHBORS, slopes

# Steps of which every shard has one task.
OF_A_SHARD = ("gather", "truth", "ask", "find", "merge", "graph", "halo", "share", "hop", "diffuse", "seen", "score")
OUT = Path(__file__).parents[1] / "results" / "scale.md"


def stages() -> list[str]:
    latest = {line["points"]: line for line in kept(what="stages")}
    lines = [latest[n] for n in sorted(latest)]
    if not lines:
        return []
    first, last = lines[0], lines[-1]
    grows, processor = (slopes(lines, clock) if len(lines) > 1 else {} for clock in ("seconds", "cpu"))
    head = " | ".join(f"{line['points']:,}" for line in lines)
    out = [
        "## Stages on one machine",
        "",
        "    python -m benchmarks.scale_stages",
        "",
        f"{first['machine']}; {first['features']} features, k = {first['k']}, {first['members']} members per family, "
        "approximate neighbors, 20 labels per class. Seconds; in brackets the peak of resident memory in GiB, mapped "
        "points included. The last column is the slope of processor time, which other work on the machine disturbs "
        "less. Load at the end of each size, this process included: "
        + ", ".join(f"{line['load']:.1f}" for line in lines)
        + ".",
        "",
        f"| stage | {head} | slope | of processor time |",
        "|---|" + "---|" * (len(lines) + 2),
    ]
    for name in last["seconds"]:
        cells = [
            f"{line['seconds'].get(name, float('nan')):.1f}"
            + (f" ({line['peak'][name]:.1f})" if name in line["peak"] else "")
            for line in lines
        ]
        verdict = "" if name in NEIGHBORS else (" holds" if grows.get(name, 0) <= 1.15 else " misses")
        both = f"{grows.get(name, float('nan')):.2f}{verdict} | {processor.get(name, float('nan')):.2f}"
        out.append(f"| {name} | {' | '.join(cells)} | {both} |")
    rows = {
        "whole fit": [f"{line['fit']:.0f}" for line in lines],
        "processor seconds of the stages": [f"{sum(line['cpu'].values()):.0f}" for line in lines],
        "highest memory, GiB": [f"{max(line['peak'].values()):.1f}" for line in lines],
        "recall": [f"{line['recall']:.4f}" if line["recall"] is not None else "exact" for line in lines],
        "accuracy %": [f"{100 * line['accuracy']:.2f}" for line in lines],
        "best possible %": [f"{100 * line['best']:.2f}" for line in lines],
        "new points %": [f"{100 * line['new_accuracy']:.2f}" for line in lines],
    }
    out += [f"| {name} | {' | '.join(cells)} | | |" for name, cells in rows.items()]
    return [*out, ""]


def shards() -> list[str]:
    latest = {line["points"]: line for line in kept(what="shards")}
    lines = [latest[n] for n in sorted(latest)]
    if not lines:
        return []
    out = [
        "## Shards",
        "",
        "    python -m benchmarks.scale_shards fit --points 10000000 --shards 16 --out RUN",
        "",
        f"{lines[-1]['machine']}; {lines[-1]['features']} columns, k = 15, 20 labels per class, two processes. "
        "Processor seconds of each step; in brackets the highest memory of a process in GiB, mapped files and "
        "libraries included, and megabytes written for other shards. Steps under 1 % are left out.",
        "",
        "| step | " + " | ".join(f"{line['points']:,} in {line['shards']}" for line in lines) + " |",
        "|---|" + "---|" * len(lines),
    ]
    for name, last in lines[-1]["steps"].items():
        if last["processor"] < 0.01 * lines[-1]["processor"]:
            continue
        steps = [line["steps"].get(name) for line in lines]
        cells = ["" if s is None else f"{s['processor']:.1f} ({s['peak']:.2f}; {s['MB']:.0f})" for s in steps]
        out.append(f"| {name} | {' | '.join(cells)} |")
    rows = {
        "processor seconds": [f"{line['processor']:.0f}" for line in lines],
        "seconds by the clock (load)": [f"{line['seconds']:.0f} ({line['load']:.0f})" for line in lines],
        "highest memory of a process, GiB": [f"{line['peak']:.2f}" for line in lines],
        "bytes written for other shards, a row": [f"{line['bytes_per_row']:.0f}" for line in lines],
        "recall, cells searched": [f"{line['recall']:.4f}, {line['near']}" for line in lines],
        "accuracy %": [f"{100 * line['accuracy']:.2f}" for line in lines],
        "best possible %": [f"{100 * line['best']:.2f}" for line in lines],
    }
    out += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    sizes = {line["shards"]: line for line in kept(what="shards of one size")}
    if sizes:
        points = next(iter(sizes.values()))["points"]
        out += [
            "",
            f"    python -m benchmarks.scale_shards memory --points {points}",
            "",
            "Highest memory of a process in the steps of a shard, about 0.45 GiB of it libraries.",
            "",
            "| shards | GiB | processor seconds | bytes written for other shards, a row |",
            "|---|---|---|---|",
        ]
        for number, line in sorted(sizes.items()):
            peak = max(step["peak"] for name, step in line["steps"].items() if name in OF_A_SHARD)
            out.append(f"| {number} | {peak:.2f} | {line['processor']:.1f} | {line['bytes_per_row']:.0f} |")
    for line in kept(what="shards, mnist")[-2:]:
        out += [
            "",
            f"mnist's 70 000 pictures in 4 shards (`scale_shards mnist`), {line['labels']} labels per class: recall "
            f"{line['recall']:.4f} in {line['near']} cells, accuracy {100 * line['accuracy']:.2f} %, "
            f"{line['processor']:.0f} processor seconds.",
        ]
    for line in [*kept(what="shards, kill")[-1:], *kept(what="shards, ray")[-1:]]:
        steps = dict.fromkeys(killed.split()[-1] for killed in line["killed"])
        who = ", ".join(dict.fromkeys(killed.split()[0] for killed in line["killed"]))
        again = Counter(task.split()[0] for task in line["again"])
        out += [
            "",
            f"    python -m benchmarks.scale_shards {line['what'].split()[-1]} --points {line['points']}",
            "",
            f"Killed in each of {', '.join(steps)}: {who}. Of {line['tasks']} tasks these were begun more than once: "
            f"{', '.join(f'{times} of {step}' for step, times in again.items()) or 'none'}. "
            f"Labels as of a run that nobody disturbed: {100 * line['same_labels']:.2f} %; probabilities differ by "
            f"at most {line['largest_difference']:.1g}.",
        ]
    return [*out, ""]


def mnist() -> list[str]:
    lines = kept(what="mnist")
    if not lines:
        return []
    out = [
        "## mnist, 70 000 points",
        "",
        "    SOBGNN_DATA=FOLDER python -m benchmarks.scale_mnist --new 100000",
        "",
        f"{lines[-1]['machine']}. Each in a process of its own; memory on top of the data. Neighbors: exact for "
        "sobgnn and LabelSpreading, graphlearning's own approximate ones (annoy) for Poisson learning; k = 10. "
        "New points: the first time, once their index is there, by exact neighbors.",
        "",
        "| labels per class | who | seconds | MB | accuracy % | 100 000 new points, s |",
        "|---|---|---|---|---|---|",
    ]
    latest = {(line["labels"], line["who"], line["draw"]): line for line in lines}
    for (labels, who, _), line in sorted(latest.items(), key=lambda item: item[0][0]):
        times = (line.get(f"{name}_seconds") for name in ("new", "new_again", "new_exact"))
        new = " / ".join(f"{seconds:.1f}" for seconds in times if seconds is not None)
        costs = f"{line['seconds']:.1f} | {line['megabytes']:.0f}"
        out.append(f"| {labels:g} | {who} | {costs} | {100 * line['accuracy']:.2f} | {new} |")
    return [*out, ""]


def cuda() -> list[str]:
    fits, most = kept(what="cuda stages"), kept(what="cuda largest")
    if not fits:
        return []
    line = fits[-1]
    out = [
        "## One GPU",
        "",
        "    PYTHONPATH=src:. python3 -m benchmarks.scale_cuda",
        "",
        f"{line['machine']}: {line['points']:,} x {line['features']} points, k = {line['k']}, neighbors by cells; fit "
        f"{line['fit']:.1f} s with the kernels' compilation, {line['again']:.1f} s without, accuracy "
        f"{100 * line['accuracy']:.2f} % (best possible {100 * line['best']:.2f} %).",
        "",
        "| stage, with what is done between the reports of it and of the one before | seconds |",
        "|---|---|",
        *(f"| {name} | {seconds:.2f} |" for name, seconds in line["seconds"].items()),
    ]
    if most:
        big = most[-1]
        out += [
            "",
            "Largest graph that trains, full batch, 64 features, hidden 64, α = 3 and the graph-free branch, 2 layers: "
            f"{big['nodes']:,} nodes and {big['entries']:,} entries, {big['step']:.3f} s per step, "
            f"{big['peak']:.1f} GiB; {big['failed']:,} nodes do not fit.",
        ]
    return [*out, ""]


def main() -> None:
    parts = [
        "# Many points",
        "",
        "Written by `python -m benchmarks.scale_report` from `results/scale.jsonl`.",
        "",
    ]
    for part in (stages, shards, mnist, cuda):
        parts += part()
    OUT.write_text("\n".join(parts).rstrip() + "\n")
    print(f"{OUT} from {LINES}")


if __name__ == "__main__":
    main()
