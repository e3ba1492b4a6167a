"""Find Prometheus and promtool for the tests of rules and dashboards: the user's own, or Debian's in the user's cache.

    .venv/bin/python -m tests.prometheus    # find them, or download Debian's package

`apt-get download` verifies the package with the keys of the user's system and needs no root; the package is unpacked,
not installed. The programs need libc only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clone import wait_until
from tools.go_build import cache
from tools.setup import say

PACKAGE = "prometheus"
NAMES = ("prometheus", "promtool")
NEEDS = (
    f"Prometheus is missing: `apt-get install {PACKAGE}`, or `.venv/bin/python -m tests.prometheus` (Debian, Ubuntu)"
)
INTERVAL = "1s"


def find() -> dict[str, Path] | None:
    """Return both programs by name: those on PATH, or those downloaded before, or None."""
    found = {name: Path(path) for name in NAMES if (path := shutil.which(name))}
    unpacked = {name: cache() / PACKAGE / "usr" / "bin" / name for name in NAMES}
    return found if len(found) == len(NAMES) else unpacked if all(map(Path.is_file, unpacked.values())) else None


def needed() -> dict[str, Path]:
    """Return both programs; skip the test without them."""
    if (programs := find()) is None:
        pytest.skip(NEEDS)
    return programs


def _fetch() -> None:
    """Download and unpack the package (19 MB; 190 MB unpacked)."""
    if not all(map(shutil.which, ("apt-get", "dpkg-deb"))):
        raise RuntimeError("this system has no apt-get")
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        subprocess.run(["apt-get", "download", "-qq", PACKAGE], cwd=work, capture_output=True, timeout=300, check=True)
        [archive] = Path(work).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, f"{work}/unpacked"], timeout=120, check=True)
        # Renamed when complete, so that an interrupted download is not used.
        Path(work, "unpacked").rename(cache() / PACKAGE)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    command: list[str | Path] = [needed()["promtool"], *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


class Prometheus:
    """A running Prometheus, at an address of this machine."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the API. Raises OSError if it refuses or does not answer."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[Any]:
        """Return the series of an expression now."""
        found: list[Any] = self.get("query", query=expr)["result"]
        return found

    @property
    def ready(self) -> bool:
        try:
            return bool(self.get("targets", state="active"))
        except OSError:
            return False


@contextmanager
def running(
    folder: Path, port: int, targets: Mapping[str, Mapping[str, str]], rules: Sequence[Path]
) -> Iterator[Prometheus]:
    """Run Prometheus while it reads targets every second.

    Args:
        targets: Labels of each address, as a scrape in a cluster adds them.
    """
    jobs = [
        {"job_name": f"job-{number}", "static_configs": [{"targets": [address], "labels": dict(labels)}]}
        for number, (address, labels) in enumerate(targets.items())
    ]
    every = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL}
    config = folder / "prometheus.yaml"
    config.write_text(json.dumps({"global": every, "rule_files": list(map(str, rules)), "scrape_configs": jobs}))
    address, log = f"127.0.0.1:{port}", folder / "prometheus.log"
    command = [
        str(needed()["prometheus"]),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--web.external-url=http://localhost/",
    ]
    with log.open("wb") as output:
        child = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        server = Prometheus(address)
        try:
            wait_until(lambda: server.ready or child.poll() is not None, lambda: log.read_text(), 60)
            assert child.poll() is None, log.read_text()
            yield server
        finally:
            child.terminate()
            child.wait(30)


def main() -> None:
    """Print a line about the programs. Never an error: the tests that need them are skipped without them."""
    began = time.monotonic()
    if found := find():
        return say("Prometheus", str(found["prometheus"]))
    try:
        _fetch()
    except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
        return say("Prometheus", f"none, so the tests of rules and dashboards are skipped: {problem}")
    return say("Prometheus", f"{cache() / PACKAGE}, downloaded in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
