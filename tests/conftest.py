"""Setup of every test tier."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.network_guard import GUARD

# A shell that starts the suite in the background ignores SIGINT, and its children inherit that: the processes that the
# tests interrupt would never receive it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The engine and the control planes are Go. With memory to spare they need not collect garbage as often: a rehearsal of
# `gke` takes 18.8 instead of 22.2 s of CPU (2026-11-29, two busy cores).
os.environ.setdefault("GOGC", "400")

# The same examples in every run, so that failures repeat, and without a deadline for busy machines. To search for new
# ones: make test PYTEST="tests/unit --hypothesis-profile=default"
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Their nodes and pods have addresses of bridges that the tier creates, or of the cluster in $KUBECONFIG.
_OWN_NETWORKS = ("kubernetes", "pods", "slurm")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Guard a test with all its fixtures, also those of wider scope."""
    if item.path.relative_to(Path(__file__).parent).parts[0] in _OWN_NETWORKS:
        return (yield)
    with GUARD.watching(item.nodeid):
        return (yield)


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    """Fail a test whose code swallowed the guard's error."""
    yield
    assert GUARD.refused == []


@pytest.fixture
def signals_put_back() -> Iterator[None]:
    """Restore signal handlers after tests of code that handles Ctrl-C for its process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
