"""A person's first minute with `sobgnn label`, in a headless Chromium: the screenshots of docs/label.md.

    python -m benchmarks.labeling_minute docs

A file of 600 support tickets is made up; the person knows the team of each and presses its key.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tests.labeling.browser import Browser, find_chromium

from sobgnn.labeling.launch import open_page

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


def main() -> None:
    out = Path(sys.argv[1])
    program = find_chromium()
    if program is None:
        raise SystemExit("There is no Chromium here: apt-get install chromium.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = tickets(folder / "tickets.csv")
        page = open_page(str(folder / "tickets.csv"), "team", folder=folder / "runs" / "tickets-labeled").start()
        browser = Browser(program, folder, 1180, 860)
        started = time.monotonic()
        try:
            label(browser, page.url, truth, out, started)
        finally:
            browser.close()
            page.close()


def label(browser: Browser, url: str, truth: list[int], out: Path, started: float) -> None:
    data = "document.documentElement.dataset"
    browser.scheme("light")
    browser.open(url)
    browser.until(f"{data}.row !== undefined", 300)
    print(f"first point after {time.monotonic() - started:.0f} s")
    browser.until("map.given && map.view.scale !== 1", 300)
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
        if number in (12, 24, 36, 48, 60):
            browser.until("document.getElementById('model').textContent.includes(`knows ${state.labels} of`)", 300)
            print(
                f"{number} labels after {time.monotonic() - started:.0f} s:",
                browser.js("JSON.stringify(state.curve.at(-1))"),
            )
        if number == 12:
            browser.key(str(truth[int(browser.js(f"{data}.row"))] + 1))  # the next one was chosen with the model's help
            browser.until(f"current && current.guesses.length && {data}.waiting === '0'", 300)
            small(browser, out / "label-2-guess.png")
    time.sleep(3)
    small(browser, out / "label-3-sixty.png")
    browser.call("Emulation.setDeviceMetricsOverride", width=400, height=860, deviceScaleFactor=1, mobile=False)
    browser.scheme("dark")
    time.sleep(2)
    small(browser, out / "label-4-narrow.png")
    print("problems:", browser.problems)


if __name__ == "__main__":
    main()
