from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from scipy.spatial import cKDTree

from sobgnn.runs.page.colors import class_colors
from sobgnn.runs.page.layout import plane_layout
from sobgnn.runs.page.render import render
from sobgnn.runs.run import metrics
from tests.fitted_runs import fitted_run, found_search

NASTY = ("</script><script>alert(1)</script>", '<img src=x onerror="window.hacked=1">', "%{x} & <b>bold</b>")
# What keeps a browser still: no first-run pages, no services, no network of its own.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--enable-unsafe-swiftshader"]


def page(**options):
    fitted = fitted_run(**options)
    return render(fitted, metrics(fitted))


def without_plotly(text):
    return re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)


def page_data(text):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL).group(1))


def test_every_section_is_there_and_its_chart_has_a_place():
    text = page()
    for title in ("The points", "Accuracy", "What was decided", "Training", "The graph", "What to label next"):
        assert f"<h2>{title}</h2>" in text
    figures = page_data(text)["figures"]
    assert set(figures) >= {"map", "confusion", "families", "filters", "train_loss", "degrees", "weights", "agreement"}
    for name in figures:
        assert f'id="{name}"' in text


def test_a_search_has_a_section_where_there_was_one():
    assert "The search" not in page()
    text = page(search=found_search())
    assert "6 of 10 trials finished, 1 of them pruned early" in text
    assert "<tr><td>k</td><td>10</td><td>15</td></tr>" in text  # before the search, and found by it
    assert "<b>linear" not in text
    figures = page_data(text)["figures"]
    assert figures["search"]["data"][0]["y"][1] is None
    assert figures["importance"]["data"][0]["y"] == ["combine", "k"]  # drawn from below
    few = page(search=found_search(importance=False))
    assert "importance" not in page_data(few)["figures"]
    assert "What mattered" not in few


def test_the_page_asks_for_nothing_from_elsewhere():
    own = without_plotly(page())
    assert len(own) < 500_000  # the library was found and cut
    assert not re.search(r'(src|href)\s*=\s*["\']?(https?:)?//', own)
    assert "default-src 'none'" in own


def test_without_hidden_labels_the_page_says_that_accuracy_is_unknown():
    text = page(labels=None)
    assert "Not known: no label was hidden" in text
    assert "confusion" not in page_data(text)["figures"]
    assert "What to label next" not in text


def test_names_of_classes_rows_and_data_cannot_become_markup():
    ids = np.array([NASTY[i % 3] for i in range(60)])
    text = without_plotly(page(points=60, classes=NASTY, name=NASTY[0], ids=ids))

    class Tags(html.parser.HTMLParser):
        scripts = 0

        def handle_starttag(self, tag, attributes):
            assert tag not in ("img", "b") or dict(attributes) == {}
            self.scripts += tag == "script"

    tags = Tags()
    tags.feed(text)
    assert tags.scripts == 2
    for trace in page_data(text)["figures"]["map"]["data"]:
        assert "<" not in trace["name"]
        assert all("<" not in entry[0] + entry[2] for entry in trace.get("customdata", []))


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
    for count in (2, 10, 11, 40):
        pairs = class_colors(count)
        assert len({light for light, _ in pairs}) == len({dark for _, dark in pairs}) == count
        assert all(re.fullmatch("#[0-9a-f]{6}", color) for pair in pairs for color in pair)


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
def test_chromium_draws_every_chart(chromium, tmp_path, theme, view):
    fitted = fitted_run(points=90, classes=NASTY, ids=np.array(NASTY * 30), search=found_search())
    text = render(fitted, metrics(fitted))
    (tmp_path / "report.html").write_text(text)
    address = f"file://{tmp_path / 'report.html'}?theme={theme}&view={view}"
    dom = browse(chromium, tmp_path, address, "--dump-dom")
    assert 'data-ready="yes"' in dom, re.search(r"<html[^>]*>", dom).group(0)
    assert f'data-theme="{theme}"' in dom
    assert re.search(rf'data-view="{view}" aria-pressed="true"', dom)
    for name in page_data(text)["figures"]:
        assert re.search(rf'id="{name}"[^>]*class="[^"]*js-plotly-plot|class="[^"]*js-plotly-plot[^>]*id="{name}"', dom)
    assert "<img" not in dom.split("<script>")[0].replace("&lt;img", "")


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
    text = without_plotly(page())
    for share in ("75%", "20%", "15%", "10%"):
        assert f"for {share}" in text
    assert "with strength 0.5" in text
