"""A headless Chromium, driven through the pipe of its DevTools protocol: no port, no other package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

# What keeps a browser still: no first-run pages, no services, no network of its own.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"]


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a Chromium."""

    def __init__(self, program: str, folder: Path, width: int = 1200, height: int = 900) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"]

        def hand_over() -> None:  # the protocol speaks through descriptors 3 and 4
            high = [os.dup(theirs_in), os.dup(theirs_out)]
            while min(high) < 5:
                high = [os.dup(handle) for handle in high]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [*command, "about:blank"], preexec_fn=hand_over, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._rest = b""
        self.problems: list[str] = []
        targets: list[str] = []
        while not targets:  # the first page may come later than the first answer
            found = self.call("Target.getTargets")["targetInfos"]
            targets = [target["targetId"] for target in found if target["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=targets[0], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    _session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                result: dict[str, Any] = answer.get("result", {})
                return result
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 2**16)
            if not part:
                raise RuntimeError("Chromium has ended.")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        """Keep errors of scripts and of the content security policy, and files that are not found."""
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(event["params"]["exceptionDetails"])[:500])
        elif event.get("method") == "Log.entryAdded":
            entry = event["params"]["entry"]
            if entry["level"] == "error":
                self.problems.append(f"{entry['text']} {entry.get('url', '')}")
        elif event.get("method") == "Page.javascriptDialogOpening":
            self.problems.append("a dialog was opened")

    def open(self, url: str) -> None:
        self.js("window.stale = true")
        self.call("Page.navigate", url=url)
        self.until("!window.stale && document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 400) -> Any:
        end = time.monotonic() + seconds
        while True:
            try:
                answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
            except RuntimeError as error:
                if "navigated" not in str(error) and "context" not in str(error):
                    raise
                answer = {"result": {}}  # the page went while it was asked
            value = answer["result"].get("value")  # an exception, while a page loads, is not yet true
            if value and "exceptionDetails" not in answer:
                return value
            assert time.monotonic() < end, f"{expression} stayed {answer['result']}; {self.problems}"
            time.sleep(0.03)

    def key(self, key: str, place: str = "") -> None:
        """Press and release one key, as a keyboard would; its place is a name such as KeyS."""
        named = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}
        code, text = named[key] if key in named else (ord(key.upper()), key)
        same = {"key": key, "windowsVirtualKeyCode": code, "code": place}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **same)
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def type(self, text: str) -> None:
        for letter in text:
            self.key(letter)

    def drag(self, places: list[tuple[float, float]]) -> None:
        """Press the mouse at the first place, move through the others, release at the last."""
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=places[0][0], y=places[0][1], **button)
        for x, y in places[1:]:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=places[-1][0], y=places[-1][1], **button)

    def swipe(self, begin: tuple[float, float], end: tuple[float, float], steps: int = 12) -> None:
        """Draw one finger over the screen."""
        shares = [step / steps for step in range(steps + 1)]
        way = [{"x": begin[0] + s * (end[0] - begin[0]), "y": begin[1] + s * (end[1] - begin[1])} for s in shares]
        for place in way:
            kind = "touchStart" if place is way[0] else "touchMove"
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[place])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def click(self, selector: str) -> None:
        """Click the mouse in the middle of an element, which must be in view."""
        box = self.js(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({selector}.getBoundingClientRect())")
        self.drag([(box[0], box[1])])

    def scheme(self, value: str) -> None:
        """Prefer light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
