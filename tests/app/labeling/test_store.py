from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sobgnn.app.labeling.labels import KEYS, ConflictError
from sobgnn.app.labeling.progress import Fit
from sobgnn.app.labeling.store import MovedError, Store

OWN = [0, 1, -1, -1, -1, -1, -1, -1, -1, -1]


def opened(folder, classes=("red", "blue"), codes=OWN, fingerprint="abc"):
    store = Store(folder)
    try:
        store.begin({"fingerprint": fingerprint}, list(classes), np.array(codes))
    except BaseException:
        store.close()
        raise
    return store


@pytest.fixture
def store(tmp_path):
    made = opened(tmp_path / "run")
    yield made
    made.close()


def labels_of(store):
    return {row: store.classes[label.code] for row, label in store.labeled()}


def state_of(store):
    return store.saved, store.classes, store.keys, store.labeled(), store.skipped, store.merges, store.withdrawn


def test_labels_of_the_data_are_there_are_not_stored_and_cannot_be_undone(store):
    assert labels_of(store) == {0: "red", 1: "blue"}
    assert {label.by for _, label in store.labeled()} == {"file"}
    assert store.undo() is None
    assert store._db.execute("select count(*) from change").fetchone() == (0,)


def test_undo_takes_back_one_change_after_another(store):
    store.label([2], 0)
    store.label([2, 3], 1)
    store.skip([4])
    store.undo()
    assert store.skipped == set()
    store.undo()
    assert labels_of(store) == {0: "red", 1: "blue", 2: "red"}
    store.undo()
    assert labels_of(store) == {0: "red", 1: "blue"}
    assert store.undo() is None
    store.label([5], 1)
    store.undo()
    assert 5 not in labels_of(store)


def test_a_label_replaces_one_that_is_there_and_undo_brings_it_back(store):
    store.label([0], 1)
    assert labels_of(store)[0] == "blue"
    store.undo()
    assert labels_of(store)[0] == "red"
    store.clear([0])
    assert 0 not in labels_of(store)
    store.undo()
    assert labels_of(store)[0] == "red"


def test_a_label_ends_that_a_row_is_skipped_and_a_labeled_row_is_not_skipped(store):
    store.skip([2, 0])
    assert store.skipped == {2}
    store.label([2], 0)
    assert store.skipped == set()
    store.undo()
    assert store.skipped == {2}


def test_a_rename_keeps_labels_and_numbers_are_never_reused(store):
    store.label([2], 0)
    store.rename_class(0, "  scarlet\n red ")
    assert labels_of(store)[2] == "scarlet red"
    green = store.add_class("green")
    store.undo()
    assert store.add_class("gray") == green + 1
    assert list(store.classes.values()) == ["scarlet red", "blue", "gray"]


def test_a_label_that_is_given_again_is_confirmed(store):
    for code, confirmed in ((0, False), (0, True), (1, False)):
        store.label([2], code)
        assert store.label_of(2).confirmed == confirmed


@pytest.mark.parametrize("fingerprint", ["other", "abcd"])
def test_a_folder_of_other_data_is_refused(tmp_path, fingerprint):
    opened(tmp_path).close()
    with pytest.raises(ValueError, match="labels of other data"):
        opened(tmp_path, fingerprint=fingerprint)
    opened(tmp_path).close()  # the refusal let go of the lock


def test_what_makes_no_sense_is_refused_and_not_written(store):
    for wrong in ([], [10], [-1], [True], ["1"], "12", [1.0], None):
        with pytest.raises(ValueError, match=r"[Rr]ow"):
            store.label(wrong, 0)
    for wrong in (2, -1, "0", None, True):
        with pytest.raises(ValueError, match="no class"):
            store.label([1], wrong)
    for wrong in ("", " \n", "x" * 201, "red", 5):
        with pytest.raises(ValueError, match="class"):
            store.add_class(wrong)
    with pytest.raises(ValueError, match="already"):
        store.rename_class(0, "blue")
    assert store.saved == 0
    store.rename_class(0, "red")  # to itself is no clash


@pytest.mark.parametrize("name", ["nan", "-1", " -1 ", "None", "null", "NULL", "N/A", "Unlabeled", "n.a.", "TBD"])
def test_a_class_cannot_be_called_what_means_no_label(store, name):
    with pytest.raises(ValueError, match="means no label"):
        store.add_class(name)
    with pytest.raises(ValueError, match="means no label"):
        store.rename_class(0, name)
    assert store.classes == {0: "red", 1: "blue"}


