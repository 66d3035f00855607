from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from sobgnn._system.packages import installed


class Refusing:
    """A finder of modules that refuses some packages, as sandboxes and tests install it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "json.tool":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_package_is_installed_if_an_import_would_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed("json")
    assert not installed("no_such_package_anywhere")
    monkeypatch.setitem(sys.modules, "json", None)
    monkeypatch.setitem(sys.modules, "no_such_package_anywhere", ModuleType("a stand-in without a spec"))
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Refusing(), *sys.meta_path])
    assert not any(map(installed, ("json", "no_such_package_anywhere", "json.tool")))


def test_the_estimator_works_where_an_import_hook_refuses_the_optional_packages() -> None:
    code = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("optuna", "polars", "plotly", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refusing())
import numpy as np
from sobgnn import SobolevClassifier
X = np.random.default_rng(0).normal(size=(40, 3)) + np.repeat([[0], [5]], 20, axis=0)
y = np.where(np.arange(40) % 4 == 0, np.arange(40) // 20, -1)
print((SobolevClassifier(families=["diffusion"], random_state=0).fit(X, y).predict(X) == np.arange(40) // 20).all())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "True", done.stderr
