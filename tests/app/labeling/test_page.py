from __future__ import annotations

import json
import math

import pytest
from PIL import Image

from sobgnn.app.labeling.launch import open_page
from tests.app.labeling.browser import Browser, find_chromium
from tests.app.labeling.conftest import Client, wait_until
from tests.app.labeling.fake_model import Fake
from tests.app.labeling.test_rows import picture_table


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


def start(browser, page, *classes):
    browser.open(page.url)
    browser.until("document.documentElement.dataset.row !== undefined && state")
    # What the log says does not fade while a slow machine looks at it.
    browser.js("{ const real = setTimeout; window.setTimeout = (f, ms) => ms === LOG_MS ? 0 : real(f, ms); }")
    for name in classes:
        add_class(browser, name)


def add_class(browser, name):
    """By keys alone: N, the name, Enter."""
    browser.key("n")
    browser.until("document.activeElement.id === 'new-name'")
    browser.type(name)
    browser.key("Enter")
    browser.until(f"[...document.querySelectorAll('#classes .label')].some(e => e.textContent === {json.dumps(name)})")
    browser.until("document.activeElement.id !== 'new-name' && !waiting")


def teach(browser, page):
    """Two classes with two labels each, and a model that guesses; the row that is shown has a guess."""
    start(browser, page, "one", "two")
    Client(page.url).post("label", {"rows": [0, 1], "class": 0})
    Client(page.url).post("label", {"rows": [2, 3], "class": 1})
    browser.until("state.model.guessing && state.model.labels === 4")
    browser.until("upcoming.length && upcoming[0].guesses.length")
    browser.key("s")  # what was shown before the model came has no guess
    browser.until("current && current.guesses.length && !waiting")


def codes(page):
    return {row: label.code for row, label in page.labeling.store.labeled()}


def by_model(page):
    return [label.by for _, label in page.labeling.store.labeled()].count("model")


def text(browser, name):
    return browser.js(f"$('{name}').textContent")


def says(browser, name, expected):
    browser.until(f"$('{name}').textContent.includes({json.dumps(expected)})")


def test_from_no_labels_to_sixty_by_keys_alone(browser, page, tickets):
    before = tickets.read_bytes()
    start(browser, page)
    assert text(browser, "hint").startswith("Press N and type the first class")
    assert text(browser, "saved") == ""
    for name in ("billing", "access", "shipping"):
        add_class(browser, name)
    given = {}
    for number in range(60):
        row = int(browser.js("document.documentElement.dataset.row"))
        assert row not in given
        given[row] = row % 3
        browser.key(str(row % 3 + 1))
        browser.until(f"document.documentElement.dataset.row !== '{row}'")
        assert browser.js("($('curve').children.length > 0) === Boolean(progress && progress.curve.length >= 3)")
        if number == 20:  # the model may be slower than the keys
            browser.until("state.model.guessing && !waiting && upcoming.some(point => point.guesses.length)")
    saved(browser, 60)
    assert codes(page) == given
    audits = [label for _, label in page.labeling.store.labeled() if label.audit]
    assert audits
    assert all(label.by == "person" for label in audits)
    assert text(browser, "counts") == "60 of 120 rows labeled"
    assert text(browser, "saved") == "Saved"
    assert tickets.read_bytes() == before
    assert not browser.problems
    assert not browser.js("window.hacked")


def test_undo_skip_accept_rename_and_reload(browser, page):
    start(browser, page, "red", "blue")
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
    says(browser, "counts", "1 skipped")
    assert browser.js("document.documentElement.dataset.row") != skipped
    says(browser, "model", "knows 2 of 2")
    browser.until("upcoming.length && upcoming[0].guesses.length")
    browser.key("1")  # what was shown before the model came has no guess
    says(browser, "hint", "Guess: ")
    browser.key("Enter")
    saved(browser, 4)
    assert by_model(page) == 1
    browser.key("r")
    browser.until("$('rename-dialog').open")
    browser.js("$('rename-name').focus()")
    browser.type("scarlet")
    browser.key("Enter")
    browser.until("document.querySelector('#classes .label').textContent === 'scarlet'")
    assert page.labeling.store.classes[0] == "scarlet"
    browser.until("!$('rename-dialog').open")
    browser.open(page.url)  # a reload
    says(browser, "counts", "4 of 120")
    assert browser.js("document.querySelector('#classes .label').textContent") == "scarlet"
    assert not browser.problems


