from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from scipy.spatial import cKDTree

from sobgnn.runs.checks import checks_of
from sobgnn.runs.metrics import metrics
from sobgnn.runs.page import charts
from sobgnn.runs.page.colors import class_colors
from sobgnn.runs.page.layout import plane_layout
from sobgnn.runs.page.render import render
from sobgnn.tables import read_table
from tests.fitted_runs import fitted_run, found_search

NASTY = ("</script><script>alert(1)</script>", '<img src=x onerror="window.hacked=1">', "%{x} & <b>bold</b>")
# What keeps a browser still: no first-run pages, no services, no network of its own.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--enable-unsafe-swiftshader"]


def page(columns=None, **options):
    fitted = fitted_run(**options)
    measured = metrics(fitted, checks_of(fitted).acceptance)
    return render(fitted, measured | ({"columns": columns} if columns else {}))


def page_data(text):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL).group(1))


def shown(text):
    """What a reader sees, without marks."""
    return html.unescape(re.sub("<[^>]+>", "", text.split("<body>")[1].split("<script")[0]))


def test_every_section_is_there():
    text = page(columns={"a": 0.2, "b": 0.1}, suspects=3)
    for title in (
        "The points", "Accuracy", "Which columns matter", "What to label next", "Labels that look wrong", "Mistakes",
        "What was decided", "Training", "The graph",
    ):  # fmt: skip
        assert f"<h2>{title}</h2>" in text


def test_the_page_says_first_how_good_it_is_then_what_was_not_used_then_what_to_do():
    fitted = fitted_run()
    fitted.table.notes.append("Dropped: body.")
    said = shown(render(fitted, metrics(fitted) | {"suspects": 2}))
    places = [
        said.index(part)
        for part in ("Estimated accuracy", "hidden labels (95", "Dropped: body.", "Check 2 given labels")
    ]
    assert places == sorted(places)
    assert places[-1] < said.index("The points")


def test_noise_is_called_guessing_and_its_map_is_gray_with_that_sentence_on_it():
    text = page(noise=True)
    assert "Not shown to be better than guessing" in shown(text)
    assert '<div class="over">Not shown to be better than guessing</div>' in text
    assert page_data(text)["gray"] is True
    assert "data-view=" not in text.split("<script")[0]
    good = page()
    assert "Not shown to be better than guessing" not in good
    assert page_data(good)["gray"] is False


def test_a_page_of_three_thousand_points_is_below_three_megabytes(tmp_path):
    words = np.random.default_rng(0).choice(["lorem ipsum dolor", "sit amet", "consectetur adipiscing elit"], (3000, 4))
    lines = [f"{i},{i * 0.37:.3f},{i % 7},{w[0]},{'xyz'[i % 3] if i < 300 else ''}" for i, w in enumerate(words)]
    (tmp_path / "t.csv").write_text("id,height,floor,text,label\n" + "\n".join(lines) + "\n")
    text = page(table=read_table(tmp_path / "t.csv", None, None, []), labels=None)
    assert 50_000 < len(text.encode()) < 3_000_000


def test_lists_show_the_content_of_rows(tmp_path):
    colors = ["red", "green", "blue"]
    lines = [f"n{i},{i * 0.25},{colors[i % 3]},{'xyz'[i % 3] if i % 2 else ''}" for i in range(90)]
    (tmp_path / "t.csv").write_text("id,height,color,label\n" + "\n".join(lines) + "\n")
    table = read_table(tmp_path / "t.csv", None, None, [])
    text = page(table=table, labels=None, columns={"color": 0.3, "height": 0.0})
    rows = re.search(r'id="next-table".*?</table>', text, re.DOTALL).group(0)
    first = int(re.search(r'<tbody><tr><td data-head="row">(\d+)</td>', rows).group(1))
    assert f'<td data-head="id">n{first}</td>' in rows
    # The column that matters comes first.
    assert f'<i>color</i> {colors[first % 3]}</span> <span class="cell"><i>height</i> {first * 0.25}</span>' in rows


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


def test_without_hidden_labels_held_out_ones_tell_how_good_it_is():
    text = page(labels=None)
    assert "Held out labels" in text
    assert "Hidden labels" not in text
    assert "What to label next" not in text
    assert "Every row is labeled" in text


