from __future__ import annotations

import base64
import html
import html.parser
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy.spatial import cKDTree

from sobgnn.app.runs.page import render as page_render
from sobgnn.app.runs.page.map import plane_layout, sheet
from sobgnn.app.runs.page.render import render
from sobgnn.app.runs.result import measure
from sobgnn.app.runs.run import checks_of
from sobgnn.tables import read_table
from tests.app.labeling.browser import Browser, find_chromium
from tests.fitted_runs import fitted_run, found_search

NASTY = ("</script><script>alert(1)</script>", '<img src=x onerror="window.hacked=1">', "%{x} & <b>bold</b>")


def page(columns=None, side=0, **options):
    fitted = replace(fitted_run(**options), side=side)
    return render(fitted, replace(measure(fitted, checks_of(fitted).acceptance), columns=columns))


def page_data(text):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL).group(1))


def shown(text):
    """What a reader sees, without marks."""
    body = text.split("<body>")[1].split("<script")[0]
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", body)).split())


def section(text, name):
    return re.search(rf'<section id="{name}">.*?</section>', text, re.DOTALL).group(0)


def shown_row(text, number):
    """The cells of a row of a table."""
    row = re.findall("<tr>.*?</tr>", text, re.DOTALL)[number]
    return [html.unescape(re.sub("<[^>]+>", "", cell)).strip() for cell in re.findall("<td.*?</td>", row, re.DOTALL)]


@pytest.fixture
def table(tmp_path):
    """90 rows with ids, a number, a color, and labels on every second row."""
    colors = ["red", "green", "blue"]
    lines = [f"n{i},{i * 0.25},{colors[i % 3]},{'xyz'[i % 3] if i % 2 else ''}" for i in range(90)]
    (tmp_path / "t.csv").write_text("id,height,color,label\n" + "\n".join(lines) + "\n")
    return read_table(tmp_path / "t.csv")


@pytest.fixture
def shop(tmp_path):
    generator = np.random.default_rng(0)
    for number in range(40):
        folder = tmp_path / "shop" / (("dog", "cat")[number % 2] if number < 20 else "unlabelled")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{number}.png")
    return read_table(tmp_path / "shop")


@pytest.fixture
def browser(tmp_path):
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    made = Browser(program, tmp_path, 1400, 900)
    made.place = tmp_path / "report.html"
    yield made
    assert not made.problems
    made.close()


def opened(browser, text, query=""):
    browser.place.write_text(text)
    browser.open(f"{browser.place.as_uri()}{query}")
    assert browser.js("document.documentElement.dataset.ready") == "yes"


def test_the_page_says_first_how_good_it_is_and_each_number_once():
    fitted = fitted_run(suspects=3)
    fitted.table.notes.append("Dropped: body.")
    result = measure(fitted)
    text = render(fitted, result)
    said = shown(text)
    parts = [
        "Estimated accuracy",
        "hidden labels (95% interval",
        "Where they differ, go by the second",
        "Check 3 given labels",
        "Dropped: body.",
        "The points",
    ]
    places = [said.index(part, said.index("Estimated accuracy")) for part in parts]
    assert places == sorted(places)
    low, high = (f"{100 * bound:.1f}%" for bound in result.held_out.interval)
    assert said.count(f"95% interval {low} to {high}") == 1
    assert '<li>Check 3 given labels that look wrong. <a href="#suspects">Show</a></li>' in text
    for name, title in re.findall(r'<a href="#(\w+)">([^<]+)</a>', text.split("</nav>")[0]):
        assert f"<h2>{title}</h2>" in section(text, name)
    assert "What to label next" in text
    assert len(re.findall("<section ", text)) == text.split("</nav>")[0].count("<a href")


def test_mistakes_are_listed_most_confident_first():
    rows = section(page(), "mistakes")
    sure = [float(shown_row(rows, number)[-1]) for number in range(1, rows.count("<tr>"))]
    assert sure == sorted(sure, reverse=True)
    assert sure[0] > sure[-1]


def test_noise_is_called_guessing_and_its_map_is_gray_with_that_sentence_on_it():
    text = page(noise=True, suspects=9)
    assert 'id="suspects"' not in text
    assert '<div class="over">Not shown to be better than guessing</div>' in text
    assert shown(text).count("Not shown to be better than guessing") == 2
    assert page_data(text)["map"]["gray"] is True
    assert "data-view=" not in text.split("<script")[0]
    good = page()
    assert "guessing" not in shown(good)
    assert page_data(good)["map"]["gray"] is False


def test_lists_show_rows_with_the_columns_that_matter_first_at_full_height(table):
    text = page(table=table, labels=None, columns={"color": 0.3, "height": 0.0})
    rows = section(text, "next")
    first = int(shown_row(rows, 1)[0])
    assert shown_row(rows, 1)[:2] == [str(first), f"n{first}"]
    assert shown_row(rows, 1)[-2:] == [["red", "green", "blue"][first % 3], str(first * 0.25)]
    copied = [line.split("\t") for line in html.unescape(re.search(r'data-copy="([^"]*)"', rows).group(1)).splitlines()]
    assert copied[0] == ["row", "id", "best guess", "probability", "color", "height"]
    assert copied[1] == shown_row(rows, 1)
    assert len(copied) == 1 + rows.count('<td data-head="row">') == 21  # fmt: skip


