"""Environment of depths `cluster` and `pods`: the control plane, the cloud controllers, and the timeline.

The API server runs from the start, but the provider reaches it only while the simulated cluster exists in the cloud
state. When the cluster is deleted, the cloud controllers delete every object in the API server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.settings import CloudSettings, Settings
from rehearsal.clouds.kubernetes.connection import CLUSTER, EKS_CLUSTER
from rehearsal.cluster.controllers.cleanup import present, written
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.cluster.objects import ours
from rehearsal.cluster.provider import SETTING
from rehearsal.cluster.real_nodes import RealNodes, stubs
from rehearsal.cluster.scaling import CHANGES, STAYED, Scale
from rehearsal.cluster.timeline import ReportLine, Timeline
from rehearsal.engine.kind import Json
from rehearsal.engine.state import State
from tools.kubernetes.api import Api, ApiError
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.node import Cluster

_LOOK_S = 0.2
_EMPTY_WITHIN_S = 60.0
# Kubelets first stop their pods, and all nodes share the processors.
_EMPTY_OF_PODS_WITHIN_S = 300.0
_STOOD_IN = (
    "The clouds' controllers (autoscaler, devices, networks, queued provisioning){more} are simulated "
    "(rehearsal/cluster/controllers, with sources). Their decisions prove nothing."
)

_NODES = (
    "kubelet, kube-proxy and containerd of every node, CoreDNS, and Ray in the pods with its autoscaler and dashboard"
)
_NUMBERS = (
    "Nodes share this machine's processors, memory and kernel; GPUs and NICs are counts without devices; "
    "NetworkPolicy is stored but not enforced."
)


@dataclass(frozen=True)
class Environment:
    """Control plane that holds the objects of the simulated cluster, while `starting` has not ended.

    `controllers` replaces the clouds' controllers, `timeline` records events. With a `scale`, nodes are real and
    manifests are scaled to this machine; otherwise kwok simulates the nodes. `replaced` lists the replaced images.
    """

    plane: ControlPlane
    state: State
    controllers: CloudControllers
    timeline: Timeline
    scale: Scale | None
    replaced: tuple[str, ...]

    @property
    def api(self) -> Api:
        """Client of the API server."""
        return self.plane.api

    @property
    def notes(self) -> tuple[str, ...]:
        """The real and the simulated parts, for the report."""
        version = self.api.request("GET", "/version")["gitVersion"].removeprefix("v")
        behind = "".join(f", the controller behind release {release}" for release in self.controllers.real)
        real = f"API server, scheduler and controller manager of Kubernetes {version}{behind}"
        if self.scale is None:
            return (
                f"Depth cluster: {real} are real.",
                "kwok simulates the nodes: they are ready at once, and their pods run no containers.",
                _STOOD_IN.format(more=" and Ray's dashboard"),
            )
        with self.state.transaction() as view:
            changes: list[str] = view.setting(CHANGES, [])
        return (
            f"Depth pods: {real}; {_NODES} are real.",
            _NUMBERS,
            *self.replaced,
            _STOOD_IN.format(more=""),
            *(f"scaled: {change}" for change in changes),
            f"Not scaled: {STAYED}. The engine's inputs and state are unscaled.",
        )

    def left(self, within_s: float = 0.0) -> list[str]:
        """Return the provider's objects that still exist, as "Kind namespace/name".

        If the simulated cluster is deleted, wait until the cloud controllers have deleted all of them. Otherwise wait
        `within_s` for pending deletions.
        """
        with self.state.transaction() as view:
            stands = any(True for type_ in (CLUSTER, EKS_CLUSTER) for _ in view.all(type_))
        empty_s = _EMPTY_WITHIN_S if self.scale is None else _EMPTY_OF_PODS_WITHIN_S
        deadline = time.monotonic() + (within_s if stands else empty_s)
        while True:
            self.controllers.check()
            over = time.monotonic() > deadline
            try:
                found = [written(name) for name, (_, live) in present(self.api).items() if ours(live)]
            except ApiError:
                # A controller that stops deletes its CRDs, and before them the webhook that converts them.
                if over:
                    raise
            else:
                if not found or over:
                    return found
            time.sleep(_LOOK_S)


@contextmanager
def starting(
    folder: Path, state: State, settings: Settings, report: ReportLine, *, scale: Scale | None = None
) -> Iterator[Callable[[], Environment]]:
    """Start an environment in the background; yield a function that waits for it and returns it. Stop it at the end.

    That function raises `BuildError` if a program of Kubernetes is missing and cannot be built, and `Missing` if this
    machine cannot run real nodes.
    """
    with ExitStack() as until, ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(_start, until, folder, state, settings, report, scale).result


def _start(
    until: ExitStack, folder: Path, state: State, settings: Settings, report: ReportLine, scale: Scale | None
) -> Environment:
    timeline = Timeline(report)
    replaced: tuple[str, ...] = ()
    cluster = None
    if scale is None:
        plane = until.enter_context(ControlPlane(folder, say=report))
    else:
        images = [settings.ray.image] if isinstance(settings, CloudSettings) else []
        replacements = stubs(settings)
        cluster = until.enter_context(Cluster(folder, nodes={}, real_images=images, stubs=replacements, say=report))
        plane = cluster.plane
        replaced = (
            *(f"Image {name} is replaced by one of this environment." for name in images),
            *(f"Image {name} is replaced by a stub." for name in replacements),
        )
    # The file holds the token while it is valid.
    state.path.chmod(0o600)
    until.callback(_set, state, None)
    there: Json = {"url": plane.url, "token": plane.token, "authority": str(plane.authority)}
    _set(state, there | ({} if scale is None else {"scale": scale.setting}))
    machines = None
    if cluster is None:
        plane.start_kwok()
    else:
        machines = RealNodes(cluster)
        until.callback(machines.close)
    operators = cluster.operators if cluster else None
    controllers = until.enter_context(
        CloudControllers(plane, state, timeline.said, machines=machines, operators=operators)
    )
    until.enter_context(timeline.watching(plane.api))
    return Environment(plane, state, controllers, timeline, scale, replaced)


def _set(state: State, there: Json | None) -> None:
    with state.transaction() as view:
        view.set(SETTING, there)
