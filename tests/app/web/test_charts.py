from __future__ import annotations

import pytest

from sobgnn.app import web
from tests.app.labeling.browser import Browser, find_chromium

PAGE = "<!doctype html><meta charset='utf-8'><div id='place' style='width: 440px'></div><script>{script}</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    folder = tmp_path_factory.mktemp("charts")
    (folder / "charts.html").write_text(PAGE.format(script=web.read("charts.js")))
    made = Browser(program, folder, 600, 400)
    made.open((folder / "charts.html").as_uri())
    yield made
    assert not made.problems
    made.close()


def test_ticks_are_round_differ_and_have_at_most_two_decimals(browser):
    wrong = """(() => { const wrong = [];
      for (let power = -6; power < 7; power++) for (const from of [0, 0.37, -12.5, 991])
        for (const times of [1, 1.7, 9.9])
        for (const options of [{}, {percent: true}, {whole: true}]) {
          const {labels} = makeAxis(from, from + times * 10 ** power, {...options, nice: true});
          if (labels.length < 2 || labels.length > 7 || new Set(labels).size < labels.length
            || !labels.every(label => /^-?[\\d,]+(\\.\\d{1,2})?[%M]?$/.test(label))) wrong.push([from, power, labels]);
        }
      return wrong; })()"""
    assert browser.js(wrong) == []


def test_values_that_hardly_differ_are_drawn(browser):
    for values in (
        "[0.5, 0.5]",
        "[0.5, 0.5 + 1e-12]",
        "[0, 1e-9]",
        "[0, 0]",
        "[1e9, 1e9]",
        "[null, 1]",
        "[null, null]",
    ):
        for options in ("percent: true", "zero: true", "whole: true"):
            drawn = f"drawLines(place, {{series: [{{name: 'a', x: [1, 2], y: {values}}}], across: 'epoch', {options}}})"
            assert "NaN" not in browser.js(f"{drawn}, place.innerHTML")


@pytest.mark.parametrize("large", ["10000", "999999", "0.25"])
def test_the_numbers_of_both_axes_have_room(browser, large):
    browser.js(f"drawLines(place, {{series: [{{name: 'a', x: [0, {large}], y: [0, {large}]}}], across: 'x'}})")
    outside = """(() => { const box = place.querySelector('svg').getBoundingClientRect();
      return [...place.querySelectorAll('text')].filter(text => { const own = text.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1; }).map(text => text.textContent); })()"""
    assert browser.js(outside) == []
    browser.js(f"drawHistogram(place, {{counts: [{large}, 1], edges: [0, 1, 2], across: 'x'}})")
    assert browser.js(outside) == []


def test_a_band_is_around_its_line_and_numbers_are_told(browser):
    series = "{name: 'accuracy', x: [10, 20], y: [0.8, 0.9], band: [[0.7, 0.9], [0.85, 0.95]]}"
    browser.js(f"drawLines(place, {{series: [{series}], across: 'labels', percent: true, whole: true}})")
    top, line, under = browser.js("""(() => {
      const y = part => +part.getAttribute('points').split(' ')[0].split(',')[1];
      const [band, line] = [place.querySelector('polygon'), place.querySelector('polyline')];
      return [y(band), y(line), +band.getAttribute('points').split(' ').at(-1).split(',')[1]]; })()""")
    assert top < line < under
    told = browser.js("[...place.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.textContent))")
    assert told == [["labels", "accuracy"], ["10", "80%"], ["20", "90%"]]
