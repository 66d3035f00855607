from __future__ import annotations

import re

from sobgnn.app import web


def test_every_class_has_a_color_of_its_own_for_light_and_dark():
    colors = [web.class_color(code) for code in range(60)]
    assert len(set(colors)) == 60
    assert colors[:10] == [f"var(--c{code})" for code in range(10)]
    pairs = dict(re.findall(r"(--c\d): light-dark\((#\w{6}, #\w{6})\)", web.read("colors.css")))
    assert len(pairs) == 10
    assert all(re.fullmatch(r"light-dark\(oklch\([\d. ]+\), oklch\([\d. ]+\)\)", color) for color in colors[10:])


def luminance(color):
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_can_be_read_on_every_ground_in_light_and_dark():
    found = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", web.read("colors.css")))
    for theme in (0, 1):
        value = {name: luminance(pair.split(", ")[theme]) for name, pair in found.items()}
        for ground, inks in {
            "paper": "ink soft faint accent good bad",
            "card": "ink soft faint accent good bad",
            "bad-paper": "bad",
        }.items():
            for ink in inks.split():
                low, high = sorted((value[ground], value[ink]))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground, theme)
