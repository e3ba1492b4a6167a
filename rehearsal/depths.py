"""How much of a rehearsal is real, and what has to stand behind the engine for it.

Depth `quick` needs none of what is imported here later, and starts sooner without.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, get_args

from infra.settings import Settings
from rehearsal.engine import Engine
from rehearsal.workspace import Workspace

if TYPE_CHECKING:
    from rehearsal.cluster.phases import ClusterPhases

Depth = Literal["quick", "cluster", "pods"]
DEPTHS: tuple[Depth, ...] = get_args(Depth)


class DepthError(RuntimeError):
    """This depth cannot be rehearsed on this machine; says what is missing, and what still runs."""


class NotRunError(DepthError):
    """This depth was not tried, since this machine or its user cannot; says what is missing."""


def must_run(depth: Depth) -> None:
    """Raise `NotRunError` where this machine cannot, before anything is begun."""
    if depth != "pods":
        return
    from tools.kubernetes import node_probe
    from tools.kubernetes.containers import Missing

    try:
        node_probe.ready_to_run()
    except Missing as problem:
        raise NotRunError(str(problem)) from problem


class DepthSetup:
    """What stands behind a rehearsal of another depth than `quick`. `tell` is given what happens there, in lines.

    `ends` are the errors that end a rehearsal as failed.
    """

    ends: tuple[type[Exception], ...] = ()

    def __init__(self, depth: Depth, workspace: Workspace, settings: Settings, tell: Callable[[str], None]) -> None:
        self._pods = depth == "pods"
        self._workspace = workspace
        self._folder = workspace.folder / "kubernetes"
        self._settings = settings
        self._tell = tell
        self._before: frozenset[str] = frozenset()

    def begin(self, until: ExitStack, engine: Engine) -> ClusterPhases:
        """Set it up while the engine begins its stack; it stands until the end of `until`. Raises `DepthError`."""
        from rehearsal.cluster.environment import Environment, EnvironmentStart
        from rehearsal.cluster.phases import ClusterPhases, PhaseError
        from tools.kubernetes.builds import BuildError
        from tools.kubernetes.containers import Missing

        phases, scale = ClusterPhases, None
        self.ends = (PhaseError,)
        if self._pods:
            from rehearsal.cluster.pod_phases import PodPhases, scale_in
            from tools.kubernetes.node_traces import traces
            from tools.kubernetes.port_forward import ForwardError

            self._before = traces(self._folder)
            self.ends = (PhaseError, ForwardError)
            phases, scale = PodPhases, scale_in(self._workspace.folder / "shared")
        environment = Environment(self._folder, engine.cloud_state, self._settings, self._tell, scale=scale)
        ready = until.enter_context(EnvironmentStart(environment))
        engine.init()
        try:
            return phases(ready())
        except (BuildError, Missing) as problem:
            raise DepthError(str(problem)) from problem

    def traces(self) -> list[str]:
        """What is left on this machine of real nodes that have ended, a line each."""
        from tools.kubernetes.node_traces import traces

        return sorted(traces(self._folder) - self._before)
