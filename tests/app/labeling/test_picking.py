from __future__ import annotations

import numpy as np
import pytest

from sobgnn.app.labeling.picking import Picker, Windows


def after(picker, suggested, labels=0, without=(), count=1, rows=30, guessing=True, **more):
    """What a picker chooses after labels of the first rows, or of those that are given."""
    codes = np.full(rows, -1)
    codes[list(range(labels) if isinstance(labels, int) else labels)] = 0
    return picker.next(suggested, guessing, codes, without, count, **more)


def test_suggestions_come_in_their_order_without_what_is_done():
    chosen = after(Picker(30), [9, 8, 7, 6, 5], [8], {7}, 3, guessing=False)
    assert chosen == [(9, "suggested"), (6, "suggested"), (5, "suggested")]


def test_one_point_in_eight_is_drawn_at_random_once_the_model_guesses():
    picker, done, reasons = Picker(200), [], []
    for _ in range(80):
        row, why = after(picker, range(100, 200), done, rows=200)[0]
        done.append(row)
        reasons.append(why)
    assert reasons.count("audit") == 10
    unguessed = after(Picker(200), range(100, 200), count=40, rows=200, guessing=False)
    assert "audit" not in [why for _, why in unguessed]


def test_the_same_point_is_drawn_until_it_is_labeled_or_suggested():
    picker = Picker(30)
    first = after(picker, [1, 2], 7)
    assert first[0][1] == "audit"
    assert after(picker, [1, 2], 7) == first
    row = first[0][0]
    assert row in picker.audits
    assert after(picker, [row], 6) == [(row, "suggested")]
    assert row not in picker.audits


def test_rows_whose_guess_was_seen_are_no_audit_but_do_not_get_lost():
    picker = Picker(30)
    first = after(picker, [], 7)[0][0]
    picker.show([first])
    assert picker.audits == set()
    assert after(picker, [], 7)[0] != (first, "audit")
    rest = after(picker, [], 7, count=30)
    assert (first, "random") in rest
    assert len(rest) == 23


@pytest.mark.parametrize("given", range(17))
def test_what_comes_after_the_row_that_is_shown_is_the_same_after_a_reload(given):
    found, picker = [29, 28, 27, 26, 25, 24], Picker(30)
    (shown, _), *others = after(picker, found, given, count=5)
    for _ in range(2):
        assert after(picker, found, given, count=4, shown=shown) == others
        assert after(picker, found, given, count=5)[0][0] == shown


def test_a_row_of_the_audit_stays_one_while_it_is_shown():
    picker = Picker(30)
    row = after(picker, [], 7)[0][0]
    assert after(picker, [row, 1, 2], 7, (1, 2), shown=row) != [(row, "suggested")]
    assert row in picker.audits


def test_a_row_that_is_shown_with_its_guess_is_no_audit_later():
    picker = Picker(30)
    row = after(Picker(30), [], 7)[0][0]
    after(picker, [], 6, count=4, shown=row)
    assert after(picker, [], 7)[0] != (row, "audit")


def test_an_audit_that_is_due_comes_after_a_row_that_was_opened():
    picker = Picker(30)
    drawn = after(picker, [20, 21], 7)
    assert drawn[0][1] == "audit"
    assert after(picker, [20, 21], 7, shown=22) == drawn


def test_points_run_out_in_the_end():
    picker = Picker(5)
    assert len(after(picker, [3], rows=5, count=40)) == 5
    assert after(picker, [], 5, rows=5, guessing=False, count=4) == []
    assert after(picker, [], 3, {3}, rows=5, guessing=False, count=4) == [(4, "random")]


def test_a_window_that_is_reloaded_stays_open_and_one_that_is_closed_is_forgotten():
    windows = Windows()
    with windows.open("one"):
        with windows.open("one"):
            windows.show("one", [1, 2])
        assert windows.others("two") == {"one"}
        assert windows.shown_by_others("two") == {1, 2}
        assert windows.shown_by_others("one") == windows.others("") == set()
    assert windows.others("two") == windows.shown_by_others("two") == set()
