from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap as oracle

from sobgnn.paper.report import few_labels_markdown, shortfall, write
from sobgnn.paper.results import Interval, Record, append, bootstrap, published, summarize


def line(stage: str, model: str, trial: int, seed: int, score: float, variant: str = "", **changes: object) -> Record:
    fields: dict[str, object] = {
        "study": "table1", "stage": stage, "dataset": "isolet", "labels": "10%", "model": model, "variant": variant,
        "trial": trial, "setting": {"lr": 0.01 * (trial + 1)}, "seed": seed,
        "validation_accuracy": score, "test_accuracy": score if stage == "test" else None,
        "best_epoch": 5, "epochs": 10, "members": 1, "seconds": 1.5,
    }  # fmt: skip
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def records() -> list[Record]:
    lines = []
    for model, low, high in (("S-SobGNN", 0.85, 0.90), ("GCN", 0.88, 0.80)):
        for trial, score in enumerate((low, high)):
            lines += [line("search", model, trial, seed, score) for seed in range(5)]
        best = 1 if model == "S-SobGNN" else 0
        lines += [line("test", model, best, 1000 + seed, 0.87 + 0.01 * (seed % 2)) for seed in range(4)]
    lines += [line("test", "GCN", 0, 1000 + seed, 0.6, variant="head=paper") for seed in range(4)]
    return lines


def test_the_interval_is_that_of_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(3).normal(90, 4, size=50)
    ours = bootstrap(values.tolist())
    theirs = oracle((values,), np.mean, n_resamples=1000, method="percentile", rng=20221).confidence_interval
    assert ours == pytest.approx((values.mean(), theirs.low, theirs.high))
    assert ours.margin == pytest.approx(max(ours.mean - theirs.low, theirs.high - ours.mean))
    assert Interval(10.0, 9.0, 12.0).margin == 2.0


def test_a_paired_difference_reads_shared_seeds_alone_and_what_they_share_cancels() -> None:
    luck = np.random.default_rng(1).normal(0.5, 0.1, size=30)
    lines = [line("test", "S-SobGNN", 0, seed, x + 0.01) for seed, x in enumerate(luck)]
    lines += [line("test", "GCN", 0, seed, x) for seed, x in enumerate(luck) if seed != 7]
    lines.append(line("test", "GCN", 0, 99, 1e6))
    ours, theirs = summarize(lines)
    found = ours.minus(theirs)
    assert found is not None
    assert found[0] == pytest.approx((1, 1, 1))
    assert found[1] == 29
    assert ours.minus(ours) is None
    assert ours.minus(summarize([line("test", "GCN", 0, 99, 0.5)])[0]) is None


def test_the_best_mean_validation_chooses_the_setting_whose_seeds_count(records: list[Record]) -> None:
    # A setting that was tested before the search went on must not count, nor a trial without all its seeds.
    stale = [line("test", "S-SobGNN", 0, 1000 + seed, 0.1) for seed in range(4)]
    ours = summarize([*stale, *records, line("search", "S-SobGNN", 2, 0, 1.0)])[0]
    assert (ours.model, ours.trial, ours.trials, ours.search_seeds) == ("S-SobGNN", 1, 2, 5)
    assert ours.accuracy.mean == pytest.approx(87.5)
    assert not ours.overtaken


def test_of_settings_that_were_tested_the_best_one_stands_until_a_better_one_is(records: list[Record]) -> None:
    found = [line("search", "S-SobGNN", 2, seed, 0.95) for seed in range(5)]  # the search went on
    stale = [line("test", "S-SobGNN", 0, 1000 + seed, 0.1) for seed in range(4)]
    ours = summarize([*stale, *records, *found])[0]
    assert (ours.trial, ours.trials, ours.overtaken) == (1, 3, True)
    assert shortfall(ours) == "3 trials, 4 seeds, search went on"


def test_settings_that_are_equal_stay_equal_in_whatever_order_their_seeds_came() -> None:
    scores = (0.1, 0.2, 0.3, 0.4, 0.7)  # added one by one from the other end they are 2e-16 more
    search = [line("search", "GCN", 0, seed, score) for seed, score in enumerate(scores)]
    search += [line("search", "GCN", 1, seed, score) for seed, score in enumerate(reversed(scores))]
    (cell,) = summarize([*search, line("test", "GCN", 0, 1000, 0.5)])
    assert cell.trial == 0
    assert not cell.overtaken


def test_few_labels_come_in_order_and_the_best_stands_out() -> None:
    scores = {("Poisson", "5/class"): 0.6, ("GCN", "5/class"): 0.7, ("Poisson", "1/class"): 0.5}
    lines = [
        line("test", model, -1, 1000 + seed, score, study="few-labels", labels=labels)
        for (model, labels), score in scores.items()
        for seed in range(20)
    ]
    text = "\n".join(few_labels_markdown(summarize(lines)))
    assert "|  | 1/class | 5/class |\n|---|---|---|\n| GCN | – | **70.00 ± 0.00** |" in text
    assert "| Poisson | **50.00 ± 0.00** | 60.00 ± 0.00 |" in text


def test_the_report_holds_ours_beside_the_papers_and_says_what_is_short(records: list[Record], tmp_path: Path) -> None:
    append(tmp_path / "lines" / "table1.jsonl", records)
    for out in ("one", "two"):
        write(tmp_path / "lines", tmp_path / out)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["table1.csv", "table1.md", "table1.png"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    text = (tmp_path / "one" / "table1.md").read_text()
    assert "| GCN | 87.50 ± 0.50 (2 trials, 4 seeds)<br>*55.55 ± 2.72* |" in text
    assert "60.00 ± 0.00" in text  # the paper's head
    assert "| cpu | 32 | 0.8 |" in text
    rows = list(csv.DictReader((tmp_path / "one" / "table1.csv").read_text().splitlines()))
    assert [row["model"] for row in rows] == ["S-SobGNN", "GCN", "GCN"]
    assert float(rows[1]["paper_mean"]) == 55.55
    assert float(rows[2]["ours_minus_mean"]) == pytest.approx(27.5)


def test_a_cell_says_how_it_deviates_from_the_protocol(records: list[Record]) -> None:
    assert shortfall(summarize(records)[0]) == "2 trials, 4 seeds"
    for steps in (20, 2000):
        others = [replace(record, most_epochs=steps, data="own graph") for record in records]
        assert shortfall(summarize(others)[0]) == f"2 trials, 4 seeds, {steps} steps, own graph"


def test_the_papers_numbers_are_those_of_its_table() -> None:
    assert published("S-SobGNN", "har") == (92.85, 0.58)
    assert published("Cheby", "cancer-binary") == (87.55, 3.91)
    assert published("MLP", "har") is None
    assert published("GCN", "mnist") is None
