"""One copy of the project for the tier: its tests take one stack through its life, in file order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.fork_server import ForkServer
from tests.clone import Clone


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Iterator[Clone]:
    """A copy for a single test."""
    clone = Clone(tmp_path)
    yield clone
    clone.remove()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Language hosts and plugins from a fork server."""
    with ForkServer() as started:
        yield started


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """A copy that the tests of a module share."""
    clone = Clone(tmp_path_factory.mktemp("rehearsal"))
    yield clone
    clone.remove()