def test_names_of_classes_rows_and_data_cannot_become_markup():
    ids = np.array([NASTY[i % 3] for i in range(60)])
    text = page(points=60, classes=NASTY, name=NASTY[0], ids=ids, columns={NASTY[1]: 0.2, NASTY[2]: 0.1})

    class Tags(html.parser.HTMLParser):
        scripts = 0

        def handle_starttag(self, tag, attributes):
            assert tag != "img"
            assert tag != "b" or dict(attributes) == {}
            self.scripts += tag == "script"

    tags = Tags()
    tags.feed(text)
    assert tags.scripts == 2
    assert "<b>bold" not in text
    assert page_data(text)["map"]["classes"] == list(NASTY)


def test_ticks_are_round_differ_and_have_at_most_two_decimals():
    generator = np.random.default_rng(0)
    for _ in range(300):
        low = generator.normal() * 10.0 ** generator.integers(-3, 6)
        high = low + abs(generator.normal()) * 10.0 ** generator.integers(-5, 6)
        for percent, whole in ((False, False), (True, False), (False, True)):
            axis = charts._Axis(low, high, 0, 100, percent=percent, whole=whole, nice=True)
            labels = axis.labels()
            assert 1 <= len(labels) <= 7
            assert len(set(labels)) == len(labels)
            assert all(re.fullmatch(r"-?[\d,]+(\.\d{1,2})?[%M]?", label) for label in labels), labels


@pytest.mark.parametrize("values", [[0.5, 0.5], [0.5, 0.5 + 1e-12], [1.0, 1.0 - 1e-16], [0.0, 1e-9], [0, 0], [1e9] * 2])
def test_values_that_hardly_differ_are_drawn(values):
    for percent in (False, True):
        for zero in (False, True):
            drawn = charts.lines({"a": ([1, 2], values)}, "epoch", percent=percent, whole=True, zero=zero)
            assert "nan" not in drawn
            assert "inf" not in drawn
    charts.histogram(np.array(values), "weight")
    charts.bars({"a": values[0], "b": -values[1]}, str)


@pytest.mark.parametrize("last", [200, 1000, 10_000])
def test_the_last_number_of_an_axis_has_room(last):
    drawn = charts.lines({"a": ([0, last], [0.1, 0.2])}, "epoch", whole=True)
    place = float(re.search(rf'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">{last:,}</text>', drawn).group(1))
    assert place + 7 * len(f"{last:,}") / 2 <= charts._WIDTH  # a digit of 13 px is 7 px wide


def test_single_things_are_counted_in_the_singular():
    text = page(X=np.arange(60.0)[:, None], codes=np.arange(60) % 2, classes=("a", "b"))
    assert "<b>60</b><span>rows, 1 feature</span>" in text


def test_a_chart_that_would_say_nothing_is_not_drawn():
    assert charts.histogram(np.full(50, 7), "neighbors", whole=True) is None
    assert charts.histogram(np.array([1, 2, 2]), "neighbors", whole=True) is not None
    fitted = fitted_run()
    fitted.classifier.family_shares_ = {"sobolev": 1.0}
    assert "<b>Families</b>" not in render(fitted, metrics(fitted))


def test_the_map_keeps_clusters_apart_and_is_the_same_each_time():
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(4), 50)
    points = 5 * generator.normal(size=(4, 10))[group] + generator.normal(size=(200, 10))
    place = plane_layout(points)
    np.testing.assert_array_equal(place, plane_layout(points))
    centers = np.stack([place[group == g].mean(axis=0) for g in range(4)])
    nearest = np.linalg.norm(place[:, None] - centers, axis=2).argmin(axis=1)
    assert (nearest == group).mean() > 0.97


@pytest.mark.parametrize("count", [1, 2, 5, 11, 12])
def test_a_few_or_equal_points_have_a_finite_map(count):
    for points in (np.ones((count, 3)), np.arange(count * 3.0).reshape(count, 3), np.arange(float(count))[:, None]):
        place = plane_layout(points)
        assert place.shape == (count, 2)
        assert np.isfinite(place).all()


def test_class_colors_are_distinct_at_any_number():
    for count in (2, 10, 11, 40, 100):
        pairs = class_colors(count)
        assert len({light for light, _ in pairs}) == len({dark for _, dark in pairs}) == count
        assert all(re.fullmatch("#[0-9a-f]{6}", color) for pair in pairs for color in pair)


def test_a_further_class_leaves_the_colors_of_the_others():
    assert class_colors(40)[:12] == class_colors(12)
    assert class_colors(0) == []


@pytest.fixture(scope="module")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


