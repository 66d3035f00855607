"""What `make docs` does beside mkdocs itself.

Pages from outside docs/ (results, changelog, contributing) become pages of the site; equations become MathML, so that
no page needs a script for them; and the HTML that was built is refused if it would load anything from another host.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Pages and files that live elsewhere in the repository, at the same path in the site.
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CITATION.cff",
    "LICENSE",
    "results/*.md",
    "results/*.svg",
    "results/*.png",
    "examples/*.py",
)
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<formula>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# Commands that the converter does not know, in words that it does.
_FORMULA_WORDS = {r"\arg\min": r"\mathrm{argmin}", r"\Big\|": r"\Vert ", r"\|": r"\Vert ", r"\Big": ""}
# What the theme's offline search would load.
_SHIM = "https://unpkg.com/iframe-worker/shim"
# What a browser fetches by itself: scripts, styles, images, frames, fonts. Links that people click may lead out.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)[^>]*?\ssrc=["']?(https?:)?//[^\s>]+"""
    r"""|<link(?![^>]*rel=["']?canonical)[^>]*?\shref=["']?(https?:)?//[^\s>]+""",
    re.IGNORECASE,
)
# An option of a command, which must not break after its dashes; and a row of a table, with its cells.
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_CODE = re.compile(r"<code>([^<]*)</code>")
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])([^>]*)>(.*?)</\1>", re.DOTALL)
# A table of this many columns is wider than a telephone anyway: there a cell of many words is better wide than tall.
_MANY_COLUMNS, _MANY_CHARACTERS = 4, 40
_FETCHED_BY_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//[^)"']+""", re.IGNORECASE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links that lead out of docs/ lead to the same page within the site, and the other way round."""
    depth = page.file.src_uri.count("/")
    if page.file.src_uri.startswith(("results/", "CONTRIBUTING", "CHANGELOG")):
        return re.sub(r"\]\((\.\./)?docs/", lambda found: f"]({found[1] or ''}", markdown)
    # A page at docs/x.md writes ../results/y.md; in the site both are one level higher.
    return markdown.replace("](" + "../" * (depth + 1), "](" + "../" * depth)


def on_page_content(html: str, **_: Any) -> str:
    """Equations to MathML, which browsers draw themselves."""

    def formula(found: re.Match[str]) -> str:
        drawn = mathml(unescape(found["formula"]), block=found["open"] == "[")
        return f'<div class="formula">{drawn}</div>' if found["open"] == "[" else drawn

    html = _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
    html = _ROW.sub(_with_wide_cells, html)
    # A number and its interval stay on one line.
    return _FORMULA.sub(formula, html).replace(" ± ", "\u00a0±\u00a0")


def mathml(formula: str, *, block: bool) -> str:
    """A TeX formula as MathML; refused where a command in it is not known."""
    from latex2mathml.converter import convert

    for word, known in _FORMULA_WORDS.items():
        formula = formula.replace(word, known)
    drawn = str(convert(formula.strip(), display="block" if block else "inline"))
    if "\\" in unescape(drawn):
        raise PluginError(f"A formula has a command that cannot be drawn: {formula}")
    return drawn


def _with_wide_cells(row: re.Match[str]) -> str:
    """A row of a table whose cells of many words are marked, where there are many columns."""

    def cell(found: re.Match[str]) -> str:
        long = len(re.sub(r"<[^>]*>", "", found[3])) > _MANY_CHARACTERS
        return f'<{found[1]}{found[2]} class="long">{found[3]}</{found[1]}>' if long else found[0]

    return _CELL.sub(cell, row[0]) if len(_CELL.findall(row[0])) >= _MANY_COLUMNS else row[0]


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the script that lets the search work from the disk from the site itself instead of a CDN."""
    own = "../" * page.url.count("/") + "search_from_disk.js"
    return output.replace(_SHIM, own)


def on_post_template(output: str, **_: Any) -> str:
    """Likewise, for the page that a server shows where there is none."""
    return output.replace(_SHIM, "/search_from_disk.js")


def on_post_build(config: Any) -> None:
    """Refuse a site that would load anything from another host."""
    found = fetched_from_elsewhere(Path(config["site_dir"]))
    if found:
        raise PluginError("The site loads from other hosts:\n" + "\n".join(found))


def fetched_from_elsewhere(site: Path) -> list[str]:
    """Every script, style, image or font of the built site that is on another host, with its page."""
    found = []
    for path in sorted(site.rglob("*")):
        pattern = {".html": _FETCHED, ".css": _FETCHED_BY_STYLE}.get(path.suffix)
        if pattern is not None:
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(site)}: {match[0][:120]}" for match in pattern.finditer(text)]
    return found
