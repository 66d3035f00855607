"""Data moves one way, downwards: a room imports only from rooms above it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "sobgnn"

# Top to bottom. A room imports from rooms above its own line; those on one line never import one another.
FLOORS = [
    {"_system"},
    {"propagation"},
    {"graphs"},
    {"operators"},
    {"sobolev"},
    {"spectrum"},
    {"nn"},
    {"training"},
    {"tables"},
    {"estimator"},
    {"sharded"},
    {"datasets"},
    {"paper"},
    {"app"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# What every room may ask the front door for.
FRONT = {"__version__"}


def docstrings(tree: ast.Module) -> set[int]:
    """The identity of every node that is a docstring: these name rooms without importing them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(id(first.value))
    return found


def imported_rooms(source: str) -> Iterator[str]:
    """Rooms named by imports at any depth, and by strings such as those given to ``import_module``."""
    tree = ast.parse(source)
    spoken = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "sobgnn":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sobgnn."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError("imports are absolute, so that this test sees them")
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("sobgnn."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken:
            parts = node.value.split(".")
            if parts[0] == "sobgnn" and len(parts) > 1 and parts[1].isidentifier():
                yield parts[1]


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def test_a_room_imports_only_from_rooms_above_it() -> None:
    wrong = []
    for path in modules():
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert room in FLOOR, f"{room} has no place in the house yet"
        others = {other for other in imported_rooms(path.read_text()) if other != room and other in FLOOR}
        wrong += [f"{path.relative_to(SOURCE)} imports {other}" for other in others if FLOOR[other] >= FLOOR[room]]
    assert not wrong


def test_a_string_and_an_import_inside_a_function_count() -> None:
    source = '"""See sobgnn.cli."""\ndef f():\n    from sobgnn.app.runs import x\n    load("sobgnn.tables.labels")\n'
    assert set(imported_rooms(source)) == {"app", "tables"}


def test_the_front_door_shows_public_names_only() -> None:
    import sobgnn

    assert dir(sobgnn) == sorted([*sobgnn.__all__, "__version__"])


def test_importing_the_package_leaves_heavy_libraries_alone() -> None:
    heavy = ["torch", "optuna", "polars", "matplotlib", "pandas", "rich", "triton", "starlette"]
    code = f"import sobgnn, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"
