"""One copy of the project for the tier: its tests walk one stack through its life, in the order they stand in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.fork_server import ForkServer
from tests.clone import Clone


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Iterator[Clone]:
    """A copy for one test alone."""
    clone = Clone(tmp_path)
    yield clone
    clone.remove()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Hosts and plugins that start at once."""
    with ForkServer() as started:
        yield started


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """A copy that the tests of a module share."""
    clone = Clone(tmp_path_factory.mktemp("rehearsal"))
    yield clone
    clone.remove()
