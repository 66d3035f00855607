"""Data moves one way, downwards: a module imports only from modules above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sobgnn"

# Top to bottom. A folder stands for all of its modules, which may import one another.
ORDER = [
    "arrays",
    "memory",
    "ranks",
    "propagation",
    "neighbors",
    "graph_report",
    "graph",
    "knn",
    "weights",
    "operators",
    "sobolev",
    "spectrum",
    "dropout",
    "cascade",
    "conv",
    "model",
    "steps",
    "training",
    "checkpoint",
    "distributed",
    "baselines",
    "given",
    "features",
    "labels",
    "smoothing",
    "calibration",
    "blending",
    "ensemble",
    "selftraining",
    "weak",
    "preparation",
    "fitting",
    "inductive",
    "predictor",
    "inputs",
    "suggestion",
    "artifact",
    "saving",
    "classifier",
    "datasets",
    "protocol",
    "tables",
    "fitted",
    "report",
    "run_folder",
    "terminal",
    "options",
    "tuning",
    "cli",
]


# The ways down, imported when they are called, so that nothing below is needed otherwise: an estimator that is asked to
# tune itself calls the search, which fits estimators; the protocol's command for tables calls what reads its lines.
ON_REQUEST = {"classifier": {"tuning"}, "protocol": {"report"}}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "sobgnn":
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sobgnn."):
            rooms.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("sobgnn.")}
    return {room for room in rooms if not room.startswith("__")}


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_modules_above_it(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert room in ORDER, f"{room} has no place in the order yet"
    below = {name for name in imported_rooms(path) if ORDER.index(name) > ORDER.index(room)}
    assert not below - ON_REQUEST.get(room, set())


def test_what_is_imported_on_request_is_not_imported_before() -> None:
    loads = "import sobgnn.classifier, sobgnn.protocol.__main__, sys"
    code = f"{loads}; print([m for m in sys.modules if m.startswith(('sobgnn.tuning', 'sobgnn.report'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_leaves_heavy_libraries_alone() -> None:
    heavy = ["optuna", "faiss", "polars", "plotly", "matplotlib", "pandas", "typer", "triton"]
    code = f"import sobgnn, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"