@pytest.mark.parametrize("name", ["نمی‌خواهم", "\U0001f469‍\U0001f527"])
def test_joiners_stay_in_names_and_make_no_second_class_that_looks_the_same(store, name):
    code = store.add_class(f" \u200d{name}\u200c ")
    assert store.classes[code] == name
    with pytest.raises(ValueError, match="is already a class"):
        store.add_class(name.replace("\u200d", "").replace("\u200c", ""))
    for hidden in ("re\u200dd", "na\u200cn", "\u200d \u200c"):
        with pytest.raises(ValueError, match="class"):
            store.add_class(hidden)
    other = store.add_class("a\u202eb\x07c")  # a direction override and a bell
    assert store.classes[other] == "a b c"


def test_undo_takes_back_the_last_change_that_no_other_open_tab_made(store):
    store.label([2], 0, tab="one")
    store.label([3], 0, tab="two")
    store.label([4], 0)
    assert store.undo({"one", "two"}).rows == [4]
    assert store.undo({"one", "two"}) is None
    assert store.undo({"two"}, "one").rows == [2]
    assert set(labels_of(store)) == {0, 1, 3}
    assert store.undo().rows == [3]  # its tab was closed


def test_what_a_label_was_before_counts_without_a_change_of_another_tab_that_was_undone(store):
    store.label([2], 0, audit=True, guess=1, tab="one")
    store.label([2], 0, tab="two")
    assert (store.label_of(2).audit, store.label_of(2).guess, store.label_of(2).confirmed) == (True, 1, True)
    store.undo({"two"}, "one")
    assert (store.label_of(2).audit, store.label_of(2).guess, store.label_of(2).confirmed) == (False, -1, False)


def test_a_change_that_another_tab_builds_on_is_not_undone(store):
    green = store.add_class("green", "one")
    store.label([2], green, tab="two")
    with pytest.raises(ConflictError, match="a later change in another window needs it"):
        store.undo({"two"}, "one")
    assert labels_of(store)[2] == "green"
    store.undo({"one"}, "two")
    store.rename_class(green, "lime", "two")
    store.undo({"two"}, "one")
    assert list(store.classes.values()) == ["red", "blue"]
    store.undo()
    store.rename_class(0, "crimson", "one")
    store.add_class("red", "two")
    with pytest.raises(ConflictError, match="a later change in another window needs it"):
        store.undo({"two"}, "one")


def test_a_merge_gives_labels_and_guesses_to_the_other_class_and_can_be_undone(tmp_path):
    store = opened(tmp_path)
    store.label([2], 1, audit=True, guess=0)
    store.merge_class(0, 1)
    assert labels_of(store) == {0: "blue", 1: "blue", 2: "blue"}
    assert store.label_of(2).guess == 1
    with pytest.raises(ValueError, match="no class 0"):
        store.label([3], 0)
    assert store.add_class("red") == 2  # the name is free, the number is not
    before = state_of(store)
    store.close()
    store = opened(tmp_path)
    assert state_of(store) == before
    store.undo()
    store.undo()
    assert labels_of(store) == {0: "red", 1: "blue", 2: "blue"}
    for wrong in (1, 7, None):
        with pytest.raises(ValueError, match="class"):
            store.merge_class(1, wrong)
    store.close()


def test_a_class_keeps_its_key_while_others_come_and_go_and_after_a_restart(tmp_path):
    store = opened(tmp_path, [f"class {code}" for code in range(12)], [-1] * 10)
    assert list(store.keys.values()) == list("123456789abc")
    store.merge_class(5, 0)
    kept = {code: "123456789abc"[code] for code in range(12) if code != 5}
    assert store.keys == kept
    store.add_class("new")
    assert store.keys == {**kept, 12: "6"}  # the first that is free
    store.rename_class(3, "9")  # a digit has that key; the class that had it gets another
    assert (store.keys[3], store.keys[8]) == ("9", "4")
    before = dict(store.keys)
    store.close()
    with closing(opened(tmp_path, [f"class {code}" for code in range(12)], [-1] * 10)) as again:
        assert again.keys == before
        for number in range(len(KEYS)):
            again.add_class(f"more {number}")
        assert again.keys[max(again.keys)] == ""


def fit_of(store, labels=3):
    return Fit(labels, 0.5, (0.2, 0.8), np.zeros(4, np.int32), store.saved, labels)


def test_fits_whose_labels_were_undone_do_not_count_but_those_below_changes_that_stay_do(store):
    store.label([2], 0, tab="one")
    store.add_fit(fit_of(store))
    assert [fit.labels for fit in store.fits()] == [3]
    store.label([3], 1, tab="two")
    store.undo({"two"}, "one")
    assert [fit.labels for fit in store.fits()] == [3]  # another label stays that was given since
    store.label([4], 1, tab="one")
    store.add_fit(fit_of(store, labels=4))
    store.undo({"two"}, "one")
    store.label([5], 1)
    assert [fit.labels for fit in store.fits()] == [3]


