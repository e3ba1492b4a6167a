"""A stack that is brought up at depth `cluster` and kept, for whoever wants to look at it or to change it.

with Standing(ROOT / "Pulumi.gke.yaml", folder, changes=("nodes.max=2",)) as stack:
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
    """From `with` to the end of the block: a stack file, with `changes` ("nodes.max=2"), that is up.

    `folder` is where it happens; its logs stay there. `plugins` are the engine's, of a warm start or the usual ones.
    `engine` may go on: `up`, `preview`, `destroy`. `inside` makes workers come and go. `graph` is what `up` made.
    Raises `EngineError` where `up` fails, `BuildError` where a program of Kubernetes is missing.
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
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._file = stack_file
        self._changes = changes
        self._tell = tell
        self._stack = ExitStack()
        self.name = stack_file.name.split(".")[1]
        self.workspace = Workspace(folder, plugins)

    @property
    def plane(self) -> ControlPlane:
        """The control plane."""
        return self.environment.plane

    @property
    def api(self) -> Api:
        """A client of its API server."""
        return self.environment.api

    @property
    def controllers(self) -> CloudControllers:
        """Who plays the clouds' own controllers."""
        return self.environment.controllers

    @property
    def timeline(self) -> Timeline:
        """What has happened so far."""
        return self.environment.timeline

    @property
    def cloud_state(self) -> State:
        """What the simulated clouds remember."""
        return self.engine.cloud_state

    def up(self) -> Graph:
        """Bring it up (again); returns the graph that is there now. Raises `EngineError`."""
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
        environment = Environment(self.workspace.folder / "kubernetes", self.cloud_state, self.settings, self._tell)
        ready = self._stack.enter_context(EnvironmentStart(environment))
        self.engine.init()
        self.environment = ready()
        self.phases = ClusterPhases(self.environment)
        self.up()


def changed(text: str, changes: Sequence[str]) -> str:
    """A stack file's text with settings changed, each written "nodes.max=2"."""
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