def test_rows_of_pictures_are_shown_as_pictures(shop):
    text = page(table=shop, labels=None)
    assert section(text, "next").count('<img alt="" src="data:image/jpeg;base64,') == 20
    assert not re.search(r'src="(?!data:)', text)
    digits = np.random.default_rng(0).integers(0, 16, (60, 64)).astype(np.float32)
    text = page(X=digits, codes=np.arange(60) % 2, classes=("a", "b"), side=8, suspects=2)
    for name in ("next", "suspects"):
        assert '<img alt="" src="data:image/png;base64,' in section(text, name)
    assert page_data(text)["map"]["pictures"]["side"] == 8


def test_the_map_holds_the_picture_of_every_point(shop, monkeypatch):
    text = page(table=shop, labels=None)
    held = page_data(text)["map"]["pictures"]
    assert (held["columns"], held["missing"]) == (7, [])
    assert "Point at a dot, or tap it, to see its picture." in shown(text)
    for module in ("map", "render"):
        monkeypatch.setattr(f"sobgnn.app.runs.page.{module}.MOST_TOLD", 39)
    text = page(table=shop, labels=None)
    assert "pictures" not in page_data(text)["map"]
    assert "Pictures are shown for up to 39 points." in shown(text)


def test_each_picture_is_at_its_place_on_the_sheet_and_keeps_its_shape():
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255)]
    found = sheet([*(Image.new("RGB", (40, 20), color) for color in colors), None])
    assert found["missing"] == [5]
    whole = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["image"].split(",")[1]))), dtype=int)
    assert (found["side"], found["columns"], whole.shape) == (40, 3, (80, 120, 3))
    for number, color in enumerate(colors):
        left, top = 40 * (number % 3), 40 * (number // 3)
        assert np.abs(whole[top + 20, left + 20] - color).max() < 40
        assert np.abs(whole[top + 3, left + 20] - 128).max() < 40  # twice as wide as high: gray above it


def test_a_matrix_has_no_rows_for_classes_that_were_never_held_out_and_whole_names():
    names = tuple(f"a class with a long name, {letter}" for letter in "abc")
    fitted = fitted_run(classes=names)
    rare = fitted.classifier.labelled_codes_ == 2
    fitted.classifier.out_of_fold_probabilities_[rare] = np.nan
    fitted.classifier.out_of_fold_probabilities_[~rare, 2] = 0
    text = render(fitted, measure(fitted))
    assert f"), {rare.sum()} more of classes with fewer than 3 labels" in shown(text).split("The points")[1]
    matrix = section(text, "accuracy").split("</table>")[0]
    assert [name for name in names if f'<th scope="row">{name}</th>' in matrix] == list(names[:2])
    assert matrix.count('<th scope="col"') == 2


def test_bars_below_zero_are_drawn_and_told():
    text = section(page(columns={"a": 0.02, "b": -0.01}), "columns")
    assert re.findall(r'<i(?: class="(below)")? style="margin-left:([\d.]+)%;width:([\d.]+)%"', text) == [
        ("", "33.3", "66.7"),
        ("below", "0.0", "33.3"),
    ]
    only = section(page(columns={"a": -0.01, "b": -0.02}), "columns")
    assert "None: shuffling any one of them" in only
    assert 'width:100.0%"></i></td><td class="n">-0.020</td>' in only
    assert '<td class="n">0.000</td>' in section(page(columns={"a": 0.02, "b": -0.00001}), "columns")


def test_a_search_has_a_section_where_there_was_one():
    assert "The search" not in page()
    text = page(search=found_search())
    assert "6 of 10 trials finished, 1 of them pruned early" in text
    assert "<tr><td>k</td><td>10</td><td>15</td></tr>" in text  # before the search, and found by it
    assert "<b>linear" not in text
    assert "What mattered" in text
    assert "What mattered" not in page(search=found_search(importance=False))


def test_the_page_asks_for_nothing_from_elsewhere():
    text = page()
    assert not re.search(r'(src|href)\s*=\s*["\']?(https?:)?//', text)
    assert "default-src 'none'" in text
    assert "unsafe-eval" not in text


def test_names_of_classes_rows_and_data_cannot_become_markup():
    ids = np.array([NASTY[i % 3] for i in range(60)])
    text = page(points=60, classes=NASTY, name=NASTY[0], ids=ids, columns={NASTY[1]: 0.2, NASTY[2]: 0.1})

    class Tags(html.parser.HTMLParser):
        scripts = 0

        def handle_starttag(self, tag, attributes):
            assert tag != "img"
            assert not any(name.startswith("on") for name, _ in attributes)
            self.scripts += tag == "script"

    tags = Tags()
    tags.feed(text)
    assert tags.scripts == 2
    assert "<b>bold" not in text
    assert page_data(text)["map"]["classes"] == list(NASTY)
    assert "<" not in re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL).group(1)