def test_a_rename_to_the_name_of_another_class_merges_them_after_a_question(browser, page):
    start(browser, page, "ship ping", "shipping")
    row = int(browser.js("document.documentElement.dataset.row"))
    browser.key("1")
    saved(browser, 1)
    browser.key("r")
    browser.until("$('rename-dialog').open")
    browser.js("$('rename-name').focus()")
    browser.type("nan")
    browser.key("Enter")
    says(browser, "rename-message", "means no label")
    assert browser.js("$('rename-dialog').open && $('rename-name').value") == "nan"
    browser.js("$('rename-name').value = ''")
    browser.type("shipping")
    browser.key("Enter")
    says(browser, "rename-message", "Merge “ship ping” (1) into “shipping” (0)?")
    assert text(browser, "rename-do") == "Merge"
    assert len(page.labeling.store.classes) == 2
    browser.key("Enter")
    browser.until("!$('rename-dialog').open && state.classes.length === 1")
    assert codes(page)[row] == 1
    browser.key("u")
    browser.until("state.classes.length === 2")
    assert codes(page)[row] == 0
    assert [problem for problem in browser.problems if "400" not in problem] == []


def test_a_lasso_labels_all_that_it_encloses_and_says_what(browser, page):
    start(browser, page, "all of them")
    browser.until("map.x.length && marks")
    box = json.loads(browser.js("JSON.stringify(map.canvas.getBoundingClientRect())"))
    left, right, top, bottom = (
        box["x"] + 3,
        box["x"] + box["width"] - 3,
        box["y"] + 3,
        box["y"] + box["height"] - 3,
    )
    browser.drag([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)])
    browser.until("document.documentElement.dataset.selected === '120'")
    assert text(browser, "selection-text") == "120 rows without a label are selected. Choose the class."
    browser.key("Escape")
    browser.until("document.documentElement.dataset.selected === '0'")
    middle = box["x"] + box["width"] / 2 + 3  # the right half: rows with a positive cosine
    browser.drag([(middle, bottom), (right, bottom), (right, top), (middle, top), (middle, bottom)])
    browser.until("Number(document.documentElement.dataset.selected) > 40")
    browser.key("1")
    count = int(browser.until("Number(document.documentElement.dataset.labels)"))
    assert count == len(codes(page))
    assert {row for row in range(120) if math.cos(2 * math.pi * row / 120) > 0.05} <= set(codes(page))
    assert all(math.cos(2 * math.pi * row / 120) > -0.05 for row in codes(page))
    says(browser, "log", f"Labeled {count} rows “all of them”. Undo takes it back.")
    browser.key("u")
    saved(browser, 0)
    says(browser, "log", f"Undone: labels of {count} rows.")
    assert not browser.problems


def test_rows_of_a_lasso_that_was_undone_here_or_in_another_tab_are_offered_again(browser, page):
    start(browser, page, "one")
    browser.until("upcoming.length >= 3")
    for undo_here in (True, False):
        browser.until("marks && marks.given.every(code => code < 0)")
        browser.js("select([...Array(120).keys()])")
        browser.key("1")
        saved(browser, 120)
        says(browser, "point-title", "Every row is done")
        assert text(browser, "hint").startswith("Press 1 for one") or "Finish" in text(browser, "hint")
        if undo_here:
            browser.key("u")
        else:
            Client(page.url).post("undo")
        saved(browser, 0)
        # Which ones depends on whether the model has placed the points meanwhile.
        browser.until("current && new Set([current, ...upcoming].map(p => p.row)).size >= 4")
    assert not browser.problems


