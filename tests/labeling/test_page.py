from __future__ import annotations

import json
import math

import pytest
from PIL import Image

from sobgnn.labeling.launch import open_page
from tests.labeling.browser import Browser, find_chromium
from tests.labeling.conftest import FAKE, Client
from tests.labeling.test_pictures import picture_table


@pytest.fixture
def browser(tmp_path):
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    made = Browser(program, tmp_path)
    yield made
    made.close()


def saved(browser, labels):
    """Wait until the page shows that many labels, all of them saved."""
    browser.until(
        f"document.documentElement.dataset.labels === '{labels}' && document.documentElement.dataset.waiting === '0'"
    )


def start(browser, page):
    browser.open(page.url)
    browser.until("document.documentElement.dataset.row !== undefined")


def add_class(browser, name):
    """By keys alone: N, the name, Enter."""
    browser.key("n")
    browser.until("document.activeElement.id === 'new-name'")
    browser.type(name)
    browser.key("Enter")
    browser.until(f"[...document.querySelectorAll('#classes .label')].some(e => e.textContent === {json.dumps(name)})")
    browser.until("document.activeElement.id !== 'new-name'")


def test_from_no_labels_to_sixty_by_keys_alone(browser, page, tickets):
    before = tickets.read_bytes()
    start(browser, page)
    for name in ("billing", "access", "shipping"):
        add_class(browser, name)
    given = {}
    for number in range(60):
        row = int(browser.js("document.documentElement.dataset.row"))
        assert row not in given
        given[row] = row % 3
        browser.key(str(row % 3 + 1))
        browser.until(f"document.documentElement.dataset.row !== '{row}'")
        if number == 20:  # at the latest: guesses, which Enter accepts
            browser.until("Number(document.documentElement.dataset.version) >= 2")
    saved(browser, 60)
    assert {row: label.code for row, label in page.labeling.session.state.labels.items()} == given
    audits = [label for label in page.labeling.session.state.labels.values() if label.audit]
    assert audits
    assert all(label.by == "person" for label in audits)
    assert "rows labeled" in browser.js("document.getElementById('counts').textContent")
    assert tickets.read_bytes() == before
    assert not browser.problems
    assert not browser.js("window.hacked")


def test_undo_skip_accept_rename_and_reload(browser, page):
    start(browser, page)
    add_class(browser, "red")
    add_class(browser, "blue")
    first = browser.js("document.documentElement.dataset.row")
    browser.key("1")
    saved(browser, 1)
    browser.key("u")
    saved(browser, 0)
    browser.until(f"document.documentElement.dataset.row === '{first}'")  # the undone point is shown again
    browser.key("1")
    browser.key("2")
    saved(browser, 2)
    skipped = browser.js("document.documentElement.dataset.row")
    browser.key("s")
    browser.until("document.getElementById('counts').textContent.includes('1 skipped')")
    assert browser.js("document.documentElement.dataset.row") != skipped
    browser.until("document.getElementById('model').textContent.includes('knows 2 of 2')")
    browser.key("1")  # what was shown before the model came has no guess
    browser.until("document.getElementById('guess').textContent.startsWith('Guess')")
    browser.key("Enter")
    saved(browser, 4)
    assert [label.by for label in page.labeling.session.state.labels.values()].count("model") == 1
    browser.key("r")
    browser.until("document.getElementById('rename-dialog').open")
    browser.js("document.getElementById('rename-name').focus()")
    browser.type("scarlet")
    browser.key("Enter")
    browser.until("document.querySelector('#classes .label').textContent === 'scarlet'")
    assert page.labeling.session.state.classes[0] == "scarlet"
    browser.until("!$('rename-dialog').open", 60)
    browser.open(page.url)  # a reload
    browser.until("document.getElementById('counts').textContent.startsWith('4 of 120')")
    assert browser.js("document.querySelector('#classes .label').textContent") == "scarlet"
    assert not browser.problems