def browse(chromium, folder, address, *options):
    command = [chromium, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=15000", *options]
    return subprocess.run([*command, address], capture_output=True, text=True, timeout=400, check=True).stdout


@pytest.mark.parametrize(("theme", "view"), [("light", "wrong"), ("dark", "confidence")])
def test_chromium_draws_the_map_and_shows_no_error(chromium, tmp_path, theme, view):
    fitted = fitted_run(points=90, classes=NASTY, ids=np.array(NASTY * 30), search=found_search())
    (tmp_path / "report.html").write_text(render(fitted, metrics(fitted)))
    address = f"file://{tmp_path / 'report.html'}?theme={theme}&view={view}"
    dom = browse(chromium, tmp_path, address, "--dump-dom")
    assert 'data-ready="yes"' in dom, re.search(r"<html[^>]*>", dom).group(0)
    assert f'data-theme="{theme}"' in dom
    assert re.search(rf'data-view="{view}" aria-pressed="true"', dom)
    assert re.search(r'<canvas id="map" width="[1-9]\d\d', dom)
    assert re.search(r'id="legend"><button', dom)
    assert "<img" not in dom.split("<script")[0].replace("&lt;img", "")


def test_a_layout_of_many_points_keeps_clusters_together():
    # Above 20 000 points the layout takes its shorter way. How long 100 000 take is for a benchmark to say.
    generator = np.random.default_rng(0)
    cluster = generator.integers(0, 8, 21_000)
    points = (6 * generator.normal(size=(8, 16))[cluster] + generator.normal(size=(21_000, 16))).astype(np.float32)
    place = plane_layout(points)
    assert place.shape == (21_000, 2)
    sample = generator.choice(21_000, 500, replace=False)
    near = cKDTree(place).query(place[sample], 6)[1][:, 1:]
    assert (cluster[near] == cluster[sample][:, None]).mean() > 0.9


def test_the_page_says_how_much_each_family_counts():
    said = shown(page())
    for name, share in (("sobolev", "50%"), ("mlp", "30%"), ("diffusion", "20%")):
        assert f"{name}{share}" in said


@pytest.fixture
def shop(tmp_path):
    from PIL import Image

    generator = np.random.default_rng(0)
    for number in range(40):
        folder = (
            tmp_path / "shop" / ("cat" if number % 2 else "dog") if number < 20 else tmp_path / "shop" / "unlabelled"
        )
        folder.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{number}.png")
    return tmp_path / "shop"


def test_pictures_are_shown_in_the_lists_without_leaving_the_page(shop):
    text = page(table=read_table(shop, None, None, []), labels=None)
    rows = re.search(r'id="next-table".*?</table>', text, re.DOTALL).group(0)
    assert rows.count('<img alt="" src="data:image/jpeg;base64,') == 20
    assert not re.search(r'src="(?!data:)', text)


def test_the_map_holds_the_picture_of_every_point(shop, monkeypatch):
    text = page(table=read_table(shop, None, None, []), labels=None)
    held = page_data(text)["map"]["pictures"]
    assert held["image"].startswith("data:image/jpeg;base64,")
    assert held["columns"] == 7
    assert held["missing"] == []
    assert "Point at one to see its picture." in shown(text)
    for module in ("points", "render"):
        monkeypatch.setattr(f"sobgnn.runs.page.{module}.MOST_TOLD", 39)
    text = page(table=read_table(shop, None, None, []), labels=None)
    assert "pictures" not in page_data(text)["map"]
    assert "Pictures are shown for up to 39 points." in shown(text)
    assert "pictures" not in page_data(page())["map"]


def test_chromium_shows_the_picture_of_the_point_under_the_mouse(shop, chromium, tmp_path):
    text = page(table=read_table(shop, None, None, []), labels=None)
    # A report waits for a mouse; here a script moves it over all of the map, and says what the pictures look like.
    moves = """<script>addEventListener('load', () => setTimeout(() => {
      const map = document.getElementById('map'), box = map.getBoundingClientRect(), seen = new Set();
      for (let a = 0; a < box.width; a += 8) for (let b = 0; b < box.height; b += 8) {
        map.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + a, clientY: box.top + b}));
        const part = document.querySelector('#tip canvas');
        if (part && !document.getElementById('tip').hidden) seen.add(part.toDataURL());
      }
      document.documentElement.dataset.seen = seen.size;
    }, 500));</script>"""
    (tmp_path / "report.html").write_text(text.replace("</body>", moves + "</body>"))
    dom = browse(chromium, tmp_path, f"file://{tmp_path / 'report.html'}", "--dump-dom")
    assert 'data-ready="yes"' in dom
    assert int(re.search(r'data-seen="(\d+)"', dom).group(1)) >= 30