def test_an_answer_that_comes_after_a_newer_one_changes_nothing(browser, page):
    start(browser, page, "one")
    browser.until("marks")
    browser.js(
        "window.hold = true; window.late = []; window.read = 0; window.real = fetch; fetch = async (path, ...rest) => {"
        "const answer = await window.real(path, ...rest);"
        "if (path !== 'api/marks' || !hold) return answer;"
        "const content = await answer.arrayBuffer();"
        "await new Promise(done => late.push(done));"
        "return { ok: true, arrayBuffer: async () => { read += 1; return content; } }; }; 0"
    )
    browser.key("1")
    saved(browser, 1)
    browser.until("late.length")
    browser.js("hold = false")
    browser.key("u")
    saved(browser, 0)
    browser.until("drawn.marks === `${state.saved} ${state.model.version}` && marks.given.every(code => code < 0)")
    browser.js("late.forEach(done => done())")
    browser.until("read === late.length")
    assert browser.js("marks.given.every(code => code < 0)")
    assert not browser.problems


def test_a_key_after_undo_labels_the_row_that_undo_brings_back_or_none(browser, page):
    start(browser, page, "one", "two")
    first = int(browser.js("document.documentElement.dataset.row"))
    browser.key("1")
    saved(browser, 1)
    # The answer comes late: it waits until the test lets it pass.
    browser.js(
        "window.pass = null; window.real = fetch; fetch = async (path, ...rest) => {"
        "const answer = await window.real(path, ...rest);"
        "if (path === 'api/undo') await new Promise(done => { window.pass = done; });"
        "return answer; }; 0"
    )
    browser.key("u")
    browser.key("2")
    browser.key("s")
    browser.until("window.pass !== null")
    browser.js("window.pass()")
    says(browser, "counts", "1 skipped")
    saved(browser, 1)
    assert codes(page) == {first: 1}
    assert first not in page.labeling.store.skipped
    page.labeling.store._db.execute("pragma query_only = on")  # a disk that refuses: the undo fails
    browser.js("window.pass = null; act(undo); act(() => give(0)); 0")
    browser.until("window.pass !== null")
    browser.js("window.pass()")
    says(browser, "alert", "Not saved")
    browser.until("opening === 0 && kept.length === 0 && waiting === 0")
    page.labeling.store._db.execute("pragma query_only = off")
    assert codes(page) == {first: 1}


def test_what_went_wrong_stays_until_it_is_mended(browser, page):
    start(browser, page, "the model")
    browser.key("n")
    browser.type("nan")
    browser.key("Enter")
    says(browser, "alert", "means no label")
    browser.js("show()")
    assert "cannot be called 'nan'" in text(browser, "alert")
    assert browser.js("$('new-name').value") == "nan"
    assert text(browser, "saved") == ""
    browser.key("Escape")
    browser.key("1")
    saved(browser, 1)
    assert browser.js("$('alert').hidden")
    assert text(browser, "saved") == "Saved"


def test_an_answer_that_is_cut_off_is_said_and_keys_work_on(browser, page):
    start(browser, page, "one")
    browser.key("1")
    saved(browser, 1)
    browser.js(
        "window.real = fetch; fetch = async (path, ...rest) => {"
        "const answer = await window.real(path, ...rest);"
        "return path === 'api/undo' ? new Response((await answer.text()).slice(0, 30)) : answer; }; 0"
    )
    browser.key("u")
    says(browser, "alert", "cut off")
    assert browser.js("[opening, waiting, kept.length]") == [0, 0, 0]
    saved(browser, 0)  # the undo itself was done
    browser.key("1")
    saved(browser, 1)
    assert browser.js("$('alert').hidden")
    assert not browser.problems