def test_a_rename_changes_the_guess_that_is_shown(browser, page):
    start(browser, page)
    add_class(browser, "one")
    add_class(browser, "two")
    Client(page.url).post("label", {"rows": [0, 1], "class": 0})
    Client(page.url).post("label", {"rows": [2, 3], "class": 1})
    browser.until("state.model.guessing && state.model.labels === 4", 60)
    browser.key("s")
    browser.until("$('guess').textContent.startsWith('Guess: ')", 60)
    for code in (0, 1):
        Client(page.url).post("rename", {"class": code, "name": f"other {code}"})
    browser.until("$('guess').textContent.startsWith('Guess: other ')", 60)
    assert not browser.problems


def test_a_rename_to_the_name_of_another_class_merges_them_after_a_question(browser, page):
    start(browser, page)
    add_class(browser, "ship ping")
    add_class(browser, "shipping")
    row = int(browser.js("document.documentElement.dataset.row"))
    browser.key("1")
    saved(browser, 1)
    browser.key("r")
    browser.until("document.getElementById('rename-dialog').open", 60)
    browser.js("document.getElementById('rename-name').focus()")
    browser.type("nan")
    browser.key("Enter")
    browser.until("$('rename-said').textContent.includes('means no label')", 60)
    assert browser.js("$('rename-dialog').open && $('rename-name').value") == "nan"
    browser.js("$('rename-name').value = ''")
    browser.type("shipping")
    browser.key("Enter")
    browser.until("""$('rename-said').textContent === "Merge 'ship ping' (1) into 'shipping' (0)?" """, 60)
    assert browser.js("$('rename-do').textContent") == "Merge"
    assert len(page.labeling.session.state.classes) == 2
    browser.key("Enter")
    browser.until("!$('rename-dialog').open && state.classes.length === 1", 60)
    assert page.labeling.session.state.labels[row].code == 1
    browser.key("u")
    browser.until("state.classes.length === 2", 60)
    assert page.labeling.session.state.labels[row].code == 0
    assert [problem for problem in browser.problems if "400" not in problem] == []


def test_a_new_row_is_read_out_in_short(browser, page):
    start(browser, page)
    browser.js("openRow(7)")
    browser.until("document.documentElement.dataset.row === '7'", 60)
    said = browser.js("$('spoken').textContent")
    assert said.startswith("Row T7. text: login and password of customer 7.")
    assert len(said) <= 201
    assert browser.js("$('spoken').getAttribute('aria-live')") == "polite"


def test_a_lasso_labels_all_that_it_encloses(browser, page):
    start(browser, page)
    add_class(browser, "all of them")
    browser.until("map.place && map.given && map.view.scale !== 1")
    browser.js("document.getElementById('map').scrollIntoView()")
    box = json.loads(browser.js("JSON.stringify(document.getElementById('map').getBoundingClientRect())"))
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    reach = 0.49 * box["height"]  # points lie on a circle
    around = [(middle[0] + reach * math.cos(a / 8), middle[1] + reach * math.sin(a / 8)) for a in range(51)]
    browser.drag(around)
    browser.until("document.documentElement.dataset.selected === '120'")
    browser.key("Escape")
    browser.until("document.documentElement.dataset.selected === '0'")
    # The right half: rows with a positive cosine.
    right = [(middle[0] + 3, middle[1] + reach), (middle[0] + reach, middle[1] + reach)]
    right += [(middle[0] + reach, middle[1] - reach), (middle[0] + 3, middle[1] - reach)]
    browser.drag([*right, right[0]])
    browser.until("Number(document.documentElement.dataset.selected) > 40")
    browser.key("1")
    count = int(browser.until("Number(document.documentElement.dataset.labels)"))
    expected = {row for row in range(120) if math.cos(2 * math.pi * row / 120) > 0.05}
    labeled = set(page.labeling.session.state.labels)
    assert expected <= labeled
    assert all(math.cos(2 * math.pi * row / 120) > -0.05 for row in labeled)
    assert count == len(labeled)
    browser.key("u")
    saved(browser, 0)
    assert not browser.problems


