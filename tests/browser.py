"""Headless Chromium, driven over its DevTools protocol through two pipes: no port, no driver, no package."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.chromium import Browser

PATIENCE = 60.0  # seconds; a page needs less than one, a busy machine may need many


class Chromium:
    """Browser process with one page, which records what the page logs, throws and requests.

    `messages` are console messages and exceptions, `requests` the requested URLs.
    """

    def __init__(self, browser: Browser, folder: Path) -> None:
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        # The protocol uses descriptors 3 and 4: a shell maps the pipes to them.
        command = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        self._process = subprocess.Popen(
            [
                *("bash", "-c", command, "browser", str(browser.program), "--headless", "--no-sandbox", "--no-zygote"),
                *("--remote-debugging-pipe", f"--user-data-dir={folder}", "--use-gl=angle", "--use-angle=swiftshader"),
                *("--enable-unsafe-swiftshader", "--disable-background-networking", "--hide-scrollbars"),
            ],
            env=os.environ | browser.environment,
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=(folder.parent / "browser.log").open("w"),
        )
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._calls = 0
        self._session: str | None = None
        self._loaded = False
        self.messages: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Chromium:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def open(self, page: Path, width: int, height: int = 900, *, dark: bool = False, printed: bool = False) -> None:
        """Show a file in a viewport of that size, as on a phone or a desktop, or as printed."""
        self.messages.clear()
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if printed else "", features=[scheme])
        self._loaded = False
        self.call("Page.navigate", url=page.as_uri())
        ends = time.monotonic() + PATIENCE
        while not self._loaded:
            self._handle(self._read(ends))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"the page threw: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, clip: dict[str, float] | None = None) -> bytes:
        """Return the whole page as PNG, or the rectangle `clip` (x, y, width, height in CSS pixels of the page)."""
        if clip is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        answer = self.call("Page.captureScreenshot", clip={**clip, "scale": 1}, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Run a command of the protocol. Raises AssertionError if the browser refuses it or does not answer."""
        self._calls += 1
        message: dict[str, Any] = {"id": self._calls, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        ends = time.monotonic() + PATIENCE
        while True:
            answer = self._read(ends)
            if answer.get("id") == self._calls:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._handle(answer)

    def _read(self, ends: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise AssertionError(f"the browser did not answer within {PATIENCE:.0f} s")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise AssertionError(f"the browser ended with status {self._process.poll()}")
            self._buffer += piece
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def _handle(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.consoleAPICalled":
                self.messages.append(f"console: {parameters['args']}")
            case "Runtime.exceptionThrown":
                self.messages.append(f"exception: {parameters['exceptionDetails']['text']}")
            case "Log.entryAdded":
                self.messages.append(f"log: {parameters['entry']['text']}")
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