def test_of_fits_with_one_number_of_labels_the_last_counts_and_it_comes_back_after_a_restart(tmp_path):
    with closing(opened(tmp_path)) as store:
        for code, accuracy in ((0, 0.4), (1, None)):
            store.label([2], code)
            store.add_fit(Fit(3, accuracy, (0.2, 0.8), np.arange(4), store.saved, 3))
    with closing(opened(tmp_path)) as store:
        (found,) = store.fits()
        assert (found.accuracy, found.interval, found.predicted.tolist()) == (None, (0.2, 0.8), [0, 1, 2, 3])


def test_the_accuracy_that_was_estimated_stays_after_a_restart_until_labels_change(tmp_path):
    with closing(opened(tmp_path)) as store:
        store.label([2], 0)
        store.add_fit(Fit(3, 0.4, (0.2, 0.8), np.arange(4), store.saved, 3))
    with closing(opened(tmp_path)) as store:
        for expected in (0.4, 0.7):
            store.add_fit(Fit(3, 0.7, (0.2, 0.8), np.arange(4), store.saved, 3))
            assert [fit.accuracy for fit in store.fits()] == [expected]
            store.label([2], 1)


def test_a_fit_whose_labels_were_undone_while_it_ran_is_not_recorded(store):
    store.label([2], 0)
    late = fit_of(store)
    store.undo()
    store.label([3], 0)
    store.add_fit(late)
    assert store.fits() == []


def test_the_map_comes_back_after_a_restart_unless_it_is_damaged(tmp_path):
    place = np.arange(20, dtype=np.float32).reshape(10, 2)
    with closing(opened(tmp_path)) as store:
        assert store.last_map() is None
        store.add_map(0 * place, False)
        store.add_map(place, True)
    with closing(opened(tmp_path)) as store:
        kept, learned = store.last_map()
        assert (kept == place).all()
        assert learned
        store._db.execute("update map set place = x'00'")
        assert store.last_map() is None


def test_labels_of_one_change_count_as_one_and_those_of_the_data_each(store):
    store.label([2, 3, 4], 0)
    store.label([5], 0)
    assert (store.labels, store.chosen()) == (6, 4)


STEPS = ["label", "skip", "clear", "class", "rename", "merge", "undo"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.sampled_from(["one", "two"])), max_size=25))
def test_what_is_in_memory_is_what_the_file_says(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("run")
    store = opened(folder)
    for what, number, tab in steps:
        code = list(store.classes)[number % len(store.classes)]
        try:
            if what == "label":
                store.label([number, (number * 3) % 10], code, tab=tab)
            elif what in ("skip", "clear"):
                getattr(store, what)([number], tab)
            elif what == "class":
                store.add_class(f"class {store.saved}", tab)
            elif what == "rename":
                store.rename_class(code, f"name {store.saved}", tab)
            elif what == "merge" and len(store.classes) > 1:
                store.merge_class(code, next(other for other in store.classes if other != code), tab)
            elif what == "undo":
                store.undo({"one", "two"} - {tab}, tab)
        except ConflictError:
            pass
    before = state_of(store)
    store.close()
    with closing(opened(folder)) as again:
        assert state_of(again) == before


def test_a_store_that_was_moved_saves_nothing(store):
    store.folder.rename(store.folder.with_name("elsewhere"))
    with pytest.raises(MovedError, match=r"labels\.db was moved or deleted while the page was open"):
        store.label([2], 0)
    assert 2 not in labels_of(store)
    store.folder.with_name("elsewhere").rename(store.folder)
    store.label([2], 0)


def test_a_disk_that_refuses_changes_nothing(store):
    store._db.execute(f"pragma max_page_count = {store._db.execute('pragma page_count').fetchone()[0]}")
    store.label([2], 0)

    def fill():
        for number in range(10_000):
            store.label([3], number % 2)

    with pytest.raises(OSError, match="full"):
        fill()
    before = state_of(store)
    store._read()
    store._replay()
    assert state_of(store) == before


@pytest.mark.parametrize("part", ["labels.db", "labels.db-wal"])
def test_a_store_cut_at_any_byte_of_its_last_pages_opens_or_says_so_in_one_line(tmp_path, part):
    store = opened(tmp_path / "run")
    store.label([2], 0)
    if part == "labels.db":
        store.close()
    else:
        shutil.copytree(tmp_path / "run", tmp_path / "killed")  # as a kill leaves it
        store.close()
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "killed").rename(tmp_path / "run")
    whole = (tmp_path / "run" / part).read_bytes()
    others = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    outcomes = set()
    for end in [*range(0, len(whole), 509), *range(max(0, len(whole) - 60), len(whole) + 1)]:
        for name, content in others.items():
            (tmp_path / "run" / name).write_bytes(content)
        (tmp_path / "run" / part).write_bytes(whole[:end])
        try:
            with closing(opened(tmp_path / "run")) as again:
                assert set(labels_of(again)) <= {0, 1, 2}
                outcomes.add(2 in labels_of(again))
        except ValueError as error:
            outcomes.add("damaged" if "damaged" in str(error) and "\n" not in str(error) else str(error))
    assert True in outcomes  # whole
    assert 1 < len(outcomes) <= len(outcomes & {True, False, "damaged"})


