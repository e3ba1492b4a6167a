"""Depths of a rehearsal: their real parts and their setup.

Imports for other depths are in functions, so that depth `quick` starts without them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from infra.settings import Settings
from rehearsal.engine.commands import Engine

if TYPE_CHECKING:
    from rehearsal.cluster.environment import Environment
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


def begin(
    depth: Depth, until: ExitStack, engine: Engine, settings: Settings, report: Callable[[str], None]
) -> ClusterPhases:
    """Start the environment of a depth other than `quick` while the engine creates its stack; `until` stops it.

    `report` receives one line per event in the cluster.

    Raises:
        DepthError: a program of Kubernetes is missing and cannot be built.
    """
    from rehearsal.cluster.environment import starting
    from rehearsal.cluster.phases import ClusterPhases
    from tools.kubernetes.builds import BuildError
    from tools.kubernetes.containers import Missing

    folder = engine.workspace.folder
    phases: Callable[[Environment], ClusterPhases] = ClusterPhases
    scale = None
    if depth == "pods":
        from rehearsal.cluster.pod_phases import PodPhases, scale_in
        from rehearsal.cluster.traces import new_traces

        phases = partial(PodPhases, traces=new_traces(folder / "kubernetes"))
        scale = scale_in(folder / "shared")
    ready = until.enter_context(starting(folder / "kubernetes", engine.cloud_state, settings, report, scale=scale))
    engine.init()
    try:
        return phases(ready())
    except (BuildError, Missing) as problem:
        raise DepthError(str(problem)) from problem
