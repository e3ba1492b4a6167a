"""Depths of a rehearsal: their real parts and their setup.

Imports for other depths are in functions, so that depth `quick` starts without them.
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
    """This machine cannot rehearse at this depth. The message names the missing part and the depths that run."""


class NotRunError(DepthError):
    """This machine or its user cannot run this depth. The message names the missing requirement."""


def must_run(depth: Depth) -> None:
    """Raise `NotRunError` if this machine cannot run the depth. Nothing has started at that point."""
    if depth != "pods":
        return
    from tools.kubernetes import node_probe
    from tools.kubernetes.containers import Missing

    try:
        node_probe.ready_to_run()
    except Missing as problem:
        raise NotRunError(str(problem)) from problem


class DepthSetup:
    """Environment of a rehearsal at a depth other than `quick`.

    `ends` lists the errors that end a rehearsal as failed. `report` receives one line per event in the cluster.
    """

    ends: tuple[type[Exception], ...] = ()

    def __init__(self, depth: Depth, workspace: Workspace, settings: Settings, report: Callable[[str], None]) -> None:
        self._pods = depth == "pods"
        self._workspace = workspace
        self._folder = workspace.folder / "kubernetes"
        self._settings = settings
        self._report = report
        self._before: frozenset[str] = frozenset()

    def begin(self, until: ExitStack, engine: Engine) -> ClusterPhases:
        """Start the environment while the engine creates its stack; `until` stops it.

        Raises:
            DepthError: a program of Kubernetes is missing and cannot be built.
        """
        from rehearsal.cluster.environment import Environment, EnvironmentStart
        from rehearsal.cluster.phases import ClusterPhases, PhaseError
        from tools.kubernetes.builds import BuildError
        from tools.kubernetes.containers import Missing

        phases, scale = ClusterPhases, None
        self.ends = (PhaseError,)
        if self._pods:
            from rehearsal.cluster.pod_phases import PodPhases, scale_in
            from rehearsal.cluster.traces import traces
            from tools.kubernetes.kubectl import ForwardError

            self._before = traces(self._folder)
            self.ends = (PhaseError, ForwardError)
            phases, scale = PodPhases, scale_in(self._workspace.folder / "shared")
        environment = Environment(self._folder, engine.cloud_state, self._settings, self._report, scale=scale)
        ready = until.enter_context(EnvironmentStart(environment))
        engine.init()
        try:
            return phases(ready())
        except (BuildError, Missing) as problem:
            raise DepthError(str(problem)) from problem

    def traces(self) -> list[str]:
        """Return the host resources that stopped nodes left behind, one line each."""
        from rehearsal.cluster.traces import traces

        return sorted(traces(self._folder) - self._before)
