"""What README and examples/ show runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_block_has_twelve_lines():
    assert len(BLOCKS[0].strip().splitlines()) == 12


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_code_in_the_readme_runs(block, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[block], f"README block {block}", "exec"), {})
    if block == 0:
        right = float(re.search(r"right: ([\d.]+)", capsys.readouterr().out).group(1))
        assert right > 0.85


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_examples_are_short_run_and_are_mostly_right(example, capsys, monkeypatch, tmp_path):
    path = ROOT / "examples" / example
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    shares = re.findall(r"([\d.]+)% right", capsys.readouterr().out)
    assert shares
    assert all(float(share) > 85 for share in shares)