def test_a_row_that_another_tab_labeled_keeps_its_label_and_the_page_says_so(browser, page):
    start(browser, page, "one", "two")
    row = int(browser.js("document.documentElement.dataset.row"))
    Client(page.url).post("label", {"rows": [row], "class": 1})
    browser.key("1")
    says(browser, "alert", "was labeled 'two' in another tab")
    assert codes(page)[row] == 1
    assert browser.js("document.documentElement.dataset.row") != str(row)
    browser.key("1")
    saved(browser, 2)
    assert [problem for problem in browser.problems if "409" not in problem] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_shows_all_of_the_page_and_names_every_control(browser, page, scheme):
    browser.scheme(scheme)
    browser.call("Emulation.setDeviceMetricsOverride", width=400, height=700, deviceScaleFactor=1, mobile=False)
    start(browser, page, "a class with a name that is far longer than the button it is written on")
    assert browser.js("document.documentElement.scrollWidth") <= 400
    ground = browser.js("getComputedStyle(document.documentElement).backgroundColor")
    assert (ground == "rgb(22, 24, 28)") == (scheme == "dark")
    unnamed = browser.js(
        "[...document.querySelectorAll('button, input, select, a, canvas')].filter(e => "
        "!(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length))).length"
    )
    assert unnamed == 0
    browser.until("map.x.length && marks")
    browser.js("map.canvas.scrollIntoView(); select([1, 2, 3])")
    for shown in ("selection", "classes"):
        browser.until(f"(b => b.top >= 0 && b.bottom <= 700)($('{shown}').getBoundingClientRect())")
    browser.js("map.canvas.scrollIntoView()")
    before = browser.js("scrollY")
    box = browser.js("(b => [b.x, b.y])(map.canvas.getBoundingClientRect())")
    browser.swipe((box[0] + 100, box[1] + 60), (box[0] + 100, box[1] + 180))
    browser.until(f"scrollY < {before}")  # a finger on the map scrolls the page
    assert not browser.problems


def test_the_classes_stay_where_they_are_whatever_the_row_holds(browser, tmp_path):
    path = tmp_path / "mixed.csv"
    path.write_text("n,note\n" + "".join(f"{i * i % 7},{'a long text ' * (900 if i % 2 else 1)}\n" for i in range(12)))
    made = open_page(str(path), folder=tmp_path / "run", trainer=Fake).start()
    try:
        start(browser, made, "one", "two")
        places = set()
        for row in (1, 2, 3):
            browser.js(f"openRow({row}).then(() => 0)")
            browser.until(f"current.row === {row} && !waiting")
            places.add(browser.js("$('classes').getBoundingClientRect().top"))
            overflow = browser.js("$('work').scrollHeight - $('work').clientHeight")
            assert (overflow > 1000) == (row % 2 == 1)  # a long row scrolls with its card, behind the classes
        assert len(places) == 1
        assert browser.js("document.documentElement.scrollHeight") <= 900
        browser.call("Emulation.setDeviceMetricsOverride", width=400, height=700, deviceScaleFactor=1, mobile=False)
        browser.js("openRow(1).then(() => 0)")  # in a narrow window it scrolls with the page
        browser.until("current.row === 1 && !waiting && document.documentElement.scrollHeight > 3000")
        inner = (
            "[...document.querySelectorAll('#work, #point, #content')].some(e => e.scrollHeight > e.clientHeight + 1)"
        )
        assert not browser.js(inner)
        browser.js("scrollTo(0, 1500)")
        browser.until("Math.abs($('answer').getBoundingClientRect().bottom - 700) < 2")
        browser.js("openRow(3).then(() => 0)")
        browser.until("current.row === 3 && Math.abs($('point').getBoundingClientRect().top) < 2")
    finally:
        made.close()


