"""One control plane for the whole tier, with the real KubeRay and Kueue; kwok simulates the nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.fork_server import ForkServer
from tests.clone import wait_until
from tests.kubernetes.running_stack import RunningStack, running_stack
from tools.kubernetes.control_plane import ControlPlane

_GONE_WITHIN_S = 20.0


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After all tests, or an interruption: no process works in the folders of this run."""
    base = tmp_path_factory.getbasetemp()
    yield
    wait_until(lambda: not at_work_in(base), lambda: at_work_in(base), _GONE_WITHIN_S)


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


@pytest.fixture(scope="module")
def run_stack(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Return a function that runs a stack file with changed settings until the end of the module."""
    with ExitStack() as until_end:

        def run(
            name: str, before: Callable[[CloudControllers], None] = lambda _controllers: None, **changes: Any
        ) -> RunningStack:
            folder = tmp_path_factory.mktemp(name) / "stack"
            return until_end.enter_context(running_stack(name, folder, fork_server.bin, before, changes))

        yield run


def at_work_in(folder: Path) -> list[str]:
    """Return the other processes with a folder as working directory, in their command line or their environment."""
    found = []
    # The command that started this run may have --basetemp.
    own = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            command = process.cmdline()
            words = (process.cwd(), *command, *process.environ().values())
            if process.pid not in own and any(str(folder) in word for word in words):
                found.append(" ".join(command))
    return found
