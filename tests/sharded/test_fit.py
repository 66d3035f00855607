"""A fit over shards is a fit of one machine on the same neighbors, however it is cut, stopped and resumed."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from sobgnn import SobolevOperators, graph_from_neighbors, sharded
from sobgnn.estimator.families.spreading import STRENGTH
from sobgnn.estimator.spreading import Smoother, diffuse, strongest
from sobgnn.graphs.knn import nearest
from sobgnn.sharded import engine, fitting
from sobgnn.sharded.propagate import Hops
from sobgnn.sharded.steps import Run
from tests.sharded.conftest import FAST, ROWS, Fits, blobs

Load = Callable[[sharded.Result, str], np.ndarray]


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_every_hop_is_that_of_the_whole_graph_on_the_same_neighbors(fits: Fits, load: Load, shards: int) -> None:
    result = fits.of(shards)
    graph = graph_from_neighbors(load(result, "neighbors").astype(np.int64), load(result, "distances"))
    operators = SobolevOperators(graph, alpha=2, epsilon=0.3)
    first = operators.propagate(torch.from_numpy(load(result, "points")))
    second = operators.propagate_each(first)
    own = [Hops(Run(result.out), shard) for shard in range(shards)]
    found = torch.cat([hops.blocks(np.arange(len(hops.points))) for hops in own], dim=1)
    torch.testing.assert_close(found[1:3].transpose(0, 1), first, rtol=0, atol=1e-5)
    torch.testing.assert_close(found[3:].transpose(0, 1), second, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shards", [1, 8])
def test_labels_are_diffused_as_over_the_whole_graph(fits: Fits, load: Load, shards: int) -> None:
    result = fits.of(shards)
    graph = graph_from_neighbors(load(result, "neighbors").astype(np.int64), load(result, "distances"))
    nodes, codes = (np.load(f"{result.out}/{name}.npy") for name in ("label-nodes", "label-order-codes"))
    whole = diffuse(Smoother(strongest(graph, 5)), STRENGTH, torch.from_numpy(nodes), torch.from_numpy(codes), 3)
    # Both are solved to 1e-3, perhaps by some steps more or fewer.
    np.testing.assert_allclose(load(result, "spread"), whole, atol=1e-4)


def test_predictions_do_not_depend_on_the_number_of_shards(fits: Fits) -> None:
    one, *others = (pl.read_parquet(fits.of(shards).predictions).sort("row") for shards in (1, 3, 8))
    columns = [f"probability_class {c}" for c in range(3)]
    for other in others:
        assert one["label"].equals(other["label"])
        np.testing.assert_allclose(one[columns].to_numpy(), other[columns].to_numpy(), atol=1e-5)


def test_neighbors_are_as_many_true_ones_as_was_measured(fits: Fits, load: Load) -> None:
    result = fits.of(3)
    distances = load(result, "distances")
    true = nearest(load(result, "points"), 10, method="exact").distances
    assert result.recall >= 0.99
    assert (distances <= true[:, -1:] * (1 + 1e-6)).mean() == pytest.approx(result.recall, abs=0.01)


def test_every_row_has_a_label_and_labeled_rows_keep_theirs(fits: Fits) -> None:
    table = pl.read_parquet(fits.of(3).predictions).sort("row")
    assert table["row"].to_list() == list(range(ROWS))
    assert [table["label"][row] for row in fits.labels] == list(fits.labels.values())
    assert all(table[f"probability_{label}"][row] == 1 for row, label in fits.labels.items())
    right = table["label"] == pl.Series([f"class {c}" for c in fits.truth])
    assert right.mean() > 0.97
    probabilities = table.select(pl.sum_horizontal("^probability_.*$")).to_series()
    np.testing.assert_allclose(probabilities, 1, atol=1e-5)


def test_new_rows_are_predicted_by_their_neighbors(fits: Fits, tmp_path: Path) -> None:
    points, truth = blobs(seed=5, rows=500)
    np.save(tmp_path / "new.npy", points)
    found = [
        pl.read_parquet(sharded.predict(fits.of(shards).out, tmp_path / "new.npy", tmp_path / f"out-{shards}"))
        for shards in (1, 8)
    ]
    assert (found[0]["label"] == pl.Series([f"class {c}" for c in truth])).mean() > 0.95
    assert found[0]["row"].to_list() == list(range(500))
    np.testing.assert_allclose(found[0][:, 2:].to_numpy(), found[1][:, 2:].to_numpy(), atol=1e-5)
    # A training point joined to itself and its neighbors is predicted much as it was.
    np.save(tmp_path / "old.npy", fits.points[:400])
    again = pl.read_parquet(sharded.predict(fits.of(3).out, tmp_path / "old.npy", tmp_path / "old"))
    before = pl.read_parquet(fits.of(3).predictions).sort("row")[:400]
    assert (again["label"] == before["label"]).mean() > 0.98


class Stops(engine.Local):
    """An engine that is killed after a number of tasks, and counts them."""

    def __init__(self, most: int) -> None:
        self.most, self.done = most, 0

    def map(self, step: Callable[[Any], Any], args: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number, argument in enumerate(args):
            if self.done == self.most:
                raise KeyboardInterrupt
            self.done += 1
            yield number, step(argument)


def test_a_fit_that_was_killed_resumes_and_runs_no_task_again(
    fits: Fits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, tasks = fits.of(3), 0
    for most in (5, 9, 20, 7, 60, 10_000):
        stops = Stops(most)
        monkeypatch.setattr(fitting, "make_engine", lambda _, stops=stops: stops)
        if most < 10_000:
            with pytest.raises(KeyboardInterrupt):
                fits(tmp_path / "run", keep=False)
        else:
            result = fits(tmp_path / "run", keep=False)
        tasks += stops.done
    steps = [json.loads(path.read_text()) for path in (Path(whole.out) / "done").glob("*.json")]
    assert tasks == sum(len(step) for step in steps)
    assert pl.read_parquet(result.predictions).equals(pl.read_parquet(whole.predictions))
    again = Stops(0)
    monkeypatch.setattr(fitting, "make_engine", lambda _: again)
    assert fits(tmp_path / "run", keep=False) == result  # nothing is left to run


def test_a_pool_of_processes_resumes_what_this_process_began(
    fits: Fits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "make_engine", lambda _: Stops(30))
        with pytest.raises(KeyboardInterrupt):
            fits(tmp_path / "run")
    result = fits(tmp_path / "run", engine="local:2")
    assert pl.read_parquet(result.predictions).equals(pl.read_parquet(fits.of(3).predictions))


def test_a_bucket_serves_as_a_folder_does(fits: Fits) -> None:
    result = sharded.fit(fits.folder / "data", fits.labels, "memory://bucket/run", shards=3, **FAST)
    again = sharded.fit(fits.folder / "data", fits.labels, "memory://bucket/run", shards=3, **FAST)
    import fsspec

    files = fsspec.filesystem("memory")
    found = pl.concat([pl.read_parquet(files.open(path)) for path in sorted(files.glob("/bucket/run/predictions/*"))])
    assert found.equals(pl.read_parquet(fits.of(3).predictions))
    assert again == result


def test_half_precision_changes_probabilities_little(
    fits: Fits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "_HALF", 0)
    half = fits(tmp_path / "run")
    assert np.load(f"{half.out}/points-0.npy").dtype == np.load(f"{half.out}/hop-0.npy").dtype == np.float16
    pair = [pl.read_parquet(result.predictions).sort("row") for result in (half, fits.of(3))]
    assert (pair[0]["label"] == pair[1]["label"]).mean() > 0.995


def test_fits_are_diffused_one_at_a_time_where_they_do_not_fit_in_memory(
    fits: Fits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Load
) -> None:
    monkeypatch.setattr(fitting, "_SPREAD", 1)
    one = fits(tmp_path / "run")
    assert len(list((Path(one.out) / "done").glob("spread-*.json"))) == 5
    np.testing.assert_allclose(load(one, "spread"), load(fits.of(3), "spread"), atol=1e-4)
    assert pl.read_parquet(one.predictions)["label"].equals(pl.read_parquet(fits.of(3).predictions)["label"])


def test_copies_are_not_searched_for_all_others(tmp_path: Path) -> None:
    points, truth = blobs(rows=2500)
    points[:1500] = points[0]
    np.save(tmp_path / "X.npy", points)
    labels = {row: int(truth[row]) if row >= 1500 else int(truth[0]) for row in range(1, 2500, 50)}
    result = sharded.fit(tmp_path / "X.npy", labels, tmp_path / "run", shards=2, keep=True, **FAST)
    searched = sum(len(np.load(f"{result.out}/searched-{shard}.npy")) for shard in range(2))
    assert searched < 1300  # 1000 others, and some of the copies
    table = pl.read_parquet(result.predictions).sort("row")
    assert (table["label"].to_numpy()[1500:] == truth[1500:]).mean() > 0.9
    assert table["label"][:1500].n_unique() == 1


def test_progress_says_what_is_done_and_how_much_disk_it_takes(fits: Fits, tmp_path: Path) -> None:
    lines: list[str] = []
    fits(tmp_path / "run", progress=lines.append)
    assert "3,000 rows of 3 files; at most about" in lines[0]
    assert "find, 3 of 3" in " ".join(lines)
    assert "left" in lines[-5]


def test_files_that_nothing_reads_anymore_are_removed(fits: Fits, tmp_path: Path) -> None:
    result = fits(tmp_path / "run", keep=False)
    names = {path.name.rsplit("-", 1)[0] for path in Path(result.out).glob("*.npy")}
    assert not names & {"part-points", "neighbors", "state-0", "sent-hop", "all-0", "seen"}
    assert {"points", "hop", "spread"} <= names


def test_there_may_be_more_shards_than_cells(fits: Fits, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", fits.points[:300])
    labels = {row: int(fits.truth[row]) for row in range(0, 300, 10)}
    found = [
        pl.read_parquet(sharded.fit(tmp_path / "X.npy", labels, tmp_path / f"{s}", shards=s, **FAST).predictions)
        for s in (1, 5)
    ]
    assert found[0].sort("row")["label"].equals(found[1].sort("row")["label"])


def test_a_label_of_each_class_is_enough(fits: Fits, tmp_path: Path) -> None:
    labels = {int(np.flatnonzero(fits.truth == c)[0]): c for c in range(3)}
    result = sharded.fit(fits.folder / "data", labels, tmp_path / "run", shards=2, **FAST)
    assert result.accuracy is None  # none can be held out
    assert set(pl.read_parquet(result.predictions)["label"]) == {0, 1, 2}


def test_many_columns_are_projected(tmp_path: Path) -> None:
    points, truth = blobs(rows=800)
    wide = points @ np.random.default_rng(2).normal(size=(points.shape[1], 40)).astype(np.float32)
    np.save(tmp_path / "X.npy", wide)
    labels = {row: int(truth[row]) for row in range(0, 800, 20)}
    result = sharded.fit(tmp_path / "X.npy", labels, tmp_path / "run", shards=2, n_components=8, **FAST)
    assert np.load(f"{result.out}/points-0.npy").shape[1] == 8
    table = pl.read_parquet(result.predictions).sort("row")
    assert (table["label"].to_numpy() == truth).mean() > 0.95


def test_without_the_family_nothing_is_diffused(fits: Fits, tmp_path: Path) -> None:
    result = fits(tmp_path / "run", families=["linear", "sobolev"])
    assert not list((Path(result.out) / "done").glob("diffuse*"))
    assert set(result.shares) <= {"linear", "sobolev"}
    new = pl.read_parquet(sharded.predict(result.out, fits.folder / "data" / "part-0.npy", tmp_path / "out"))
    assert (new["label"] == pl.read_parquet(result.predictions).sort("row")["label"][: len(new)]).mean() > 0.95