def test_rows_of_a_lasso_that_was_undone_here_or_in_another_tab_are_offered_again(browser, page):
    start(browser, page)
    add_class(browser, "one")
    everything = "JSON.stringify([current, ...upcoming].map(p => p && p.row))"
    offered = browser.js(everything)
    for undo_here in (True, False):
        browser.js("select([...Array(120).keys()])")
        browser.key("1")
        saved(browser, 120)
        browser.until("document.getElementById('point-title').textContent === 'Every row is done'")
        if undo_here:
            browser.key("u")
        else:
            Client(page.url).post("undo")
        saved(browser, 0)
        browser.until(f"{everything} === '{offered}'")
    assert not browser.problems


def test_a_key_after_undo_labels_the_row_that_undo_brings_back(browser, page):
    start(browser, page)
    add_class(browser, "one")
    add_class(browser, "two")
    first = int(browser.js("document.documentElement.dataset.row"))
    browser.key("1")
    saved(browser, 1)
    # The row comes late: its answer waits until the test lets it pass.
    browser.js(
        "window.pass = null; window.real = fetch; fetch = async (path, ...rest) => {"
        "if (path.startsWith('api/point')) await new Promise(done => { window.pass = done; });"
        "return window.real(path, ...rest); }; 0"
    )
    browser.key("u")
    browser.key("2")
    browser.until("window.pass !== null")
    saved(browser, 0)
    browser.key("s")
    browser.js("window.pass()")
    browser.until("document.getElementById('counts').textContent.includes('1 skipped')")
    saved(browser, 1)
    session = page.labeling.session.state
    assert {row: label.code for row, label in session.labels.items()} == {first: 1}
    assert first not in session.skipped
    assert not browser.problems


def test_keys_after_an_undo_that_fails_label_nothing(browser, page, monkeypatch):
    start(browser, page)
    add_class(browser, "one")
    browser.key("1")
    saved(browser, 1)

    def full(event):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(page.labeling.session._journal, "append", full)
        browser.js("act(undo); act(() => give(0)); 0")
        browser.until("document.getElementById('alert').textContent.includes('Not saved')", 60)
        browser.until("opening === 0 && kept.length === 0", 60)
    assert browser.js("waiting") == 0
    assert len(page.labeling.session.state.labels) == 1


def test_the_file_that_the_browser_is_given_leads_to_the_page(browser, page, monkeypatch):
    given = []
    monkeypatch.setattr("webbrowser.open", given.append)
    with page.in_browser():
        browser.open(given[0])
        browser.until("location.protocol === 'http:' && document.documentElement.dataset.row !== undefined", 60)
    assert browser.js("location.href") == page.url
    assert not browser.problems


