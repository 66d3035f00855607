from __future__ import annotations

import numpy as np

from sobgnn.labeling.places import ENOUGH, Places

FIRST, SECOND, THIRD = (np.full((3, 2), number, dtype=np.float32) for number in range(3))


def test_the_map_is_made_from_a_fit_once_there_are_enough_labels_and_then_only_on_request():
    places = Places()
    places.take(False, FIRST)
    places.fitted(0, ENOUGH)  # no guesses
    assert not places.due
    assert not places.outdated
    places.fitted(2, ENOUGH - 1)
    assert not places.due
    assert places.outdated
    places.fitted(3, ENOUGH)
    assert places.due
    places.requested()
    assert not places.due
    assert not places.outdated
    places.fitted(4, ENOUGH + 5)  # before the map comes
    assert not places.due
    places.take(True, SECOND)
    assert places.now is SECOND
    assert places.number == 2
    places.fitted(5, 4 * ENOUGH)
    assert not places.due
    assert places.outdated
    places.wanted = True
    assert places.due
    assert not places.outdated


def test_a_request_before_there_are_enough_labels_is_the_only_one():
    places = Places()
    places.take(False, FIRST)
    places.wanted = True
    assert not places.due  # no fit yet
    places.fitted(1, 2)
    assert places.due
    places.requested()
    places.take(True, SECOND)
    places.fitted(2, ENOUGH)
    assert not places.due


def test_a_process_that_is_restarted_moves_no_point_and_may_be_asked_after_its_next_fit():
    places = Places()
    places.take(False, FIRST)
    places.fitted(1, ENOUGH)
    places.requested()
    places.restarted()  # before the map came
    places.take(False, THIRD)
    assert places.now is FIRST
    assert places.number == 1
    places.fitted(2, ENOUGH)
    places.requested()
    places.take(True, SECOND)
    places.restarted()
    places.take(False, THIRD)
    assert places.now is SECOND
    places.fitted(3, ENOUGH)
    assert places.outdated


def test_a_map_that_failed_leaves_the_one_before_and_can_be_requested_again():
    places = Places()
    places.take(False, FIRST)
    places.fitted(1, 2)
    places.wanted = True
    places.requested()
    places.take(True, None)
    assert places.now is FIRST
    assert places.outdated
