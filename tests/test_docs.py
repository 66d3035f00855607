"""The site: every page is in its menu, code runs. Links: test_readme."""

from __future__ import annotations

import doctest
import importlib
import os
import re
from pathlib import Path
from unittest.mock import patch

import pytest

from sobgnn.datasets.catalogue import CATALOGUE
from sobgnn.paper.models import MODELS

ROOT = Path(__file__).parents[1]
# Pages whose Python blocks run one after another, as a reader would run them. Others show parts of longer programs.
RUNNABLE = [ROOT / "docs" / f"{page}.md" for page in ("index", "tables", "paper", "scaling", "scikit_learn")]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_every_page_is_in_the_menu_and_every_entry_of_the_menu_is_a_page():
    menu = set(re.findall(r"^ +- .*?: ?([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    outside = {"CONTRIBUTING.md", "CHANGELOG.md"}
    assert menu - outside == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert outside <= menu


def test_the_reference_has_every_public_name():
    import sobgnn

    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^::: sobgnn\.(\w+)", page, re.MULTILINE))
    assert set(sobgnn.__all__) <= described
    for full in re.findall(r"^::: (\S+)", page, re.MULTILINE):
        home, _, last = full.rpartition(".")
        assert getattr(importlib.import_module(home), last).__doc__


def test_the_estimator_page_has_a_row_for_every_family():
    from sobgnn.estimator.families import FAMILIES

    page = (ROOT / "docs/estimator.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == set(FAMILIES)


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_code_in_the_pages_runs(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    with patch.dict(os.environ), patch.dict(CATALOGUE), patch.dict(MODELS):  # the protocol adds to each
        exec(compile("\n".join(blocks), name(page), "exec"), {})


def test_examples_in_docstrings_run():
    tried = 0
    for path in sorted((ROOT / "src/sobgnn").rglob("*.py")):
        if ">>>" not in path.read_text(encoding="utf-8"):
            continue
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        outcome = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
        assert outcome.failed == 0, module
        tried += outcome.attempted
    assert tried


def test_the_notes_on_how_docstrings_become_markdown_hold():
    pytest.importorskip("griffe", reason="needs the extra docs")
    from docs.docstring_markup import to_markdown

    public = {"Graph": "sobgnn.Graph", "SobolevClassifier": "sobgnn.SobolevClassifier"}
    own = "sobgnn.SobolevClassifier"
    assert to_markdown("A :class:`~sobgnn.Graph`.", public) == "A [`Graph`][sobgnn.Graph]."
    assert to_markdown("See :meth:`fit`.", public, own) == f"See [`fit`][{own}.fit]."
    assert to_markdown(":func:`sobgnn.graphs.knn.nearest`", public) == "`sobgnn.graphs.knn.nearest`"
    assert to_markdown(".. math:: a = \\\n    b\n\nwith :math:`b`", public) == "$$ a = \\ b $$\n\nwith $b$"


PAGES = sorted([*ROOT.glob("*.md"), *(page for place in ("docs", "results") for page in (ROOT / place).rglob("*.md"))])
FORMULA = re.compile(r"\$\$(?P<block>.*?)\$\$|\$(?P<inline>[^$\n]+)\$", re.DOTALL)


def without_code(page: Path) -> str:
    return re.sub(
        r"```.*?```|`[^`\n]*`|^    .*?$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_formulas_are_marked_as_such_and_can_be_drawn(page):
    text = without_code(page)
    raw = re.search(r".*(\^\{|_\{|\\[a-z]+|Â_).*", FORMULA.sub("", text))
    assert raw is None, f"not between dollar signs: {raw[0]}"
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    from docs.site_hooks import mathml

    for found in FORMULA.finditer(text):
        assert "<math" in mathml(found["block"] or found["inline"], block=bool(found["block"]))


def test_formulas_options_and_wide_tables_become_html_that_fits():
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    from docs.site_hooks import PluginError, mathml, on_page_content

    formula = on_page_content(r'<div class="arithmatex">\[x^2\]</div> <span class="arithmatex">\(y\)</span>')
    assert formula.startswith('<div class="formula"><math')
    assert formula.count("<math") == 2
    with pytest.raises(PluginError, match="cannot be drawn"):
        mathml(r"\nosuchcommand x", block=False)
    option = on_page_content("<code>sobgnn fit --text-model x-y</code>")
    assert option == '<code>sobgnn fit <span class="option">--text-model</span> x-y</code>'
    narrow, wide = ("<tr>" + "<td>short</td>" * count + f"<td>{'long ' * 20}</td></tr>" for count in (2, 3))
    assert on_page_content(narrow) == narrow
    assert on_page_content(wide).count('<td class="long">long') == 1 == on_page_content(wide).count("class")


def test_a_site_that_loads_from_another_host_is_refused(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    from docs.site_hooks import fetched_from_elsewhere

    (tmp_path / "good.html").write_text('<a href="https://pytorch.org">x</a><script src="own.js"></script>')
    assert not fetched_from_elsewhere(tmp_path)
    (tmp_path / "bad.html").write_text('<link rel="stylesheet" href="https://fonts.example/x.css">')
    (tmp_path / "bad.css").write_text("@font-face { src: url(//cdn.example/f.woff2) }")
    assert len(fetched_from_elsewhere(tmp_path)) == 2