def test_search_opens_rows_and_keys_do_not_label_behind_it(browser, page):
    teach(browser, page)
    browser.key("/")
    browser.type("customer 77")
    browser.key("Enter")
    browser.until("!!document.activeElement.closest('#found')")
    for key in ("1", "s"):  # another row is shown than the one that has the focus
        browser.key(key)
        assert text(browser, "log") == "Press Enter to open that row first."
    browser.key("Enter")
    assert browser.js("document.activeElement.id") == "point"
    browser.key("Enter")  # at once: it waits for the row, and accepts its guess
    saved(browser, 5)
    assert codes(page)[77] == 1
    assert by_model(page) == 1
    browser.key("/")
    browser.js("$('words').value = ''")
    browser.type("customer")
    browser.key("Enter")
    says(browser, "matches", "119 rows found. The first 50 are listed.")
    below = "$('matches').getBoundingClientRect().top - $('words').getBoundingClientRect().bottom"
    assert 0 <= browser.js(below) < 40
    browser.key("Escape")
    assert browser.js("$('found').children.length") == 0
    assert browser.js("$('results').getClientRects().length") == 0
    assert not browser.problems


def test_keys_work_on_other_layouts_and_a_class_named_by_a_digit_has_that_key(browser, page):
    start(browser, page, "2", "x", "0", "y")
    keys = browser.js("[...document.querySelectorAll('#classes kbd')].map(e => e.textContent)")
    assert keys == ["2", "1", "0", "3"]
    browser.key("&", "Digit1")  # French
    saved(browser, 1)
    assert list(codes(page).values()) == [1]
    browser.key("\u0433", "KeyU")  # Russian
    saved(browser, 0)
    browser.key("\u044b", "KeyS")
    says(browser, "counts", "1 skipped")
    browser.key("a", "KeyQ")  # French again: a Latin letter counts as it is
    browser.key("/", "Digit7")
    browser.until("document.activeElement.id === 'words'")
    assert not browser.problems


def test_the_log_says_what_was_done_and_the_status_only_whether_it_is_saved(browser, page):
    Client(page.url).post("class", {"name": "zero", "tab": "gone"})
    start(browser, page)
    for name, message in (
        ("three", "Added “three”: press 2 to give it."),
        ("  zero ", "“zero” is already a class: press 1 to give it."),
    ):
        browser.key("n")
        browser.type(name)
        browser.key("Enter")
        says(browser, "log", message)
        browser.until("document.activeElement.id !== 'new-name' && !waiting")
        browser.js("show()")
        assert text(browser, "log") == message
    title = browser.js("current.title")
    browser.key("1")
    saved(browser, 1)
    undone = [f"label of {title}", "class three added", "class zero added, from a closed window"]
    for message in [*(f"Undone: {change}." for change in undone), "Nothing to undo."]:
        browser.key("u")
        says(browser, "log", message)
        assert text(browser, "saved") == "Saved"
    browser.key("s")
    browser.until("$('log').textContent === ''")
    assert not browser.problems


def test_enter_after_a_click_accepts_the_guess_and_a_button_keeps_the_focus_of_the_keyboard(browser, page):
    teach(browser, page)
    clicks = ("document.querySelector('#classes button')", "$('skip')", "$('undo')", "$('accept')")
    for number, button in enumerate(clicks):
        change = browser.js("state.saved")
        browser.click(button)
        browser.until(f"state.saved > {change} && !waiting && !opening")
        assert browser.js("document.activeElement.id") == "point", button
        assert by_model(page) == (number == 3)
    browser.until("current && current.guesses.length")
    browser.key("Enter")
    browser.until("!waiting && state.labels === 7")
    assert by_model(page) == 2
    browser.js("document.querySelectorAll('#classes button')[1].focus()")
    for labels, key in ((8, "Enter"), (9, " ")):
        browser.key(key)
        saved(browser, labels)
        assert browser.js("document.activeElement === document.querySelectorAll('#classes button')[1]")
    assert not browser.problems