@pytest.mark.parametrize("content", [b"", b"no store at all, but text", b"SQLite format 3\0" + bytes(600)])
def test_a_store_that_is_lost_or_no_store_is_one_line_and_is_left_as_it_is(tmp_path, content):
    (tmp_path / "labels.db").write_bytes(content)
    (tmp_path / "labels.csv").write_text("id,label,when,by\n")
    with pytest.raises(ValueError, match=r"labels\.db is (empty|damaged)") as raised:
        opened(tmp_path)
    assert "\n" not in str(raised.value)
    assert (tmp_path / "labels.db").read_bytes() == content


FORGED = {
    "a trigger": "create trigger t after insert on change begin delete from change; end",
    "a view instead of a table": "drop table map; create view map as select 1 as learned, x'' as place",
    "another table": "create table more (x)",
    "another column": "alter table fit add column more",
    "a gap in the changes": "update change set n = 9223372036854775807 where n = 1",
    "a label of no class": "update change set code = 2000000000 where n = 1",
    "a label of a class too large": "update change set code = 1099511627776 where n = 1",
    "a label of a class below 0": "update change set code = -7 where n = 1",
    "a label of a class that is a text": "update change set code = 'x' where n = 1",
    "rows that are no list": "update change set rows = '7' where n = 1",
    "rows that are no JSON": "update change set rows = '[7' where n = 1",
    "a label of a row below 0": "update change set rows = '[-5]' where n = 1",
    "a label of a row that is not there": "update change set rows = '[1000000]' where n = 1",
    "a label of a row that is no number": "update change set rows = '[true]' where n = 1",
    "a time that is no text": "update change set at = x'00' where n = 1",
    "an undo of nothing": "update change set what = 'undo', target = 7 where n = 2",
    "a fit of half a number": "insert into fit values (1, 1, 1, 0.5, 0.1, 0.9, x'800495')",
    "a fit whose accuracy is a text": "insert into fit values (1, 1, 1, 'x', 0.1, 0.9, x'00000000')",
    "a class merged into itself": "update change set what = 'merge', code = 0, target = 0 where n = 2",
    "a class with a number too large": "update change set what = 'class', code = 2000000000, name = 'x' where n = 2",
    "a class that is no text": "update change set what = 'rename', code = 0, name = x'00' where n = 2",
    "no fingerprint": "delete from meta where name = 'fingerprint'",
    "classes that are no list": "update meta set value = '3' where name = 'classes'",
    "a class of DATA that is no text": "update meta set value = '[3]' where name = 'classes'",
    "a value that is no JSON": "update meta set value = '{' where name = 'began'",
    "a value too deep to read": "update meta set value = replace(hex(zeroblob(200000)), '0', '[') where name = 'began'",
}


@pytest.mark.parametrize("statement", FORGED.values(), ids=FORGED)
def test_a_forged_store_is_refused_in_one_line(tmp_path, statement):
    made = opened(tmp_path)
    made.label([2], 0)
    made.skip([3])
    made.close()
    with closing(sqlite3.connect(tmp_path / "labels.db")) as db:
        db.executescript(statement)
        db.commit()
    with pytest.raises(
        ValueError, match=r"^.*labels\.db is damaged: .*\. Put a copy back, or name another folder"
    ) as raised:
        opened(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["labels.db", "labels.db-wal", "labels.db-shm", "notes"])
def test_a_link_out_of_the_folder_is_not_opened(tmp_path, name):
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(outside)
    with pytest.raises(ValueError, match="is a link to something outside its folder, which is not opened"):
        opened(tmp_path / "run")
    assert outside.read_bytes() == b""


def test_a_journal_of_others_which_may_name_files_to_delete_is_refused(tmp_path):
    opened(tmp_path).close()
    (tmp_path / "labels.db-journal").write_bytes(b"\xd9\xd5\x05\xf9 \xa1c\xd7")
    with pytest.raises(ValueError, match=r"labels\.db-journal is no file of a labeling"):
        opened(tmp_path)
