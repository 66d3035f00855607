from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sobgnn.labeling.session import ConflictError, Session
from sobgnn.labeling.state import replay


@pytest.fixture
def session(tmp_path):
    made = Session(tmp_path / "run", 10, "abc", ["red", "blue"], [0, 1, -1, -1, -1, -1, -1, -1, -1, -1])
    yield made
    made.close()


def labels_of(session):
    _, classes, labels, _ = session.snapshot()
    return {row: classes[label.code] for row, label in labels.items()}


def test_labels_of_the_file_are_there_and_cannot_be_undone(session):
    assert labels_of(session) == {0: "red", 1: "blue"}
    assert all(label.by == "file" for label in session.state.labels.values())
    assert session.undo() is None


def test_undo_takes_back_one_change_after_another(session):
    session.label([2], 0)
    session.label([2, 3], 1)
    session.skip([4])
    session.undo()
    assert session.state.skipped == set()
    session.undo()
    assert labels_of(session) == {0: "red", 1: "blue", 2: "red"}
    session.undo()
    assert labels_of(session) == {0: "red", 1: "blue"}
    assert session.undo() is None
    session.label([5], 1)
    session.undo()
    assert 5 not in labels_of(session)


def test_a_label_replaces_one_that_is_there_and_undo_brings_it_back(session):
    session.label([0], 1)
    assert labels_of(session)[0] == "blue"
    session.undo()
    assert labels_of(session)[0] == "red"
    session.clear([0])
    assert 0 not in labels_of(session)
    session.undo()
    assert labels_of(session)[0] == "red"


def test_a_rename_keeps_labels_and_numbers_are_never_reused(session):
    session.label([2], 0)
    session.rename_class(0, "  scarlet\n red ")
    assert labels_of(session)[2] == "scarlet red"
    green = session.add_class("green")
    session.undo()
    assert session.add_class("grey") == green + 1
    assert list(session.state.classes.values()) == ["scarlet red", "blue", "grey"]


def test_a_session_comes_back_as_it_was(tmp_path):
    folder = tmp_path / "run"
    first = Session(folder, 10, "abc")
    code = first.add_class("x")
    first.label([1, 2, 3], code, how="lasso")
    first.label([4], code, by="model", audit=True, guesses={4: code})
    first.skip([5])
    first.undo()
    before = first.state
    first.close()
    again = Session(folder, 10, "abc")
    assert again.state == before
    assert again.state.labels[4].guess == code
    assert again.state.labels[4].by == "model"
    again.close()


@pytest.mark.parametrize(("rows", "fingerprint"), [(11, "abc"), (10, "other")])
def test_a_folder_of_other_data_is_refused(tmp_path, rows, fingerprint):
    Session(tmp_path, 10, "abc").close()
    with pytest.raises(ValueError, match="labels of other data"):
        Session(tmp_path, rows, fingerprint)
    Session(tmp_path, 10, "abc").close()  # the refusal let go of the lock


def test_a_second_session_on_one_folder_is_refused(tmp_path):
    first = Session(tmp_path, 10, "abc")
    with pytest.raises(ValueError, match="another window"):
        Session(tmp_path, 10, "abc")
    first.close()


def test_what_makes_no_sense_is_refused_and_not_written(session):
    saved = session.saved
    for wrong in ([], [10], [-1], [True], ["1"], "12", [1.0], None):
        with pytest.raises(ValueError, match=r"[Rr]ow"):
            session.label(wrong, 0)
    for wrong in (2, -1, "0", None, True):
        with pytest.raises(ValueError, match="no class"):
            session.label([1], wrong)
    for wrong in ("", " \n", "x" * 201, "red", 5):
        with pytest.raises(ValueError, match="class"):
            session.add_class(wrong)
    with pytest.raises(ValueError, match="already"):
        session.rename_class(0, "blue")
    assert session.saved == saved
    session.rename_class(0, "red")  # to itself is no clash


