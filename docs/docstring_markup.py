"""Sphinx markup of docstrings to Markdown, as the API reference reads it.

Docstrings are written for ``help()`` and editors, with the usual roles: a class role around ``~sobgnn.Graph``, a math
role, a math directive. mkdocstrings reads Markdown, so these are translated while the site is built.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_ROLE = re.compile(r":(?P<role>class|func|meth|mod|attr|data|exc|obj):`(?P<short>~?)(?P<target>[\w.]+)`")
_MATH = re.compile(r":math:`(?P<formula>[^`]+)`")
# A formula begins on the directive's line or below it, and ends before the next line that is indented no further.
_BLOCK = re.compile(r"^(?P<indent> *)\.\. math::(?P<first>.*)\n(?P<rest>(?:\n*(?P=indent) +\S.*\n)*)", re.MULTILINE)
# Names with a place in the reference: only these can be linked to.
_PAGES = re.compile(r"^::: (\S+)", re.MULTILINE)


def public_names(folder: Path) -> dict[str, str]:
    """Every name that a page of the reference describes, by its last part."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.md"))]
    return {name.rpartition(".")[2]: name for page in pages for name in _PAGES.findall(page)}


def to_markdown(text: str, public: dict[str, str], own_class: str | None = None) -> str:
    """A docstring with its roles as links or code, and its formulas between dollar signs.

    Args:
        text: The docstring, without common indentation.
        public: Names that can be linked to, from :func:`public_names`.
        own_class: The class that a method role without a dot refers to.
    """

    def link(found: re.Match[str]) -> str:
        *path, last = found["target"].split(".")
        shown = last if found["short"] else found["target"]
        if found["target"] == public.get(last) or (not path and last in public):
            return f"[`{shown}`][{public[last]}]"
        if path and path[-1] in public:
            return f"[`{shown}`][{public[path[-1]]}.{last}]"
        if own_class and not path and found["role"] in ("meth", "attr"):
            return f"[`{shown}`][{own_class}.{last}]"
        return f"`{shown}`"  # a name that the reference leaves out

    def block(found: re.Match[str]) -> str:
        return f"{found['indent']}$$ {' '.join((found['first'] + ' ' + found['rest']).split())} $$\n"

    text = _BLOCK.sub(block, text + "\n").rstrip("\n")
    text = _MATH.sub(lambda found: f"${' '.join(found['formula'].split())}$", text)
    return _ROLE.sub(link, text)


class DocstringMarkup(griffe.Extension):
    """Translates every docstring of the package once it is loaded."""

    def __init__(self) -> None:
        self.public = public_names(Path(__file__).parent / "api")

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is None:
            return
        parent = obj if obj.is_class else obj.parent
        own_class = None
        if parent is not None and parent.is_class and parent.name in self.public:
            own_class = self.public[parent.name]
        obj.docstring.value = to_markdown(obj.docstring.value, self.public, own_class)
