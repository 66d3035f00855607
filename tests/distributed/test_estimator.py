"""A script that fits, run by torchrun without a change: real processes over gloo."""

from pathlib import Path

import numpy as np
import pytest

from . import script
from .test_fit import torchrun

# What users see, which moving the points by one ulp moves by less than this. Weights are not compared: Adam moves one
# by its learning rate also where the gradient is nothing but rounding, and embeddings move with them.
TOLERANCE = {"distributions": 2e-5, "new": 2e-5, "edge_weights": 1e-6, "edges": 0, "shares": 5e-3, "temperature": 5e-3}


def outcomes(case: str, ranks: int, folder: Path) -> tuple[list[dict[str, np.ndarray]], str]:
    done = torchrun(ranks, script.__file__, case, str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    results = []
    for rank in range(ranks):
        with np.load(folder / f"{rank}.npz") as result:
            results.append(dict(result))
    return results, done.stdout


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        ("defaults", 1),
        pytest.param("defaults", 2, marks=pytest.mark.trains),
        ("defaults", 3),
        pytest.param("two-labels", 3, marks=pytest.mark.trains),
        ("sparse", 2),
    ],
)
def test_every_rank_ends_with_what_one_process_fits(case: str, ranks: int, tmp_path: Path) -> None:
    expected = script.fitted(case)
    results, printed = outcomes(case, ranks, tmp_path)
    for result in results:
        for name, tolerance in TOLERANCE.items():
            np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=tolerance, err_msg=name)
        assert set(result) == set(expected)
        for name, value in result.items():  # over ranks everything is the same, bit by bit
            np.testing.assert_array_equal(value, results[0][name], err_msg=name)
        # The likeliest class, but where two are as likely as each other.
        likeliest, second = np.sort(expected["distributions"], axis=1)[:, ::-1].T[:2]
        sure = likeliest - second > 1e-4
        assert sure.mean() > 0.9
        np.testing.assert_array_equal(result["transduction"][sure], expected["transduction"][sure])
    assert printed == ""


def test_ranks_agree_on_approximate_neighbors_and_share_the_index(tmp_path: Path) -> None:
    results, _ = outcomes("hnsw", 2, tmp_path)
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value, err_msg=name)
    exact, found = script.fitted("defaults")["edges"], results[0]["edges"]
    assert len(np.unique(found)) == len(found)
    assert len(np.intersect1d(found, exact)) > 0.95 * max(len(exact), len(found))


def test_without_a_seed_ranks_use_one_and_rank_0_alone_speaks(tmp_path: Path) -> None:
    results, printed = outcomes("no-seed", 2, tmp_path)
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value, err_msg=name)
    assert printed.count("labels of 300 points") == 1


def test_ranks_with_different_points_are_refused(tmp_path: Path) -> None:
    done = torchrun(2, script.__file__, "other-data", str(tmp_path))
    assert done.returncode != 0
    assert "ValueError: Every rank must fit the same points and labels" in done.stderr


def test_ranks_with_different_parameters_are_refused(tmp_path: Path) -> None:
    done = torchrun(2, script.__file__, "other-settings", str(tmp_path))
    assert done.returncode != 0
    assert "ValueError: Every rank must fit with the same parameters and graph" in done.stderr
