"""One control plane for the whole tier, with the real KubeRay and Kueue; kwok simulates the nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rehearsal.fork_server import ForkServer
from tools.kubernetes.control_plane import ControlPlane

_GONE_WITHIN_S = 20.0


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After all tests, or an interruption: no process works in the folders of this run."""
    base = tmp_path_factory.getbasetemp()
    yield
    deadline = time.monotonic() + _GONE_WITHIN_S
    while (found := _at_work_in(base)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not found


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A Job's pods run until a test ends them; each test uses its own namespace and node labels."""
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        plane.start_kwok(complete_jobs=False)
        plane.start_kuberay()
        plane.start_kueue()
        yield plane


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """A fork server of language hosts and plugins, for every stack of the tests."""
    with ForkServer() as started:
        yield started


def _at_work_in(folder: Path) -> list[str]:
    """Return the processes with a folder as working directory or in their command line."""
    found = []
    # The command that started this run may have --basetemp.
    own = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            command = process.cmdline()
            if process.pid not in own and any(str(folder) in word for word in (process.cwd(), *command)):
                found.append(" ".join(command))
    return found
