"""The kernels by other compilers and for other processors, against the portable backend. Slow: `.ci/cpus builds`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from sobgnn.propagation import SobolevCSR, portable
from tests.propagation.propagation_cases import csr_of, random_graph, rows_of

pytestmark = pytest.mark.builds
KERNELS = Path(portable.__file__).parent
# As pyproject.toml has them, but for OpenMP.
FLAGS = ["-O3", "-std=c++17", "-fno-math-errno", "-Wall", "-Wextra", "-Wno-maybe-uninitialized", "-Werror"]
FLAGS += ["-Wno-unknown-warning-option"]
COMPILERS = {"gcc": "g++", "clang": "clang++", "aarch64": "aarch64-linux-gnu-g++"}


@pytest.fixture(scope="module", params=[(name, openmp) for name in COMPILERS for openmp in (True, False)], ids=str)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs harness.cpp, built by one compiler with or without OpenMP."""
    name, openmp = request.param
    compiler, emulator = shutil.which(COMPILERS[name]), shutil.which("qemu-aarch64")
    if compiler is None:
        pytest.skip(f"{COMPILERS[name]} is not installed")
    if name == "aarch64" and emulator is None:
        pytest.skip("qemu-aarch64 is not installed")
    program = tmp_path_factory.mktemp("build") / "harness"
    sources = [*sorted(KERNELS.glob("*.cpp")), Path(__file__).with_name("harness.cpp")]
    # A program for another processor finds no shared libraries here.
    flags = [*FLAGS, *(["-fopenmp"] if openmp else []), *(["-static", "-pthread"] if name == "aarch64" else [])]
    done = subprocess.run([compiler, *flags, *sources, "-o", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return [*([emulator] if name == "aarch64" else []), str(program)]


def write_problem(path: Path, csr: SobolevCSR, x: torch.Tensor, g: torch.Tensor, threads: int) -> None:
    sizes = [*csr.row_scale.shape[:1], *csr.column_scale.shape[:1], g.shape[1], g.shape[2], len(csr.indices)]
    tensors = [
        torch.tensor([*sizes, threads]),
        *csr[:8],
        torch.tensor([csr.epsilon], dtype=torch.float64),
        x,
        g,
    ]
    path.write_bytes(b"".join(np.ascontiguousarray(tensor.numpy()).tobytes() for tensor in tensors))


def expected(csr: SobolevCSR, x: torch.Tensor, g: torch.Tensor) -> list[torch.Tensor]:
    """What harness.cpp writes, from the portable backend."""
    rows, (_, alpha, width) = len(csr.row_scale), g.shape
    results = []
    for argument, shape in ((x, (rows, alpha, width)), (g, (rows, width)), (g, (rows, alpha, width))):
        results.append(torch.empty(shape, dtype=torch.float64))
        portable.run(csr, argument, results[-1])
    return results


@pytest.mark.parametrize(("alpha", "width"), [(1, 1), (3, 16), (4, 37), (8, 5)])
@pytest.mark.parametrize("threads", [1, 3])
def test_it_gives_the_portable_backends_numbers(
    harness: list[str], tmp_path: Path, alpha: int, width: int, threads: int
) -> None:
    generator = torch.Generator().manual_seed(alpha)
    graph = random_graph(60, 6, isolated=3, hub=True)
    square = csr_of(graph, alpha, 0.75, torch.float64)
    for csr in (square, rows_of(graph, [5, 0, 59, 31], alpha, 0.75, torch.float64)):
        inputs = len(csr.column_scale)
        x = torch.randn(inputs, width, generator=generator, dtype=torch.float64)
        g = torch.randn(inputs, alpha, width, generator=generator, dtype=torch.float64)
        write_problem(tmp_path / "in", csr, x, g, threads)
        subprocess.run([*harness, tmp_path / "in", tmp_path / "out"], check=True, timeout=300, capture_output=True)
        wanted = torch.cat([values.flatten() for values in expected(csr, x, g)])
        got = torch.from_numpy(np.fromfile(tmp_path / "out")).view(2, -1)
        torch.testing.assert_close(got[1], wanted, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(got[0], wanted, rtol=1e-4, atol=1e-4)


def test_the_environment_holds_it_to_an_instruction_set(harness: list[str], tmp_path: Path) -> None:
    csr = csr_of(random_graph(20, 4), 2, 0.75, torch.float64)
    x, g = torch.ones(20, 8, dtype=torch.float64), torch.ones(20, 2, 8, dtype=torch.float64)
    write_problem(tmp_path / "in", csr, x, g, 1)
    levels, results = [], []
    for held in ("plain", "avx2", "avx512"):
        done = subprocess.run(
            [*harness, tmp_path / "in", tmp_path / "out"], check=True, capture_output=True,
            env={**os.environ, "SOBGNN_CPU": held},
        )  # fmt: skip
        levels.append(int(done.stdout))
        results.append(torch.from_numpy(np.fromfile(tmp_path / "out")))
    assert levels[0] == 1
    assert sorted(levels) == levels
    if "qemu" in harness[0]:
        assert set(levels) == {1}
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-5)


def test_it_multiplies_and_adds_whole_vectors(harness: list[str]) -> None:
    """NEON's on AArch64, and those of each form on x86-64."""
    objdump = shutil.which("aarch64-linux-gnu-objdump" if "qemu" in harness[0] else "objdump")
    if objdump is None:
        pytest.skip("objdump is not installed")
    code = subprocess.run([objdump, "-d", harness[-1]], check=True, capture_output=True, text=True).stdout
    if "qemu" in harness[0]:
        wanted = [r"fmla\tv\d+\.4s", r"fmla\tv\d+\.2d"]
    else:
        wanted = [rf"vfmadd\w+p[sd].*%{register}" for register in ("ymm", "zmm")] + [r"mulps.*%xmm"]
    for pattern in wanted:
        assert len(re.findall(pattern, code)) > 50, pattern
