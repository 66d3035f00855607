"""The labeling page: a person's first minute with its screenshots, and how long it takes with many rows.

    python -m benchmarks.labeling_page minute docs     # the screenshots of docs/labeling.md, by a headless Chromium
    python -m benchmarks.labeling_page scale 100000    # start, refit, undo and reopen, in seconds

The minute labels a made-up file of 600 support tickets; the person knows the team of each and presses its key. The
scale labels rows of 16 numbers in four classes: 1,000 given by DATA, then 60 by clicks and 10,000 by a lasso.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tests.app.labeling.browser import Browser, find_chromium
from tests.app.labeling.conftest import Client

from sobgnn.app.labeling.launch import open_page

TEAMS = {
    "Billing": (
        [
            "The invoice for {m} shows {n} euro twice",
            "I was charged {n} euro after I cancelled",
            "Please refund order {n}",
            "My receipt of {m} has the wrong address",
            "The discount of {m} is missing on invoice {n}",
        ],
        ["Can you correct the amount?", "I need a new receipt for my accountant.", "When will the refund arrive?"],
    ),
    "Access": (
        [
            "I cannot log in since {m}",
            "The password link for account {n} has expired",
            "Two-factor codes are not accepted",
            "My account {n} is locked",
            "The app asks me to sign in again and again",
        ],
        ["I reset the password twice.", "My colleague has the same problem.", "The code arrives too late."],
    ),
    "Delivery": (
        [
            "Parcel {n} has not arrived",
            "The box of order {n} was damaged",
            "Tracking of parcel {n} stopped in {m}",
            "The courier left order {n} at a wrong door",
            "Half of delivery {n} is missing",
        ],
        ["Where is my package now?", "Can the courier come again?", "I was at home all day."],
    ),
    "Product": (
        [
            "The handle of the kettle {n} is loose",
            "Lamp {n} flickers since {m}",
            "Does the charger {n} fit the old model?",
            "The manual of the {n} has no page on cleaning",
            "The screen of the radio {n} stays dark",
        ],
        ["I would like a spare part.", "Is that covered by the warranty?", "It worked well until {m}."],
    ),
}
MONTHS = ("January", "March", "April", "June", "August", "October", "November")


def tickets(path: Path, rows: int = 600) -> list[int]:
    """Write the file, and return the number of the team of each row."""
    generator = np.random.default_rng(0)
    lines, truth = ["id,subject,message,channel,minutes"], []
    for row in range(rows):
        team = int(generator.choice(4, p=[0.35, 0.3, 0.2, 0.15]))
        starts, ends = list(TEAMS.values())[team]
        fill = {"m": MONTHS[generator.integers(7)], "n": int(generator.integers(100, 9999))}
        subject = starts[generator.integers(len(starts))].format(**fill)
        message = (
            f"Hello, {subject[0].lower()}{subject[1:]}. {ends[generator.integers(len(ends))].format(**fill)} Thank you."
        )
        channel = ("mail", "phone", "chat")[generator.integers(3)]
        lines.append(f'T-{1000 + row},{subject},"{message}",{channel},{int(generator.integers(1, 60))}')
        truth.append(team)
    path.write_text("\n".join(lines) + "\n")
    return truth


def small(browser: Browser, path: Path) -> None:
    """A screenshot of few colors, a few dozen kilobytes."""
    from PIL import Image

    browser.screenshot(path)
    image = Image.open(io.BytesIO(path.read_bytes())).convert("RGB").quantize(96, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


def minute(out: Path) -> None:
    program = find_chromium()
    if program is None:
        raise SystemExit("There is no Chromium here: apt-get install chromium.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = tickets(folder / "tickets.csv")
        page = open_page(str(folder / "tickets.csv"), "team", folder=folder / "runs" / "tickets-labeled").start()
        browser = Browser(program, folder, 1180, 860)
        try:
            label(browser, page.url, truth, out, time.monotonic())
        finally:
            browser.close()
            page.close()


def label(browser: Browser, url: str, truth: list[int], out: Path, started: float) -> None:
    data = "document.documentElement.dataset"
    browser.scheme("light")
    browser.open(url)
    browser.until(f"{data}.row !== undefined && map.x.length", 300)
    print(f"first point and map after {time.monotonic() - started:.0f} s")
    browser.js("window.first = map.target[0], 0")
    small(browser, out / "label-1-start.png")
    for team in TEAMS:
        browser.key("n")
        browser.until("document.activeElement.id === 'new-name'")
        browser.type(team)
        browser.key("Enter")
        browser.until("document.activeElement.id !== 'new-name'")
    for number in range(1, 61):
        row = browser.js(f"{data}.row")
        browser.key(str(truth[int(row)] + 1))
        browser.until(f"{data}.row !== '{row}' && {data}.waiting === '0'")
        if number % 12 == 0:
            browser.until("document.getElementById('model').textContent.includes(`knows ${state.labels} of`)", 300)
            found = browser.js("JSON.stringify(progress.curve.at(-1))")
            print(f"{number} labels after {time.monotonic() - started:.0f} s: {found}")
    browser.key(str(truth[int(browser.js(f"{data}.row"))] + 1))  # the next one was chosen with the model's help
    browser.until(f"current && current.guesses.length && {data}.waiting === '0'", 300)
    browser.until("!state.model.busy && map.target[0] !== first && map.target[0] === map.x", 300)  # points have moved
    small(browser, out / "label-3-sixty.png")
    print("problems:", browser.problems)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(f"{what:<44} {time.perf_counter() - started:7.2f} s", flush=True)


def scale(rows: int) -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 4, rows)
    X = generator.normal(size=(rows, 16)) + 2.5 * generator.normal(size=(4, 16))[truth]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "rows.csv"
        given = np.where(np.arange(rows) % (rows // 1000) == 0, [f"class {code}" for code in truth], "")
        with file.open("w") as out:
            out.write(",".join(f"x{column}" for column in range(16)) + ",kind\n")
            for x, own in zip(X, given, strict=True):
                out.write(",".join(f"{value:.4f}" for value in x) + f",{own}\n")
        for turn in ("start", "reopen"):
            with timed(f"{turn}: the page can be opened"):
                page = open_page(str(file), "kind", folder=folder / "run").start()
            client = Client(page.url)
            with timed(f"{turn}: the first fit"):
                client.until(lambda state: state["model"]["version"])
            with timed(f"{turn}: then the map"):
                client.until(lambda state: state["model"]["map"])
            if turn == "start":
                use(client, truth)
            page.close()


def use(client: Client, truth: np.ndarray) -> None:
    spent = []
    for _ in range(60):
        row = client.next()[0]["row"]
        started = time.perf_counter()
        assert client.post("label", {"rows": [row], "class": int(truth[row])})[0] == 200
        spent.append(time.perf_counter() - started)
    print(f"{'a label, median (longest) of 60':<44} {np.median(spent):7.3f} s ({max(spent):.3f} s)")
    with timed("refit after the last of them"):
        client.until(lambda state: state["model"]["knows"] == state["saved"] and not state["model"]["busy"])
    rows = [int(row) for row in np.flatnonzero(truth == 0)[:10_000]]
    for what, body in (("label", {"rows": rows, "class": 0, "how": "lasso"}), ("undo", {}), ("undo", {})):
        with timed(f"{what} {'of 10,000 rows' if what == 'label' else ''}"):
            assert client.post(what, body)[0] == 200
    with timed("labels and guesses of all points for the map"):
        assert len(client.get("api/marks")[2]) == 5 * len(truth)
    with timed("search"):
        print(json.dumps(client.json("api/search?q=1.23")["found"]), "rows hold 1.23")


if __name__ == "__main__":
    what, value = sys.argv[1:]
    minute(Path(value)) if what == "minute" else scale(int(value))