@pytest.mark.parametrize(
    "line",
    [
        '{"n":4}',
        '{"n":4,"what":"dance","by":"person","when":""}',
        '{"n":4,"what":"start","rows":10,"by":"person","when":""}',
        '{"n":4,"what":"label","rows":[2],"class":7,"by":"person","when":""}',
        '{"n":4,"what":"label","rows":[10],"class":0,"by":"person","when":""}',
        '{"n":4,"what":"label","rows":"2","class":0,"by":"person","when":""}',
        '{"n":4,"what":"label","rows":[2],"class":0,"by":"person","when":"","guesses":[1]}',
        '{"n":4,"what":"label","rows":[2],"class":0,"by":{},"when":""}',
        '{"n":4,"what":"skip","by":"person","when":""}',
        '{"n":4,"what":"skip","rows":[2],"by":"person","when":"","tab":[]}',
        '{"n":4,"what":"undo","of":9,"by":"person","when":""}',
        '{"n":4,"what":"undo","of":"x","by":"person","when":""}',
        '{"n":4,"what":"class","class":[],"name":"x","by":"person","when":""}',
        '{"n":4,"what":"rename","class":5,"name":"x","by":"person","when":""}',
        '{"n":4,"what":"merge","class":0,"into":5,"by":"person","when":""}',
        '{"n":4,"what":"merge","class":0,"into":0,"by":"person","when":""}',
    ],
)
def test_a_line_that_is_no_event_is_named_by_its_number(tmp_path, line):
    Session(tmp_path, 10, "abc", ["red"], [0] + 9 * [-1]).close()
    path = tmp_path / "labels.journal"
    before = path.read_text() + line + "\n"
    path.write_text(before)
    with pytest.raises(ValueError, match=r"damaged at line 4: .* is not a labeling event"):
        Session(tmp_path, 10, "abc")
    assert path.read_text() == before


def test_a_whole_last_line_that_is_damaged_is_put_aside_and_said(tmp_path):
    first = Session(tmp_path, 10, "abc")
    assert first.notice == ""
    first.close()
    with open(tmp_path / "labels.journal", "ab") as file:
        file.write(b'{"n":2,"what":"la\0\0\n')
    again = Session(tmp_path, 10, "abc")
    assert again.notice.startswith("The last line of labels.journal was damaged")
    again.close()
    assert (tmp_path / "labels.journal.damaged").read_bytes() == b'{"n":2,"what":"la\0\0\n'


def test_a_label_that_is_given_again_is_confirmed(session):
    session.label([2], 0)
    assert not session.state.labels[2].confirmed
    session.label([2], 0)
    assert session.state.labels[2].confirmed
    session.label([2], 1)
    assert not session.state.labels[2].confirmed


def test_a_start_that_was_cut_off_is_completed(tmp_path):
    folder = tmp_path / "run"
    Session(folder, 4, "abc", ["a", "b"], [0, 1, 1, -1]).close()
    path = folder / "labels.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines) + 1):
        path.write_bytes(b"".join(lines[:kept]))
        session = Session(folder, 4, "abc", ["a", "b"], [0, 1, 1, -1])
        assert labels_of(session) == {0: "a", 1: "b", 2: "b"}
        session.close()


@given(
    st.lists(
        st.tuples(st.sampled_from(["label", "skip", "clear", "class", "rename", "merge", "undo"]), st.integers(0, 9))
    )
)
def test_the_state_is_always_what_a_replay_gives(tmp_path_factory, steps):
    session = Session(tmp_path_factory.mktemp("run"), 10, "abc", ["a"], [0] + 9 * [-1])
    for step, number in steps:
        code = list(session.state.classes)[number % len(session.state.classes)]
        if step == "label":
            session.label([number, (number * 3) % 10], code)
        elif step == "skip":
            session.skip([number])
        elif step == "clear":
            session.clear([number])
        elif step == "class":
            session.add_class(f"class {session.saved}")
        elif step == "rename":
            session.rename_class(code, f"name {session.saved}")
        elif step == "merge" and len(session.state.classes) > 1:
            session.merge_class(code, next(other for other in session.state.classes if other != code))
        elif step == "undo":
            session.undo()
        assert session.state == replay(session._journal.events)
    session.close()


