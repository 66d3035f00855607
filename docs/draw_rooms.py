"""Draw the import graph by rooms, and list every module in a line, from the source itself.

    python -m docs.draw_rooms           # docs/rooms.svg, and the parts of docs/design.md between its markers
    python -m docs.draw_rooms --check   # exit 1 where they are out of date; tests/test_docs.py does the same

A module's line is the first line of its docstring, so a better description is written there.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tests.test_rooms import FLOOR, SOURCE, imported_rooms, modules

DOCS = Path(__file__).parent
_WIDTH, _ROW, _BOX, _HIGH = 880, 62, 104, 30


def room_of(path: Path) -> str:
    """The folder or module directly under sobgnn that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports() -> dict[str, set[str]]:
    """Rooms that each room imports from, in the order of the floors."""
    found: dict[str, set[str]] = {}
    for path in modules():
        room = room_of(path)
        others = {other for other in imported_rooms(path.read_text(encoding="utf-8")) if other in FLOOR}
        found.setdefault(room, set()).update(others - {room})
    return dict(sorted(found.items(), key=lambda item: (FLOOR[item[0]], item[0])))


def direct(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports that do not follow from others: the fewest arrows with the same meaning."""

    def below(room: str) -> set[str]:
        return graph[room] | {far for near in graph[room] for far in below(near)}

    return {
        room: {one for one in near if not any(one in below(other) for other in near)} for room, near in graph.items()
    }


def levels(graph: dict[str, set[str]]) -> list[list[str]]:
    """Rooms by the longest chain of imports under them; those of a level stand side by side."""
    depth: dict[str, int] = {}
    for room in graph:  # in the order of the floors: what a room imports has its depth already
        depth[room] = 1 + max((depth[other] for other in graph[room]), default=-1)
    return [[room for room in graph if depth[room] == level] for level in range(max(depth.values()) + 1)]


def picture(graph: dict[str, set[str]]) -> str:
    """The graph as SVG; colors that read on light and on dark pages."""
    rows, arrows = levels(graph), direct(graph)
    place: dict[str, tuple[float, float]] = {}
    for level, rooms in enumerate(rows):

        def middle(room: str) -> float:
            near = [place[other][0] for other in arrows[room]]
            return sum(near) / len(near) if near else _WIDTH / 2

        step = _WIDTH / len(rooms)
        # A long arrow would run through the boxes between its ends: rooms alone on their level step aside by turns.
        shift = 0.0 if len(rooms) > 1 else (-0.16, 0.16)[level % 2] * _WIDTH
        for number, room in enumerate(sorted(rooms, key=middle)):
            place[room] = (step * (number + 0.5) + shift, 20 + level * _ROW + _HIGH / 2)
    height = 40 + (len(rows) - 1) * _ROW + _HIGH
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="14" text-anchor="middle">',
        "<title>The rooms: an arrow leads from a room to one that imports it</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8088a0"/></marker></defs>',
    ]
    for room, near in arrows.items():
        for other in sorted(near):
            (x0, y0), (x1, y1) = place[other], place[room]
            y0, y1 = y0 + _HIGH / 2, y1 - _HIGH / 2
            bend = (y1 - y0) / 2
            lines.append(
                f'<path d="M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}" '
                'fill="none" stroke="#8088a0" stroke-width="1.4" marker-end="url(#tip)"/>'
            )
    for room, (x, y) in place.items():
        lines.append(
            f'<rect x="{x - _BOX / 2:.0f}" y="{y - _HIGH / 2:.0f}" width="{_BOX}" height="{_HIGH}" rx="6" '
            'fill="#3f51b5"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" fill="#fff">{room}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def table(graph: dict[str, set[str]]) -> str:
    """Every room with the rooms that it imports from."""
    lines = ["| room | imports from |", "|---|---|"]
    for room, near in graph.items():
        listed = ", ".join(sorted(near, key=lambda other: (FLOOR[other], other)))
        lines.append(f"| `{room}` | {listed or 'nothing'} |")
    return "\n".join(lines)


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].replace("|", "\\|")


def catalogue(graph: dict[str, set[str]]) -> str:
    """Every room with every module in a line."""
    lines = []
    for room in graph:
        paths = [path for path in modules() if room_of(path) == room]
        own = [path for path in paths if path.parent == SOURCE or path == SOURCE / room / "__init__.py"]
        name = f"{room}/" if (SOURCE / room).is_dir() else f"{room}.py"
        lines += [f"### {name}", "", first_line(own[0]), ""]
        rest = [path for path in paths if path not in own]
        if rest:
            lines += ["| module | what it holds |", "|---|---|"]
            for path in rest:
                shown = path.relative_to(SOURCE / room).as_posix().removesuffix("__init__.py")
                lines.append(f"| `{shown}` | {first_line(path)} |")
            lines.append("")
    return "\n".join(lines).rstrip()


def drawn() -> dict[Path, str]:
    """The files as they should be, by path."""
    graph = imports()
    page = DOCS / "design.md"
    text = page.read_text(encoding="utf-8")
    for name, part in (("imports", table(graph)), ("modules", catalogue(graph))):
        start, end = f"<!-- {name}: written by docs/draw_rooms.py -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        if not rest or end not in rest:
            raise ValueError(f"docs/design.md must hold the markers {start} and {end}.")
        text = f"{before}{start}\n\n{part}\n\n{end}{after}"
    return {page: text, DOCS / "rooms.svg": picture(graph)}


def out_of_date() -> list[str]:
    """Names of the files that differ from what the source gives."""
    return [
        path.name for path, text in drawn().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        stale = out_of_date()
        if stale:
            sys.exit(f"Out of date: {', '.join(stale)}. Run python -m docs.draw_rooms.")
    else:
        for path, text in drawn().items():
            path.write_text(text, encoding="utf-8")
