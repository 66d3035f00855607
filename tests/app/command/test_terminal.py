from __future__ import annotations

import re
import time

from sobgnn.app.command import terminal
from sobgnn.estimator.fit import FitProgress


def read_lines(capsys, wanted):
    """What stderr holds once it has ``wanted`` lines, without the seconds."""
    said, end = "", time.monotonic() + 60
    while said.count("\n") < wanted and time.monotonic() < end:
        said += capsys.readouterr().err
        time.sleep(0.01)
    return [re.sub(r" \(\d+ s\)$", "", line) for line in said.splitlines()]


def test_a_fit_says_every_few_seconds_where_it_is_if_stderr_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "INTERVAL", 0.02)
    with terminal.Terminal().training() as hook:
        assert read_lines(capsys, 1)[0] == "Fitting"
        hook(FitProgress("networks", 3, 1200, validation_accuracy=0.913))
        assert "Networks 3 of 1,200, held-out 91.3%" in read_lines(capsys, 3)
        assert hook.trained()
        capsys.readouterr()
    with terminal.Terminal().working("Writing"):
        assert read_lines(capsys, 2)[:2] == ["Writing"] * 2
    capsys.readouterr()
    with terminal.Terminal().working("Predicting") as working:
        working("5,000 rows done")
        assert "Predicting: 5,000 rows done" in read_lines(capsys, 3)


def test_the_time_left_of_a_stage_is_told():
    with terminal.Terminal().training() as hook:
        hook(FitProgress("networks", 1, 400))
        assert "left" not in hook.line
        hook._stage_began -= 30
        hook(FitProgress("networks", 100, 400))
        assert re.fullmatch(r"Networks 100 of 400, at most \d+ s left", hook.line)


def test_what_takes_a_moment_says_nothing(capsys):
    assert terminal.INTERVAL == 10
    with terminal.Terminal().working("Writing"):
        pass
    assert capsys.readouterr().err == ""