def test_a_row_that_another_tab_labeled_keeps_its_label_and_the_page_says_so(browser, page):
    start(browser, page)
    add_class(browser, "one")
    add_class(browser, "two")
    row = int(browser.js("document.documentElement.dataset.row"))
    Client(page.url).post("label", {"rows": [row], "class": 1})
    browser.key("1")
    browser.until("document.getElementById('alert').textContent.includes('was labeled \\'two\\' in another tab')", 60)
    assert page.labeling.session.state.labels[row].code == 1
    assert browser.js("document.documentElement.dataset.row") != str(row)
    browser.key("1")
    saved(browser, 2)
    assert [problem for problem in browser.problems if "409" not in problem] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_shows_all_of_the_page_and_names_every_control(browser, page, scheme):
    browser.scheme(scheme)
    browser.call("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=False)
    start(browser, page)
    add_class(browser, "a class with a name that is far longer than the button it is written on")
    assert browser.js("document.documentElement.scrollWidth") <= 400
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(22, 24, 28)") == (scheme == "dark")
    unnamed = browser.js(
        "[...document.querySelectorAll('button, input, select, a, canvas')].filter(e => "
        "!(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length))).length"
    )
    assert unnamed == 0
    assert not browser.problems


def test_in_a_narrow_window_a_selection_on_the_map_brings_the_classes_into_view(browser, page):
    browser.call("Emulation.setDeviceMetricsOverride", width=400, height=700, deviceScaleFactor=1, mobile=False)
    start(browser, page)
    add_class(browser, "one")
    browser.until("map.place && map.given && map.view.scale !== 1")
    browser.js("document.getElementById('map').scrollIntoView()")
    box = json.loads(browser.js("JSON.stringify(document.getElementById('map').getBoundingClientRect())"))
    corners = [(box["x"] + u * box["width"], box["y"] + v * box["height"]) for u in (0.02, 0.98) for v in (0.02, 0.98)]
    browser.drag([corners[0], corners[1], corners[3], corners[2], corners[0]])
    browser.until("Number(document.documentElement.dataset.selected) > 0")
    for shown in ("selection", "classes"):
        browser.until(f"(b => b.top >= 0 && b.bottom <= 700)($('{shown}').getBoundingClientRect())", 60)
    assert not browser.problems


def test_enter_accepts_the_guess_of_a_search_hit_and_escape_closes_the_hits(browser, page):
    start(browser, page)
    add_class(browser, "one")
    add_class(browser, "two")
    Client(page.url).post("label", {"rows": [0, 1], "class": 0})
    Client(page.url).post("label", {"rows": [2, 3], "class": 1})
    browser.until("state.model.guessing && state.model.labels === 4", 60)
    browser.key("/")
    browser.type("customer 77")
    browser.key("Enter")
    browser.until("!!document.activeElement.closest('#found')", 60)
    for key in ("1", "s"):  # another row is shown than the one that has the focus
        browser.key(key)
        assert browser.js("$('saved').textContent") == "Press Enter to open that row first."
    browser.key("Enter")
    assert browser.js("document.activeElement.id") == "point"
    browser.key("Enter")  # at once: it waits for the row
    saved(browser, 5)
    assert page.labeling.session.state.labels[77].by == "model"
    assert browser.js("document.getElementById('found').children.length") == 1
    browser.key("Escape")
    assert browser.js("document.getElementById('found').children.length") == 0
    assert not browser.problems


def test_a_class_named_by_a_digit_has_that_key_and_the_others_the_free_ones(browser, page):
    start(browser, page)
    for name in ("2", "x", "0", "y"):
        add_class(browser, name)
    keys = browser.js("[...document.querySelectorAll('#classes kbd')].map(e => e.textContent)")
    assert keys == ["2", "1", "0", "3"]
    browser.key("0")
    browser.key("2")
    saved(browser, 2)
    classes, labels = page.labeling.session.state.classes, page.labeling.session.state.labels
    assert sorted(classes[label.code] for label in labels.values()) == ["0", "2"]
    assert not browser.problems


def test_keys_work_on_layouts_of_other_letters_and_of_digits_with_shift(browser, page):
    start(browser, page)
    add_class(browser, "one")
    browser.key("&", "Digit1")  # French
    saved(browser, 1)
    browser.key("\u0433", "KeyU")  # Russian
    saved(browser, 0)
    browser.key("\u044b", "KeyS")
    browser.until("document.getElementById('counts').textContent.includes('1 skipped')", 60)
    browser.key("a", "KeyQ")  # French again: a Latin letter counts as it is
    browser.key("/", "Digit7")
    browser.until("document.activeElement.id === 'words'", 60)
    assert not browser.problems


def test_a_new_class_and_one_that_is_there_say_which_key_gives_them(browser, page):
    start(browser, page)
    add_class(browser, "one")
    add_class(browser, "two words")
    for name, said in (
        ("three", 'Added "three": press 3 to give it.'),
        ("  two   words ", '"two words" is already a class: press 2 to give it.'),
    ):
        browser.key("n")
        browser.type(name)
        browser.key("Enter")
        browser.until(f"$('saved').textContent === {json.dumps(said)}", 60)
        browser.js("show()")
        assert browser.js("$('saved').textContent") == said
        assert browser.js("$('new-name').value") == ""
        browser.until("document.activeElement.id !== 'new-name'", 60)
    assert len(page.labeling.session.state.classes) == 3
    assert browser.js("$('alert').hidden")
    browser.key("3")
    saved(browser, 1)
    browser.until("$('saved').textContent === 'All saved'", 60)
    assert [label.code for label in page.labeling.session.state.labels.values()] == [2]
    assert not browser.problems


def test_undo_says_what_it_undid_until_the_next_change_or_for_some_seconds(browser, page):
    Client(page.url).post("class", {"name": "zero", "tab": "gone"})
    start(browser, page)
    browser.until("state.classes.length === 1", 60)
    add_class(browser, "one")
    row = browser.js("current.id")
    browser.key("1")
    saved(browser, 1)
    undone = [f"label of row {row}", "class one added", "class zero added, from a closed window"]
    for said in [*(f"Undone: {change}" for change in undone), "Nothing to undo."]:
        browser.key("u")
        browser.until(f"$('saved').textContent === {json.dumps(said)}", 60)
        browser.js("new Promise(done => setTimeout(done, 800))")  # the page asks the server meanwhile
        browser.js("show()")
        assert browser.js("$('saved').textContent") == said
    browser.until("$('saved').textContent === 'All saved'", 60)
    browser.key("u")
    browser.until("$('saved').textContent === 'Nothing to undo.'", 60)
    browser.key("s")
    browser.until("$('saved').textContent === 'All saved'", 5)
    assert not browser.problems


def test_a_class_that_is_merged_leaves_the_others_their_keys(browser, page):
    client = Client(page.url)
    for number in range(12):
        client.post("class", {"name": f"class {number}"})
    client.post("merge", {"class": 2, "into": 0})
    start(browser, page)
    browser.until("document.querySelectorAll('#classes kbd').length === 11", 60)
    assert (
        browser.js("[...document.querySelectorAll('#classes kbd')].map(e => e.textContent).join('')") == "12456789ABC"
    )
    browser.key("c")
    saved(browser, 1)
    assert [label.code for label in page.labeling.session.state.labels.values()] == [11]
    assert not browser.problems


def test_the_map_is_laid_out_again_once_and_then_by_its_button(browser, page):
    client = Client(page.url)
    for code, rows in enumerate((range(25), range(25, 49))):
        client.post("class", {"name": f"class {code}"})
        client.post("label", {"rows": list(rows), "class": code})
    start(browser, page)
    browser.until("state.model.labels === 49 && map.place && map.view.scale !== 1 && !$('lay-out').disabled", 60)
    first, view = browser.js("[[...map.place], map.view]")
    client.post("label", {"rows": [49], "class": 0})
    browser.until("map.target[0] > 1.5 && map.place === map.target", 60)  # all points have moved
    second = browser.js("[...map.place]")
    assert second[:2] == pytest.approx([2 * value for value in first[-2:]])
    assert browser.js("map.view.scale") == pytest.approx(view["scale"] / 2)
    assert browser.js("$('saved').textContent").startswith("The map was laid out again")
    client.post("label", {"rows": list(range(50, 60)), "class": 1})
    browser.until("state.model.labels === 60 && !$('lay-out').disabled", 60)
    assert browser.js("state.model.map") == 2
    browser.js("map.start = [0, 0]")  # while a lasso is drawn, nothing moves
    browser.js("$('lay-out').click()")
    browser.until("state.model.map === 3", 60)
    browser.js("show()")
    assert browser.js("seen.map") == 2
    assert browser.js("$('lay-out').disabled")
    browser.js("map.start = null; show()")
    browser.until("seen.map === 3", 60)
    assert not browser.problems


def test_a_row_of_the_audit_is_not_circled_on_the_map(browser, page):
    start(browser, page)
    browser.until("map.place && map.given", 60)
    browser.js("window.circles = 0; map.canvas.getContext('2d').arc = () => { circles += 1; }; 0")
    for blind, circles in (("[]", 1), ("[map.current]", 0)):
        assert browser.js(f"circles = 0, map.blind = new Set({blind}), map.paint(), circles") == circles
    assert not browser.problems


def test_a_map_that_does_not_come_is_asked_for_again(browser, page):
    browser.open(page.url)
    browser.js(
        "seen.map = 0; map.place = null; window.real = fetch; let failed = false; fetch = async (path, ...rest) => {"
        "if (path === 'api/map' && !failed) { failed = true; throw new TypeError('lost'); }"
        "return window.real(path, ...rest); }; 0"
    )
    browser.until("map.place && map.place.length === 240 && seen.map > 0", 60)
    assert not browser.problems


def test_the_page_has_an_icon(browser, page):
    start(browser, page)
    address = browser.js("document.querySelector('link[rel=icon]').href")
    status, headers, _ = Client(page.url).get(address.rsplit("/", 1)[1])
    assert (status, headers["content-type"]) == (200, "image/svg+xml")
    # It loads as a picture of the page, which the content security policy allows.
    shown = "const i = new Image(); i.onload = () => done(i.width > 0); i.onerror = () => done(false)"
    assert browser.js(f"new Promise(done => {{ {shown}; i.src = {json.dumps(address)}; }})")
    assert not browser.problems


def test_a_class_button_keeps_the_focus(browser, page):
    start(browser, page)
    add_class(browser, "one")
    add_class(browser, "two")
    browser.js("document.querySelectorAll('#classes button')[1].focus()")
    for number, key in enumerate(("Enter", " "), start=1):
        browser.key(key)
        saved(browser, number)
        assert browser.js("document.activeElement === document.querySelectorAll('#classes button')[1]")
    assert not browser.problems


def test_enter_after_a_click_accepts_the_guess_and_the_button_stays_under_the_mouse(browser, page):
    browser.call("Emulation.setDeviceMetricsOverride", width=400, height=320, deviceScaleFactor=1, mobile=False)
    start(browser, page)
    add_class(browser, "one")
    add_class(browser, "two")
    Client(page.url).post("label", {"rows": [0, 1], "class": 0})
    Client(page.url).post("label", {"rows": [2, 3], "class": 1})
    browser.until("state.model.guessing && state.model.labels === 4", 60)
    browser.key("s")  # what was shown before the model came has no guess
    browser.until("current && current.guesses.length && !waiting", 60)
    clicks = ("document.querySelector('#classes button')", "$('skip')", "$('undo')", "$('accept')")
    for number, button in enumerate(clicks):
        browser.js(f"{button}.scrollIntoView()")
        change, scroll = browser.js("[state.saved, scrollY]")
        browser.click(button)
        browser.until(f"state.saved > {change} && !waiting && !opening", 60)
        assert browser.js("document.activeElement.id") == "point", button
        if number == 0:  # after an undo the browser itself scrolls, where the reason takes another line
            assert browser.js("scrollY") == scroll > 0
        assert [label.by for label in page.labeling.session.state.labels.values()].count("model") == (number == 3)
    browser.until("current && current.guesses.length", 60)
    browser.key("Enter")
    browser.until("!waiting && state.labels === 7", 60)
    assert [label.by for label in page.labeling.session.state.labels.values()].count("model") == 2
    assert not browser.problems


def test_the_row_that_was_opened_last_is_shown_whichever_answer_comes_first(browser, page):
    start(browser, page)
    browser.js(
        "window.real = fetch; fetch = async (path, ...rest) => {"
        "if (path === 'api/point/5') await new Promise(done => { window.pass = done; });"
        "return window.real(path, ...rest); }; fill($('found'), [{ row: 7, label: null, excerpt: 'seven' }]); 0"
    )
    for last, click in ((7, "$('found').querySelector('button').click()"), (9, "map.onOpen(9)")):
        browser.js("window.pass = null; map.onOpen(5); 0")
        browser.until("window.pass !== null", 60)
        browser.js(f"{click}; 0")
        browser.js("new Promise(done => setTimeout(done, 300))")
        browser.js("window.pass()")
        browser.until("opening === 0 && kept.length === 0", 60)
        assert browser.js("current.row") == last
    assert not browser.problems


def test_an_answer_that_is_cut_off_is_said_and_keys_work_on(browser, page):
    start(browser, page)
    add_class(browser, "one")
    browser.key("1")
    saved(browser, 1)
    browser.js(
        "window.real = fetch; fetch = async (path, ...rest) => {"
        "const answer = await window.real(path, ...rest);"
        "return path === 'api/undo' ? new Response((await answer.text()).slice(0, 30)) : answer; }; 0"
    )
    browser.key("u")
    browser.until("document.getElementById('alert').textContent.includes('cut off')", 60)
    assert browser.js("[opening, waiting, kept.length]") == [0, 0, 0]
    saved(browser, 0)  # the undo itself was done
    browser.key("1")
    saved(browser, 1)
    assert browser.js("document.getElementById('alert').hidden")
    assert not browser.problems


def test_work_that_fails_holds_back_no_key(browser, page):
    start(browser, page)
    add_class(browser, "one")
    browser.js("holdingKeys(async () => { act(() => give(0)); throw Error('wrong'); }).catch(() => 0)")
    assert browser.js("[opening, kept.length]") == [0, 0]
    browser.key("1")
    saved(browser, 1)
    assert not browser.problems


def test_a_reload_shows_the_same_row_and_a_duplicate_of_the_tab_another(browser, page):
    page.labeling.learner._due = lambda: False  # suggestions stay as they are
    start(browser, page)
    offers, (name, row) = page.labeling._offers, browser.js("[TAB, current.row]")
    browser.until(f"upcoming.length === 4 && current.row === {row}", 60)
    browser.js("window.stale = true")
    browser.call("Page.reload")
    browser.until("!window.stale && document.documentElement.dataset.row !== undefined", 60)
    assert browser.js("[TAB, current.row]") == [name, row]
    assert list(offers._held) == [name]
    # A window that a page opens gets a copy of its storage too.
    browser.call("Runtime.evaluate", expression="window.copy = open(location.href)", userGesture=True)
    browser.until("copy.document.documentElement.dataset.row !== undefined", 60)
    assert len(offers._held) == 2
    assert browser.js("copy.document.documentElement.dataset.row !== String(current.row)")
    assert not browser.problems


def test_u_leaves_the_labels_of_another_window_and_both_say_that_two_are_open(browser, page):
    start(browser, page)
    add_class(browser, "one")
    browser.call("Runtime.evaluate", expression="window.copy = open(location.href)", userGesture=True)
    browser.until("!!copy.document.querySelector('#classes button')", 60)
    browser.key("1")
    saved(browser, 1)
    browser.until("$('windows').textContent.includes('open in another window too')", 60)
    browser.until("copy.document.getElementById('windows').textContent.includes('open in another window too')", 60)
    assert browser.js("copy.document.getElementById('undo').disabled")
    browser.js("copy.undo().then(() => 0)")
    assert len(page.labeling.session.state.labels) == 1
    browser.js("copy.close()")
    browser.until("$('windows').textContent === ''", 20)  # it said that it was closed
    browser.key("u")
    saved(browser, 0)
    assert not browser.problems


@pytest.mark.parametrize("why", ["audit", "suggested"])
def test_the_page_says_whether_it_showed_the_guess(browser, page, why):
    start(browser, page)
    add_class(browser, "one")
    row = browser.js("current.row")
    page.labeling.picker.audits.add(row)
    browser.js(f"current.why = '{why}'")
    browser.key("1")
    saved(browser, 1)
    assert page.labeling.session.state.labels[row].audit == (why == "audit")
    assert not browser.problems


def test_what_went_wrong_stays_until_it_is_mended(browser, page, monkeypatch):
    start(browser, page)
    add_class(browser, "the model")
    browser.key("n")
    browser.type("nan")
    browser.key("Enter")
    browser.until("document.getElementById('alert').textContent.includes('means no label')", 60)
    browser.js("show()")
    assert "cannot be called 'nan'" in browser.js("document.getElementById('alert').textContent")
    assert browser.js("$('new-name').value") == "nan"
    assert browser.js("document.getElementById('saved').textContent") == ""
    browser.key("Escape")
    browser.key("1")
    saved(browser, 1)
    assert browser.js("document.getElementById('alert').hidden")
    assert browser.js("document.getElementById('saved').textContent") == "All saved"


def test_a_run_that_does_not_know_the_last_labels_is_said_to_be_older(browser, page):
    start(browser, page)
    add_class(browser, "one")
    page.labeling.learner.finished = {"folder": "runs/x", "knows": page.labeling.session.saved}
    browser.until("document.getElementById('finished').textContent.startsWith('Written')", 60)
    assert "changes since" not in browser.js("document.getElementById('finished').textContent")
    browser.key("1")
    saved(browser, 1)
    assert "changes since" in browser.js("document.getElementById('finished').textContent")


def test_long_names_wrap_and_texts_have_their_own_direction(browser, page):
    start(browser, page)
    Client(page.url).post("class", {"name": "x" * 200})
    browser.until("!!document.querySelector('#classes .label')", 60)
    assert browser.js("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#classes .label'))")
    height = browser.js("document.querySelector('#classes .label').clientHeight")
    assert height > 100
    assert browser.js("[...document.querySelectorAll('#content dd')].every(e => e.dir === 'auto')")


def test_a_text_that_is_cut_says_by_how_much(browser, tmp_path):
    (tmp_path / "long.csv").write_text("n,note\n" + "".join(f"{i},{'word ' * 6000}\n" for i in range(4)))
    made = open_page(str(tmp_path / "long.csv"), folder=tmp_path / "run", command=FAKE).start()
    try:
        start(browser, made)
        assert "… 10,000 more characters" in browser.js("document.getElementById('content').textContent")
    finally:
        made.close()


def test_a_picture_that_cannot_be_shown_is_explained(browser, tmp_path):
    made = open_page(str(picture_table(tmp_path)), folder=tmp_path / "run", command=FAKE).start()
    try:
        start(browser, made)
        browser.js("openRow(1)")
        browser.until("document.getElementById('content').textContent.includes('not a readable picture')", 60)
        browser.js("openRow(4)")
        browser.until("document.querySelector('#content img').naturalWidth === 20", 60)
    finally:
        made.close()


def test_a_tall_picture_keeps_its_shape_fits_the_card_and_lies_on_white(browser, tmp_path):
    for number in range(4):
        Image.new("RGBA", (200, 1200)).save(tmp_path / f"{number}.png")
    (tmp_path / "table.csv").write_text("photo,size\n" + "".join(f"{i}.png,{i * i}\n" for i in range(4)))
    made = open_page(str(tmp_path / "table.csv"), folder=tmp_path / "run", command=FAKE).start()
    try:
        browser.scheme("dark")
        start(browser, made)
        browser.until("document.querySelector('#content img').naturalHeight === 1200", 60)
        style = browser.js(
            "(s => [s.objectFit, s.backgroundColor])(getComputedStyle(document.querySelector('#content img')))"
        )
        assert style == ["contain", "rgb(255, 255, 255)"]
        bottoms = "[document.querySelector('#content img'), $('point')].map(e => e.getBoundingClientRect().bottom)"
        picture, card = browser.js(bottoms)
        assert picture < card
    finally:
        made.close()


def test_hostile_content_is_shown_as_text(browser, page):
    start(browser, page)
    add_class(browser, "<b>x</b>")
    browser.js("openRow(5)")
    browser.until("document.documentElement.dataset.row === '5'")
    assert "<script>" in browser.js("document.getElementById('content').textContent")
    assert browser.js("document.querySelectorAll('main script, main img, main b').length") == 0
    assert not browser.js("window.hacked")
    assert not browser.problems
