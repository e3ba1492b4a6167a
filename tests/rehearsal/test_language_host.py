"""The language host for machines without the real one: it must not outlive a killed engine."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.clone import PROJECT, wait_until

ENGINE = """
import subprocess, sys
host = subprocess.Popen([sys.argv[1], "127.0.0.1:1"], stdout=subprocess.PIPE, text=True)
host.stdout.readline()
print(host.pid, flush=True)
host.wait()
"""


def test_language_host_ends_with_killed_engine() -> None:
    host = PROJECT / "tools" / "host" / "pulumi-language-python"
    with subprocess.Popen([sys.executable, "-c", ENGINE, str(host)], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        pid = int(engine.stdout.readline())
        assert psutil.pid_exists(pid)
        engine.kill()
        engine.wait()
        wait_until(lambda: not psutil.pid_exists(pid), "the host ends", 10)
