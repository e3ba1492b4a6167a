"""Headless Chromium, driven over its DevTools protocol through two pipes: no port, no driver, no package."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from PIL import Image

from tests.chromium import Browser

PATIENCE = 300.0  # seconds; all pages together need some 20, a busy machine may need many more


class Chromium:
    """A page of a browser process that reads commands from one pipe and answers on another.

    `events` are those of the protocol since the page was shown: what it logs, throws and requests.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = open(commands, "wb", 0), open(answers, "rb")  # noqa: SIM115  # as long as this
        self._session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session["sessionId"] = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def show(self, page: Path, width: int, height: int = 900, *, dark: bool = False, media: str = "screen") -> None:
        """Show a file in a viewport of that size, as on a phone or a desktop, or as printed, and wait until it is."""
        self.events.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._call("Page.navigate", url=page.as_uri())
        self.evaluate(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, **clip: float) -> Image.Image:
        """Return a picture of the page in shades of gray: all of it, except where `clip` has another height."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        answer = self._call("Page.captureScreenshot", clip=size | clip | {"scale": 1}, captureBeyondViewport=True)
        return Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("L")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Run a command of the protocol. A browser that has ended is a JSONDecodeError or a BrokenPipeError."""
        command = {"id": 1, "method": method, "params": parameters} | self._session
        self._commands.write(json.dumps(command).encode() + b"\0")
        while "id" not in (message := self._read()):
            self.events.append(message)
        assert "result" in message, (method, message)
        result: dict[str, Any] = message["result"]
        return result

    def _read(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(b"".join(iter(lambda: self._answers.read(1) or b"\0", b"\0")))
        return message


@contextmanager
def running(browser: Browser, folder: Path) -> Iterator[Chromium]:
    """Run the browser with its profile in a folder; end it after PATIENCE, so that a test does not wait forever."""
    to_child, commands = os.pipe()
    answers, from_child = os.pipe()
    process = subprocess.Popen(
        [
            # The protocol uses descriptors 3 and 4: a shell maps the pipes to them.
            *("bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "browser", str(browser.program), "--headless"),
            *("--no-sandbox", "--no-zygote", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--use-gl=angle"),
            *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-background-networking"),
            "--hide-scrollbars",
        ],
        env=os.environ | browser.environment,
        pass_fds=(to_child, from_child),
        stdout=subprocess.DEVNULL,
        stderr=(folder.parent / "browser.log").open("w"),
    )
    os.close(to_child)
    os.close(from_child)
    watchdog = Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield Chromium(commands, answers)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
