"""Running stack at depth `cluster`, for tests that inspect or change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra.settings import Settings, from_stack_file
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.cluster.environment import starting
from rehearsal.cluster.phases import ClusterPhases
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.graph import Graph
from tools.kubernetes import kubectl
from tools.kubernetes.api import Api, Json
from tools.kubernetes.control_plane import ControlPlane


@dataclass(frozen=True)
class RunningStack:
    """Stack that is up. `engine` accepts further commands, `phases` scales workers, `graph` is the result of `up`."""

    engine: Engine
    graph: Graph
    settings: Settings
    phases: ClusterPhases

    @property
    def plane(self) -> ControlPlane:
        """The control plane."""
        return self.phases.environment.plane

    @property
    def api(self) -> Api:
        """Client of the API server."""
        return self.plane.api

    @property
    def controllers(self) -> CloudControllers:
        """The cloud controllers."""
        return self.phases.environment.controllers


@contextmanager
def running_stack(
    name: str, folder: Path, plugins: Path, before: Callable[[CloudControllers], None], changes: Json
) -> Iterator[RunningStack]:
    """Run `up` of a stack file, unprotected and with changed settings; stop the environment at the end.

    Args:
        folder: the workspace; its logs stay there.
        plugins: the engine's, of a fork server.
        before: prepares the cloud controllers before `up`.
        changes: settings by name: {"nodes": {"max": 2}}.
    """
    workspace = Workspace(folder, plugins)
    workspace.begin(name, file := ROOT / f"Pulumi.{name}.yaml")
    config = yaml.safe_load(file.read_text())["config"]
    ours = {f"rdma-ray:{setting}": value for setting, value in ({"protect": False} | changes).items()}
    own = folder / file.name
    own.write_text(yaml.safe_dump({"config": kubectl.merged(config, ours)}))
    settings = from_stack_file(own)
    engine = Engine(workspace, name)
    with starting(folder / "kubernetes", engine.cloud_state, settings, lambda _line: None) as ready:
        engine.init()
        phases = ClusterPhases(ready())
        before(phases.environment.controllers)
        said = engine.up()
        assert said.ok, said.text
        yield RunningStack(engine, Graph.from_deployment(engine.deployment()), settings, phases)
