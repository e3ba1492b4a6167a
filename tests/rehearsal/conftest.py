"""One copy of the project for the tier: its tests take one stack through its life, in file order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rehearsal.engine.faults import Fault
from rehearsal.engine.state import State, View
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.report.outcome import Outcome
from rehearsal.scenario import RehearsalRequest, Scenario
from tests.clone import Clone


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Iterator[Clone]:
    """A copy for a single test, with one worker."""
    clone = Clone(tmp_path)
    file = clone.path / "Pulumi.local.yaml"
    file.write_text(file.read_text().replace("count: 2", "count: 1"))
    yield clone
    clone.remove()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[View]:
    """An open transaction on clouds without resources."""
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        yield view


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Language hosts and plugins from a fork server."""
    with ForkServer() as started:
        yield started


@pytest.fixture(scope="session")
def rehearse(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """Rehearse a stack, with changes or faults; all tests share one plain rehearsal per stack."""
    plain: dict[str, Outcome] = {}

    def run(stack: str, changes: tuple[str, ...] = (), faults: tuple[str, ...] = ()) -> Outcome:
        if not changes and not faults and stack in plain:
            return plain[stack]
        request = RehearsalRequest(
            stack=stack,
            file=ROOT / f"Pulumi.{stack}.yaml",
            changes=changes,
            faults=tuple(map(Fault.parse, faults)),
        )
        folder = tmp_path_factory.mktemp("rehearsals") / stack
        outcome = Scenario(request, Workspace(folder, fork_server.bin), lambda _name, _phase: None).run()
        if not changes and not faults:
            plain[stack] = outcome
        return outcome

    return run


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """A copy that the tests of a module share."""
    clone = Clone(tmp_path_factory.mktemp("rehearsal"))
    yield clone
    clone.remove()