def test_a_page_of_three_thousand_points_is_below_three_megabytes(tmp_path):
    words = np.random.default_rng(0).choice(["lorem ipsum dolor", "sit amet", "consectetur adipiscing elit"], (3000, 4))
    lines = [f"{i},{i * 0.37:.3f},{i % 7},{w[0]},{'xyz'[i % 3] if i < 300 else ''}" for i, w in enumerate(words)]
    (tmp_path / "t.csv").write_text("id,height,floor,text,label\n" + "\n".join(lines) + "\n")
    assert 50_000 < len(page(table=read_table(tmp_path / "t.csv"), labels=None).encode()) < 3_000_000


def test_a_chart_that_would_say_nothing_is_not_drawn():
    assert page_render._histogram(np.full(50, 7), "Neighbors", "", whole=True) is None
    drawn = page_render._histogram(np.array([1, 2, 2]), "Neighbors", "", whole=True)
    assert (drawn["counts"], drawn["edges"]) == ([1, 2], [0.5, 1.5, 2.5])
    assert "<small>" in page()
    text = page(X=np.arange(60.0)[:, None], codes=np.arange(60) % 2, classes=("a", "b"))
    assert "; 1 feature, 2 classes" in shown(text)


@pytest.mark.parametrize(("theme", "view"), [("light", "wrong"), ("dark", "confidence")])
def test_a_browser_draws_the_page_in_both_themes(browser, theme, view):
    fitted = fitted_run(points=90, classes=NASTY, ids=np.array(NASTY * 30), search=found_search())
    opened(browser, render(fitted, measure(fitted)), f"?theme={theme}&view={view}")
    assert browser.js("getComputedStyle(document.documentElement).colorScheme") == theme
    assert browser.js("document.querySelector('[data-view][aria-pressed=true]').dataset.view") == view
    assert browser.js("map.width") > 100
    assert browser.js("[...document.querySelectorAll('[data-chart]')].every(place => place.querySelector('svg'))")
    assert browser.js("document.querySelectorAll('img').length") == 0
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    assert browser.js("document.documentElement.scrollHeight - document.querySelector('footer').offsetTop") < 150


def test_a_phone_gets_a_short_page_whose_parts_open(browser, table):
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    opened(browser, page(table=table, labels=None))
    visible = "[...document.querySelectorAll('#next tbody tr')].filter(row => row.offsetHeight).length"
    assert browser.js(visible) == 5
    browser.js("document.querySelector('#next .more').click()")
    assert browser.js(visible) == 20
    assert browser.js("[...document.querySelectorAll('.fold')].some(part => part.open)") is False
    browser.js("document.querySelector('nav a[href=\"#graph\"]').click()")
    assert browser.until("document.querySelector('#graph .fold').open")
    assert browser.until(
        "Math.abs(document.querySelector('#graph svg').viewBox.baseVal.width - 372) < 40"
    )  # not scaled
    assert browser.js("document.documentElement.scrollWidth") == 400


def test_a_class_is_hidden_by_keys_without_losing_the_place(browser):
    opened(browser, page())
    browser.js("document.querySelector('#legend button').focus()")
    for pressed in ("false", "true"):
        browser.key("Enter")
        assert browser.js("document.activeElement.getAttribute('aria-pressed')") == pressed
        assert browser.js("document.activeElement === document.querySelector('#legend button')")


def test_the_picture_of_the_point_under_the_mouse_is_shown(shop, browser):
    opened(browser, page(table=shop, labels=None))
    seen = """(() => {
      const map = document.getElementById('map'), box = map.getBoundingClientRect(), seen = new Set();
      for (let a = 0; a < box.width; a += 8) for (let b = 0; b < box.height; b += 8) {
        map.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + a, clientY: box.top + b}));
        const part = document.querySelector('#tip canvas');
        if (part && !document.getElementById('tip').hidden) seen.add(part.toDataURL());
      }
      return seen.size; })()"""
    assert browser.js(seen) >= 30


def test_the_map_keeps_clusters_apart_and_is_the_same_each_time():
    generator = np.random.default_rng(0)
    for count in (200, 21_000):  # above 20 000 points the layout takes its shorter way
        cluster = generator.integers(0, 8, count)
        points = (6 * generator.normal(size=(8, 16))[cluster] + generator.normal(size=(count, 16))).astype(np.float32)
        place = plane_layout(points)
        assert place.shape == (count, 2)
        sample = generator.choice(count, 100, replace=False)
        near = cKDTree(place).query(place[sample], 6)[1][:, 1:]
        assert (cluster[near] == cluster[sample][:, None]).mean() > 0.9
        if count == 200:
            np.testing.assert_array_equal(place, plane_layout(points))


@pytest.mark.parametrize("count", [1, 2, 5, 11, 12])
def test_a_few_or_equal_points_have_a_finite_map(count):
    for points in (np.ones((count, 3)), np.arange(count * 3.0).reshape(count, 3), np.arange(float(count))[:, None]):
        place = plane_layout(points)
        assert place.shape == (count, 2)
        assert np.isfinite(place).all()