def test_rows_are_opened_one_after_the_other_and_work_that_fails_holds_back_no_key(browser, page):
    start(browser, page, "one")
    browser.js("openRow(5); openRow(9); act(() => give(0)); 0")
    saved(browser, 1)
    assert codes(page) == {9: 0}
    browser.js("opened(Promise.reject(Error('wrong'))).catch(() => 0)")
    assert browser.js("[opening, kept.length]") == [0, 0]
    browser.key("1")
    saved(browser, 2)
    assert not browser.problems


def test_windows_are_offered_different_rows_and_a_reload_the_same(browser, page, client):
    page.labeling.model._due = lambda: None  # suggestions stay as they are
    start(browser, page)
    windows, (name, row) = page.labeling.windows, browser.js("[TAB, current.row]")
    browser.until("upcoming.length >= 3")
    browser.js("window.stale = true")
    browser.call("Page.reload")
    browser.until("!window.stale && document.documentElement.dataset.row !== undefined")
    assert browser.js("[TAB, current.row]") == [name, row]
    # A window that a page opens gets a copy of its storage too.
    browser.call("Runtime.evaluate", expression="window.copy = open(location.href)", userGesture=True)
    browser.until("copy.document.documentElement.dataset.row !== undefined")
    browser.until("copy.document.documentElement.dataset.row !== String(current.row)")
    wait_until(lambda: len(windows._open) == 2)
    add_class(browser, "one")
    browser.key("1")
    saved(browser, 1)
    says(browser, "windows", "open in another window too")
    browser.until("copy.document.getElementById('windows').textContent.includes('open in another window too')")
    browser.until("copy.document.getElementById('undo').disabled")
    browser.js("copy.undo().then(() => 0)")
    assert page.labeling.store.labels == 1
    browser.js("copy.close()")
    browser.until("$('windows').textContent === ''")
    browser.key("u")
    saved(browser, 0)
    assert not browser.problems


@pytest.mark.parametrize("why", ["audit", "suggested"])
def test_the_page_says_whether_it_showed_the_guess_and_does_not_circle_an_audit(browser, page, why):
    start(browser, page, "one")
    browser.until("map.x.length && marks")
    row = browser.js("current.row")
    page.labeling.picker.audits.add(row)
    browser.js(f"current.why = '{why}'; showRings()")
    assert browser.js("map.rings[0].rows.length") == (why != "audit")
    browser.key("1")
    saved(browser, 1)
    assert page.labeling.store.label_of(row).audit == (why == "audit")
    assert not browser.problems


def test_the_map_moves_when_it_is_laid_out_again_but_not_under_a_lasso(browser, page):
    client = Client(page.url)
    start(browser, page)
    browser.until("map.x.length")
    first = browser.js("[...map.x]")
    for code, rows in enumerate((range(25), range(25, 50))):
        client.post("class", {"name": f"class {code}"})
        client.post("label", {"rows": list(rows), "class": code})
    browser.until(f"Math.abs(map.x[0] - {first[-1]}) < 1e-6 && map.target[0] === map.x")  # all points have moved
    says(browser, "log", "The map was laid out again")
    client.post("label", {"rows": [60], "class": 1})
    browser.until("!$('lay-out').disabled")
    browser.js("map.start = [0, 0]")  # while a lasso is drawn, nothing moves
    browser.js("$('lay-out').click()")
    browser.until("state.model.map === 3")
    assert browser.js("drawn.map") == 2
    browser.js("map.start = null; show()")
    browser.until("drawn.map === 3")
    assert not browser.problems


def test_a_run_that_does_not_know_the_last_labels_is_said_to_be_older_and_its_report_is_linked(browser, page):
    start(browser, page, "one")
    assert browser.js("$('report').hidden")
    (page.folder / "report.html").write_text(
        "<!doctype html><title>it runs</title><script>document.title += '!'</script>"
    )
    page.labeling.model.finished = page.labeling.store.saved
    page.labeling.tell()
    says(browser, "finished", "Written to ")
    assert "does not know" not in text(browser, "finished")
    browser.key("1")
    saved(browser, 1)
    says(browser, "finished", "does not know the changes since")
    assert "`" not in browser.js("document.body.textContent")
    address = browser.js("$('report').hidden ? '' : document.querySelector('#report a').href")
    browser.open(address)
    browser.until("document.title === 'it runs!'")
    assert not browser.problems


