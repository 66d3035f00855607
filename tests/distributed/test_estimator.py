"""A script that fits, run by torchrun without a change: real processes over gloo."""

from pathlib import Path

import numpy as np
import pytest

from . import script
from .test_fit import torchrun

# Adam moves a weight by its learning rate also where the gradient is nothing but rounding; what is said does not move.
TOLERANCE = {"embedding": 2e-3, "distributions": 1e-5, "new": 1e-5, "edge_weights": 1e-6}


def outcomes(case: str, ranks: int, folder: Path) -> tuple[list[dict[str, np.ndarray]], str]:
    done = torchrun(ranks, script.__file__, case, str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    results = []
    for rank in range(ranks):
        with np.load(folder / f"{rank}.npz") as result:
            results.append(dict(result))
    return results, done.stdout


@pytest.mark.parametrize(
    ("case", "ranks"), [("defaults", 1), ("defaults", 2), ("defaults", 3), ("two-labels", 3), ("sparse", 2)]
)
def test_every_rank_ends_with_what_one_process_fits(case: str, ranks: int, tmp_path: Path) -> None:
    expected = script.fitted(case)
    results, printed = outcomes(case, ranks, tmp_path)
    for result in results:
        for name, value in expected.items():
            np.testing.assert_allclose(result[name], value, atol=TOLERANCE.get(name, 5e-4), err_msg=name)
            np.testing.assert_array_equal(result[name], results[0][name], err_msg=name)
    assert printed == ""


def test_ranks_agree_on_approximate_neighbours_and_share_the_index(tmp_path: Path) -> None:
    results, _ = outcomes("hnsw", 2, tmp_path)
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value, err_msg=name)
    exact = script.fitted("defaults")["edges"]
    assert len(np.intersect1d(results[0]["edges"], exact)) > 0
    assert abs(len(results[0]["edges"]) - len(exact)) < 0.05 * len(exact)


def test_without_a_seed_ranks_use_one_and_rank_0_alone_speaks(tmp_path: Path) -> None:
    results, printed = outcomes("no-seed", 2, tmp_path)
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value, err_msg=name)
    assert printed.count("labels of 300 points") == 1


def test_ranks_with_different_points_are_refused(tmp_path: Path) -> None:
    done = torchrun(2, script.__file__, "other-data", str(tmp_path))
    assert done.returncode != 0
    assert "ValueError: Every rank must fit the same points and labels" in done.stderr
