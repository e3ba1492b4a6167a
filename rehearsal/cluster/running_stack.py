"""Running stack at depth `cluster`, for tests that inspect or change it.

with RunningStack(ROOT / "Pulumi.gke.yaml", folder, changes=("nodes.max=2",)) as stack:
    stack.api.list("v1", "Pod", "ray")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from infra.settings import Settings, from_stack_file
from rehearsal.clouds.state import State
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.cluster.environment import Environment, EnvironmentStart
from rehearsal.cluster.phases import ClusterPhases
from rehearsal.cluster.timeline import Timeline
from rehearsal.engine import Engine, EngineError
from rehearsal.graph import Graph
from rehearsal.workspace import PLUGINS, Workspace
from tools.kubernetes.api import Api
from tools.kubernetes.control_plane import ControlPlane


class RunningStack:
    """Stack of a stack file with `changes` ("nodes.max=2"), up for the duration of a `with` block.

    `folder` is the workspace; its logs stay there. `plugins` are the engine's, of a fork server or the usual ones.
    `engine` accepts further commands: `up`, `preview`, `destroy`. `phases` scales workers up and down. `graph` is the
    result of `up`.

    Raises:
        EngineError: `up` fails.
        BuildError: a program of Kubernetes is missing.
    """

    engine: Engine
    graph: Graph
    phases: ClusterPhases
    settings: Settings
    environment: Environment

    def __init__(
        self,
        stack_file: Path,
        folder: Path,
        *,
        changes: Sequence[str] = (),
        plugins: Path = PLUGINS,
        report: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._file = stack_file
        self._changes = changes
        self._report = report
        self._stack = ExitStack()
        self.name = stack_file.name.split(".")[1]
        self.workspace = Workspace(folder, plugins)

    @property
    def plane(self) -> ControlPlane:
        """The control plane."""
        return self.environment.plane

    @property
    def api(self) -> Api:
        """Client of the API server."""
        return self.environment.api

    @property
    def controllers(self) -> CloudControllers:
        """The cloud controllers."""
        return self.environment.controllers

    @property
    def timeline(self) -> Timeline:
        """The events so far."""
        return self.environment.timeline

    @property
    def cloud_state(self) -> State:
        """The state of the simulated clouds."""
        return self.engine.cloud_state

    def up(self) -> Graph:
        """Run `up` (again) and return the graph. Raises `EngineError`."""
        said = self.engine.up()
        if not said.ok:
            raise EngineError("up", said)
        self.graph = Graph.from_deployment(self.engine.deployment())
        return self.graph

    def __enter__(self) -> RunningStack:
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(type_, error, trace)

    def _begin(self) -> None:
        self.workspace.begin(self.name, self._file)
        self.engine = Engine(self.workspace, self.name)
        own = self.workspace.folder / f"Pulumi.{self.name}.yaml"
        own.write_text(changed(own.read_text(), self._changes))
        self.settings = from_stack_file(own)
        environment = Environment(self.workspace.folder / "kubernetes", self.cloud_state, self.settings, self._report)
        ready = self._stack.enter_context(EnvironmentStart(environment))
        self.engine.init()
        self.environment = ready()
        self.phases = ClusterPhases(self.environment)
        self.up()


def changed(text: str, changes: Sequence[str]) -> str:
    """Return a stack file's text with changed settings, each written "nodes.max=2"."""
    file: dict[str, Any] = yaml.safe_load(text)
    for change in changes:
        path, _, value = change.partition("=")
        first, *rest = path.split(".")
        keys = [f"rdma-ray:{first}", *rest]
        above = file["config"]
        for key in keys[:-1]:
            above = above.setdefault(key, {})
        above[keys[-1]] = yaml.safe_load(value)
    return yaml.safe_dump(file, sort_keys=False)