def test_long_names_wrap_and_hostile_content_is_shown_as_text(browser, page):
    start(browser, page)
    Client(page.url).post("class", {"name": "x" * 200})
    add_class(browser, "<b>x</b>")
    assert browser.js(
        "(e => e.scrollWidth <= e.clientWidth && e.clientHeight > 100)($('classes').querySelector('.label'))"
    )
    assert browser.js("[...document.querySelectorAll('#content dd')].every(e => e.dir === 'auto')")
    browser.js("openRow(5).then(() => 0)")
    browser.until("document.documentElement.dataset.row === '5'")
    assert "<script>" in text(browser, "content")
    assert browser.js("document.querySelectorAll('main script, main img, main b').length") == 0
    spoken = text(browser, "spoken")
    assert spoken.startswith("<script>")
    assert len(spoken) <= 201
    assert not browser.js("window.hacked")
    assert not browser.problems


def test_a_picture_keeps_its_shape_lies_on_white_and_one_that_cannot_be_shown_is_explained(browser, tmp_path):
    table = picture_table(tmp_path)
    Image.new("RGBA", (200, 1200)).save(tmp_path / "5.png")
    made = open_page(str(table), folder=tmp_path / "run", trainer=Fake).start()
    try:
        browser.scheme("dark")
        start(browser, made)
        browser.js("openRow(1).then(() => 0)")
        says(browser, "content", "not a readable picture")
        browser.js("openRow(4).then(() => 0)")
        browser.until("document.querySelector('#content img.tiny').naturalWidth === 20")
        browser.js("openRow(6).then(() => 0)")
        browser.until("document.querySelector('#content img').naturalHeight === 1200")
        style = "(s => [s.objectFit, s.backgroundColor])(getComputedStyle(document.querySelector('#content img')))"
        assert browser.js(style) == ["contain", "rgb(255, 255, 255)"]
        bottoms = "[document.querySelector('#content img'), $('point')].map(e => e.getBoundingClientRect().bottom)"
        picture, card = browser.js(bottoms)
        assert picture <= card
    finally:
        made.close()


def test_the_file_that_the_browser_is_given_leads_to_the_page(browser, page, monkeypatch):
    given = []
    monkeypatch.setattr("webbrowser.open", given.append)
    with page.in_browser():
        browser.open(given[0])
        browser.until("location.protocol === 'http:' && document.documentElement.dataset.row !== undefined")
    assert browser.js("location.href") == page.url
    assert not browser.problems


def test_a_screen_without_a_keyboard_is_told_of_no_keys(browser, page):
    start(browser, page, "one")
    keys = "[...document.querySelectorAll('kbd')].filter(e => e.getClientRects().length).length"
    assert browser.js(keys) > 5
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    browser.until("matchMedia('(pointer: coarse)').matches")
    browser.js("showHint()")
    assert browser.js(keys) == 0
    assert text(browser, "hint") == "Tap one, or add another class."
    shown = browser.js("document.body.innerText")
    assert "Draw around points" in shown
    for word in ("Press ", "Shift", "Ctrl"):
        assert word not in shown
    assert not browser.problems


def test_an_audit_of_few_rows_shows_no_share(browser, page):
    start(browser, page)
    browser.until("progress")
    audit = "progress.audit = {{ drawn: 9, judged: {0}, right: 1, interval: [0.1, 0.9] }}; showProgress()"
    for judged, said in ((0, "guesses."), (4, "guesses; 4 of the first 5 so far."), (5, "right for 1 of 5 rows")):
        browser.js(audit.format(judged))
        assert said in text(browser, "audit")
        assert ("%" in text(browser, "audit")) == (judged == 5)
