from __future__ import annotations

import numpy as np
import pytest

from sobgnn.app import web
from tests.app.labeling.browser import Browser, find_chromium

PAGE = """<!doctype html><meta charset="utf-8">
<style>{colors} canvas {{ width: 428px; height: 228px; }} main {{ height: 3000px; }}</style>
<main><canvas id="map"></canvas></main><script>{map}
const seen = [];
const map = new PointMap(document.getElementById("map"), {{
  lasso: rows => seen.push(["lasso", ...rows]), click: row => seen.push(["click", row]) }});
const drawn = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
// The color of the middle of the circle of a point.
const at = row => [...map.canvas.getContext("2d").getImageData(...map.screen(row).map(Math.round), 1, 1).data];
</script>"""


@pytest.fixture
def browser(tmp_path):
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    (tmp_path / "map.html").write_text(PAGE.format(colors=web.read("colors.css"), map=web.read("map.js")))
    made = Browser(program, tmp_path, 500, 400)
    made.open((tmp_path / "map.html").as_uri())
    made.js("map.setPlace([0, 0, 10], [0, 5, 5])")
    yield made
    assert not made.problems
    made.close()


def wheel(browser, modifiers=0):
    """Turn the wheel, and say whether it zooms: otherwise it scrolls the page."""
    browser.js("map.reset(), scrollTo(0, 50)")
    place = {"type": "mouseWheel", "x": 100, "y": 100, "deltaX": 0, "deltaY": -30, "modifiers": modifiers}
    browser.call("Input.dispatchMouseEvent", **place)
    return browser.until("map.view.zoom > 1 ? 'zooms' : scrollY < 50 && 'scrolls'") == "zooms"


def test_y_goes_upward_and_both_axes_fill_the_box(browser):
    assert browser.js("[0, 1, 2].map(row => map.screen(row))") == [[14, 214], [14, 14], [414, 14]]


def test_each_style_has_its_color_in_light_and_dark_and_a_point_of_no_style_is_hidden(browser):
    for scheme, color in (("light", [59, 111, 182, 255]), ("dark", [122, 167, 232, 255])):
        browser.scheme(scheme)
        browser.js(
            'map.setStyles(Uint8Array.of(0, 1, 9), [{ color: "var(--c0)" }, { color: "red", radius: 5 }]), drawn()'
        )
        assert browser.js("at(0)") == color
        assert browser.js("at(1)") == [255, 0, 0, 255]
        assert browser.js("[at(2)[3], map.nearest(map.screen(2))]") == [0, -1]


def test_a_theme_change_draws_in_the_other_colors_at_once(browser):
    browser.scheme("light")
    browser.js('map.setStyles(null, [{ color: "var(--c0)" }]), drawn()')
    before = browser.js("at(0)")
    browser.scheme("dark")
    browser.js("drawn()")
    assert browser.js("at(0)") != before


def test_the_wheel_zooms_with_control_or_after_a_click_and_else_scrolls_the_page(browser):
    assert not wheel(browser)
    assert wheel(browser, modifiers=2)
    browser.drag([(100, 100)])
    assert wheel(browser)


def test_a_drag_selects_what_it_encloses_and_with_shift_it_pans(browser):
    box = browser.js("(b => [b.x, b.y])(map.canvas.getBoundingClientRect())")
    around = [(box[0] + x, box[1] + y) for x, y in ((2, 2), (426, 2), (426, 40), (2, 40))]
    browser.drag(around)
    browser.drag([(box[0] + 14, box[1] + 214)])
    assert browser.js("seen") == [["lasso", 1, 2], ["click", 0]]


def test_a_finger_scrolls_the_page_over_the_map_unless_it_draws(browser):
    browser.js("map.drawing = true")
    browser.swipe((200, 180), (200, 60))
    assert browser.until("seen.length && seen") == [["lasso"]]  # around no point
    assert browser.js("scrollY") == 0
    browser.js("map.drawing = false")
    browser.swipe((200, 180), (200, 60))
    browser.until("scrollY > 50")
    assert browser.js("seen.length") == 1


def test_without_points_a_message_stands_on_the_map(browser):
    dark = "map.canvas.getContext('2d').getImageData(0, 0, 428, 228).data.some(value => value)"
    browser.js("map.setPlace([], []), drawn()")
    assert not browser.js(dark)
    browser.js("map.message = 'Placing points', map.draw(), drawn()")
    assert browser.js(dark)


def test_points_move_from_one_layout_to_the_next_and_end_there(browser):
    # The test says when a frame comes and what time it is.
    browser.js("window.steps = [], window.requestAnimationFrame = step => steps.push(step), performance.now = () => 0")
    browser.js("map.draw = () => 0, map.setPlace([0, 10, 10], [0, 5, 0])")
    across = [browser.js(f"steps.pop()({time}), map.screen(1)[0]") for time in ("0", "MOVE_MS / 2", "MOVE_MS")]
    assert across == [14, 214, 414]
    assert browser.js("steps.length") == 0


def test_names_stand_beside_their_points_without_covering_one_another(browser):
    browser.js("map.setPlace([0, 1, 2, 0, 1, 2, 0.2], [5, 5, 5, 0, 9, 0, 2]), drawn()")
    written = """(() => { const pen = map.canvas.getContext("2d"), seen = [], fill = pen.fillText.bind(pen);
      pen.fillText = (text, x, y) => { seen.push([text, x, y]); fill(text, x, y); };
      map.names = [..."abcdefghi"].map(text => ({ text, rows: [0, 1, 2] }));
      map.names.push({ text: "elsewhere", rows: [6] }), map.paint(); return seen; })()"""
    *together, apart = browser.js(written)
    assert [text for text, _, _ in together] == [*"abcdefg"]  # h and i had no place left
    assert {x for _, x, _ in together} == {214}
    heights = sorted(y for _, _, y in together)
    assert np.diff(heights) == pytest.approx([16] * 6)
    assert apart[0] == "elsewhere"
