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
    from latex2mathml.converter import convert

    def formula(found: re.Match[str]) -> str:
        text = unescape(found["formula"]).strip()
        for word, known in _FORMULA_WORDS.items():
            text = text.replace(word, known)
        drawn = str(convert(text, display="block" if found["open"] == "[" else "inline"))
        if "\\" in unescape(drawn):
            raise PluginError(f"A formula has a command that cannot be drawn: {text}")
        return f'<div class="formula">{drawn}</div>' if found["open"] == "[" else drawn

    # A number and its interval stay on one line.
    return _FORMULA.sub(formula, html).replace(" ± ", "\u00a0±\u00a0")


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