@pytest.mark.parametrize("name", ["nan", "-1", " -1 ", "None", "null", "NULL", "N/A", "Unlabeled", "n.a.", "TBD"])
def test_a_class_cannot_be_called_what_means_no_label(tmp_path, name):
    session = Session(tmp_path, 3, "f")
    with pytest.raises(ValueError, match="means no label"):
        session.add_class(name)
    code = session.add_class("1")
    with pytest.raises(ValueError, match="means no label"):
        session.rename_class(code, name)
    assert session.state.classes == {code: "1"}
    session.close()


def test_classes_of_the_file_keep_their_names_whatever_they_are(tmp_path):
    session = Session(tmp_path, 3, "f", ["None", "-1"], [0, 1, -1])
    assert labels_of(session) == {0: "None", 1: "-1"}
    session.close()


def test_undo_takes_back_the_last_change_that_no_other_open_tab_made(session):
    session.label([2], 0, tab="one")
    session.label([3], 0, tab="two")
    session.label([4], 0)
    assert session.undo({"one", "two"})["rows"] == [4]
    assert session.undo({"one", "two"}) is None
    assert session.undoable({"two"}) == session.undoable()[:1]
    assert session.undo({"two"}, "one")["rows"] == [2]
    assert set(labels_of(session)) == {0, 1, 3}
    assert session.undo()["rows"] == [3]  # its tab was closed


def test_a_change_that_another_tab_builds_on_is_not_undone(session):
    green = session.add_class("green", "one")
    session.label([2], green, tab="two")
    with pytest.raises(ConflictError, match="a later change in another window needs it"):
        session.undo({"two"}, "one")
    session.undo({"one"}, "two")
    session.rename_class(green, "lime", "two")
    session.undo({"two"}, "one")
    assert list(session.state.classes.values()) == ["red", "blue"]
    session.undo()
    session.rename_class(0, "crimson", "one")
    session.add_class("red", "two")
    with pytest.raises(ConflictError, match="a later change in another window needs it"):
        session.undo({"two"}, "one")
    assert session.state == replay(session._journal.events)


def test_a_change_that_was_undone_below_others_that_stay_is_no_undoing_of_fits(session):
    first = session.label([2], 0, tab="one")
    session.label([3], 1, tab="two")
    session.undo({"two"}, "one")
    assert session.undone() == []
    second = session.label([4], 1, tab="one")
    session.undo({"two"}, "one")
    assert session.undone() == [(second["n"] + 1, second["n"])]
    assert first["n"] < second["n"]


def test_merges_that_stand_are_listed(session):
    session.merge_class(0, 1)
    assert session.merges() == [(0, 1)]
    session.undo()
    assert session.merges() == []


def test_a_merge_gives_labels_and_guesses_to_the_other_class_and_can_be_undone(tmp_path):
    session = Session(tmp_path, 10, "abc", ["red", "blue"], [0, 1] + 8 * [-1])
    session.label([2], 1, audit=True, guesses={2: 0})
    session.merge_class(0, 1)
    assert labels_of(session) == {0: "blue", 1: "blue", 2: "blue"}
    assert session.state.labels[2].guess == 1
    with pytest.raises(ValueError, match="no class 0"):
        session.label([3], 0)
    assert session.add_class("red") == 2  # the name is free, the number is not
    session.close()
    session = Session(tmp_path, 10, "abc", ["red", "blue"], [0, 1] + 8 * [-1])
    assert labels_of(session) == {0: "blue", 1: "blue", 2: "blue"}
    session.undo()
    session.undo()
    assert labels_of(session) == {0: "red", 1: "blue", 2: "blue"}
    for wrong in (1, 7, None):
        with pytest.raises(ValueError, match="class"):
            session.merge_class(1, wrong)
    session.close()


@pytest.mark.parametrize(
    "name", ["\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f469\u200d\U0001f527"]
)
def test_joiners_stay_in_names_and_make_no_second_class_that_looks_the_same(session, name):
    code = session.add_class(f" \u200d{name}\u200c ")
    assert session.state.classes[code] == name
    with pytest.raises(ValueError, match="is already a class"):
        session.add_class(name.replace("\u200d", "").replace("\u200c", ""))
    for hidden in ("re\u200dd", "na\u200cn", "\u200d \u200c"):
        with pytest.raises(ValueError, match="class"):
            session.add_class(hidden)
    other = session.add_class("a\u202eb\x07c")  # a direction override and a bell
    assert session.state.classes[other] == "a b c"
