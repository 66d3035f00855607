from __future__ import annotations

from contextlib import closing

import pytest

from sobgnn.labeling.keys import KEYS, ClassKeys, replay_keys
from sobgnn.labeling.session import Session


def assigned(*steps):
    keys = ClassKeys()
    for classes in steps:
        keys.update(classes)
    return keys.now


TWELVE = {code: f"class {code}" for code in range(12)}


@pytest.mark.parametrize("gone", [0, 5, 11])
def test_a_class_keeps_its_key_when_another_goes_and_a_new_one_gets_the_free_key(gone):
    assert list(assigned(TWELVE).values()) == list("123456789abc")
    left = {code: name for code, name in TWELVE.items() if code != gone}
    kept = assigned(TWELVE, left)
    assert kept == {code: "123456789abc"[code] for code in left}
    assert assigned(TWELVE, left, {**left, 12: "new"}) == {**kept, 12: "123456789abc"[gone]}


def test_a_class_that_comes_back_has_its_key_again_where_that_is_free():
    some = {0: "a", 2: "c"}
    assert assigned({0: "a", 1: "b", 2: "c"}, some, {0: "a", 1: "b", 2: "c"}) == {0: "1", 1: "2", 2: "3"}
    assert assigned({0: "a", 1: "b", 2: "c"}, some, {**some, 3: "d"}, {0: "a", 1: "b", 2: "c", 3: "d"}) == {
        0: "1",
        1: "4",
        2: "3",
        3: "2",
    }


def test_a_class_named_by_a_digit_has_that_key_and_only_the_class_that_had_it_gets_another():
    assert assigned({0: "a", 1: "b", 2: "c"}, {0: "a", 1: "b", 2: "c", 3: "2", 4: "0"}) == {
        0: "1",
        1: "4",
        2: "3",
        3: "2",
        4: "0",
    }


def test_classes_without_a_free_key_have_none_and_get_one_that_becomes_free():
    many = {code: f"class {code}" for code in range(len(KEYS) + 2)}
    full = assigned(many)
    assert [full[code] for code in sorted(many)[-3:]] == [KEYS[-1], "", ""]
    del many[4]
    assert assigned({4: "x", **many}, many)[len(KEYS)] != ""


def test_keys_are_the_same_after_a_run_is_opened_again(tmp_path):
    with closing(Session(tmp_path, 10, "abc", ["a", "b", "c", "d"])) as session:
        session.merge_class(1, 0)
        session.add_class("e", "one")
        session.add_class("f", "two")
        session.undo({"two"}, "one")  # e goes, f stays
        session.rename_class(3, "9")
        before = session.keys
        assert before == {0: "1", 2: "3", 3: "9", 5: "5"}
        assert replay_keys(session._journal.events).now == before
    with closing(Session(tmp_path, 10, "abc")) as again:
        assert again.keys == before
        for _ in range(3):
            again.undo()
        assert again.state.classes == dict(enumerate("abcd"))
        assert again.keys == {0: "1", 1: "2", 2: "3", 3: "9"}
