from __future__ import annotations

import numpy as np
import pytest

from sobgnn.labeling import picking
from sobgnn.labeling.learner import Guesses
from sobgnn.labeling.picking import Offers, Picker
from sobgnn.labeling.state import Label


def guesses(suggested, rows=30, guessing=True):
    codes = np.zeros((rows, 3), dtype=np.int32) if guessing else None
    return Guesses(1, 1, 1, codes, None, list(suggested), [])


def labels(count):
    return {row: Label(0, "", "person") for row in range(count)}


def test_suggestions_come_in_their_order_without_what_is_done():
    chosen = Picker(30).next(guesses([9, 8, 7, 6, 5], guessing=False), {8: Label(0, "", "person")}, {7}, 3)
    assert chosen == [(9, "suggested"), (6, "suggested"), (5, "suggested")]


def test_one_point_in_eight_is_drawn_at_random_once_the_model_guesses():
    picker = Picker(200)
    order = list(range(100, 200))
    reasons = []
    done = {}
    for _ in range(80):
        row, why = picker.next(guesses(order, 200), done, (), 1)[0]
        done[row] = Label(0, "", "person")
        reasons.append(why)
    assert reasons.count("audit") == 10
    assert "audit" not in [why for _, why in Picker(200).next(guesses(order, 200, guessing=False), {}, (), 40)]


def test_the_same_point_is_drawn_until_it_is_labeled():
    picker = Picker(30)
    first = picker.next(guesses([1, 2]), labels(7), (), 1)
    assert first[0][1] == "audit"
    assert picker.next(guesses([1, 2]), labels(7), (), 1) == first
    assert first[0][0] in picker.audits


def test_a_row_that_is_suggested_after_it_was_drawn_is_no_audit():
    picker = Picker(30)
    row = picker.next(guesses([1, 2]), labels(7), (), 1)[0][0]
    assert picker.next(guesses([row]), labels(6), (), 1) == [(row, "suggested")]
    assert row not in picker.audits


def test_rows_whose_guess_was_seen_are_no_audit_but_do_not_get_lost():
    picker = Picker(30)
    first = picker.next(guesses([]), labels(7), (), 1)[0][0]
    picker.show([first])
    assert picker.audits == set()
    assert picker.next(guesses([]), labels(7), (), 1)[0] != (first, "audit")
    rest = picker.next(guesses([]), labels(7), (), 30)
    assert (first, "random") in rest
    assert len(rest) == 23


@pytest.mark.parametrize("given", range(17))
def test_what_comes_after_the_row_that_is_shown_is_the_same_after_a_reload(given):
    found = guesses([29, 28, 27, 26, 25, 24])
    picker = Picker(30)
    (shown, _), *others = picker.next(found, labels(given), (), 5)
    for _ in range(2):
        assert picker.next(found, labels(given), (), 4, shown=shown) == others
        assert picker.next(found, labels(given), (), 5)[0][0] == shown


def test_a_row_of_the_audit_stays_one_while_it_is_shown():
    picker = Picker(30)
    row = picker.next(guesses([]), labels(7), (), 1)[0][0]
    assert picker.next(guesses([row, 1, 2]), labels(7), (1, 2), 1, shown=row) != [(row, "suggested")]
    assert row in picker.audits


def test_a_row_that_is_shown_with_its_guess_is_no_audit_later():
    picker = Picker(30)
    row = Picker(30).next(guesses([]), labels(7), (), 1)[0][0]
    picker.next(guesses([]), labels(6), (), 4, shown=row)
    assert picker.next(guesses([]), labels(7), (), 1)[0] != (row, "audit")


def test_an_audit_that_is_due_comes_after_a_row_that_was_opened():
    picker = Picker(30)
    drawn = picker.next(guesses([20, 21]), labels(7), (), 1)
    assert drawn[0][1] == "audit"
    assert picker.next(guesses([20, 21]), labels(7), (), 1, shown=22) == drawn


def test_points_run_out_in_the_end():
    picker = Picker(5)
    assert len(picker.next(guesses([3], 5), {}, (), 40)) == 5
    assert picker.next(None, labels(5), (), 4) == []
    assert picker.next(None, labels(3), {3}, 4) == [(4, "random")]


def test_a_tab_whose_browser_was_killed_is_forgotten_after_about_a_minute(monkeypatch):
    now, offers = [1000.0], Offers()
    monkeypatch.setattr(picking.time, "monotonic", lambda: now[0])
    offers.note("one", [1, 2])
    now[0] += 62  # in the background, some browsers let a tab ask once a minute
    assert offers.others("two") == {"one"}
    assert offers.of_others("two") == {1, 2}
    now[0] += 13
    assert offers.others("two") == set()
    assert offers.of_others("two") == set()
