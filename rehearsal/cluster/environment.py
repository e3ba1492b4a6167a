"""Environment of depths `cluster` and `pods`: the control plane, the cloud controllers, and the timeline.

The API server runs from the start, but the provider reaches it only while the simulated cluster exists in the cloud
state. When the cluster is deleted, the cloud controllers delete every object in the API server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from infra.settings import CloudSettings, Settings
from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes.connection import CLUSTER, EKS_CLUSTER
from rehearsal.clouds.state import State
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.cluster.objects import ours
from rehearsal.cluster.provider import SETTING
from rehearsal.cluster.real_nodes import RealNodes, stubs
from rehearsal.cluster.scaled import CHANGES, STAYED, to_setting
from rehearsal.cluster.scaling import Scale
from rehearsal.cluster.timeline import ReportLine, Timeline
from tools.kubernetes.api import Api, ApiError
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.node import Cluster

_LOOK_S = 0.2
_EMPTY_WITHIN_S = 60.0
# Kubelets first stop their pods, and all nodes share the processors.
_EMPTY_OF_PODS_WITHIN_S = 300.0
_STOOD_IN = (
    "Simulated are the clouds' own controllers{also}: autoscaler, devices, networks, queued "
    "provisioning{more} (rehearsal/cluster/controllers, with sources). Nothing that they decide is proof."
)

_NODES = (
    "kubelet, kube-proxy and containerd of every node, CoreDNS, and Ray in the pods with its autoscaler and dashboard."
)
_NUMBERS = (
    "Nodes share this machine's processors, memory and kernel; GPUs and NICs are counts without devices; "
    "NetworkPolicy is stored and not enforced."
)


class Environment:
    """Control plane that holds the objects of the simulated cluster, for the duration of a `with` block.

    `plane` is the control plane, `controllers` replaces the clouds' own controllers, `timeline` records events. With a
    `scale`, nodes are real and manifests are scaled to this machine; otherwise kwok simulates the nodes.

    Raises:
        BuildError: a program of Kubernetes is missing and cannot be built.
        Missing: this machine cannot run real nodes.
    """

    plane: ControlPlane
    controllers: CloudControllers
    timeline: Timeline

    def __init__(
        self, folder: Path, state: State, settings: Settings, report: ReportLine, *, scale: Scale | None = None
    ) -> None:
        self._folder = folder
        self._scale = scale
        self._state = state
        self._settings = settings
        self._report = report
        self._stack = ExitStack()

    def __enter__(self) -> Environment:
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

    @property
    def api(self) -> Api:
        """Client of the API server."""
        return self.plane.api

    @property
    def notes(self) -> tuple[str, ...]:
        """What was real and what was simulated, for the report."""
        version = self.api.request("GET", "/version")["gitVersion"].removeprefix("v")
        behind = "".join(f", the controller behind release {release}" for release in self.controllers.real)
        real = f"real are API server, scheduler and controller manager of Kubernetes {version}{behind}"
        if self._scale is None:
            return (
                f"Depth cluster: {real}.",
                "kwok simulates the nodes: they are ready at once, and their pods run no containers.",
                _STOOD_IN.format(also=" and for Ray", more=", dashboard"),
            )
        return (
            f"Depth pods: {real}; {_NODES}",
            _NUMBERS,
            *(f"Image {name} is replaced by one of this environment." for name in self._images),
            *(f"Image {name} is replaced by a stub." for name in self._stubs),
            _STOOD_IN.format(also="", more=""),
            *(f"scaled: {change}" for change in self._changes()),
            f"Not scaled: {STAYED}. The engine's inputs and state are unscaled.",
        )

    def left(self, within_s: float = 0.0) -> list[str]:
        """Return the provider's objects that still exist, as "Kind namespace/name".

        If the simulated cluster is deleted, wait until the cloud controllers have deleted all of them. Otherwise wait
        `within_s` for pending deletions.
        """
        empty_s = _EMPTY_WITHIN_S if self._scale is None else _EMPTY_OF_PODS_WITHIN_S
        deadline = time.monotonic() + (within_s if self._stands() else empty_s)
        while True:
            self.check()
            over = time.monotonic() > deadline
            try:
                found = [_called(live) for live in everything(self.api) if ours(live)]
            except ApiError:
                # A controller that stops deletes its CRDs, and before them the webhook that converts them.
                if over:
                    raise
            else:
                if not found or over:
                    return found
            time.sleep(_LOOK_S)

    def check(self) -> None:
        """Raise the error of a control plane program or of a cloud controller."""
        self.controllers.check()

    def _changes(self) -> list[str]:
        with self._state.transaction() as view:
            found: list[str] = view.setting(CHANGES, [])
        return found

    def _begin(self) -> None:
        self.timeline = Timeline(self._report)
        cluster = None
        if self._scale is None:
            self.plane = self._stack.enter_context(ControlPlane(self._folder, say=self._report))
        else:
            cluster = self._stack.enter_context(self._cluster())
            self.plane = cluster.plane
        # The file holds the token while it is valid.
        self._state.path.chmod(0o600)
        self._stack.callback(self._set, None)
        there: Json = {"url": self.plane.url, "token": self.plane.token, "authority": str(self.plane.authority)}
        self._set(there | ({} if self._scale is None else {"scale": to_setting(self._scale)}))
        machines = None
        if cluster is None:
            self.plane.start_kwok()
        else:
            machines = RealNodes(cluster)
            self._stack.callback(machines.close)
        controllers = CloudControllers(
            self.plane,
            self._state,
            self._settings,
            self.timeline.said,
            machines=machines,
            operators=cluster.operators if cluster else None,
        )
        self.controllers = self._stack.enter_context(controllers)
        self._stack.enter_context(self.timeline.watching(self.plane.api))

    def _cluster(self) -> Cluster:
        """Return a cluster for real nodes, with the images of the stack's objects."""
        self._stubs = stubs(self._settings)
        self._images = [self._settings.ray.image] if isinstance(self._settings, CloudSettings) else []
        return Cluster(self._folder, nodes={}, real_images=self._images, stubs=self._stubs, say=self._report)

    def _set(self, there: Json | None) -> None:
        with self._state.transaction() as view:
            view.set(SETTING, there)

    def _stands(self) -> bool:
        with self._state.transaction() as view:
            return any(True for type_ in (CLUSTER, EKS_CLUSTER) for _ in view.all(type_))


class EnvironmentStart:
    """Starts an environment in the background."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._future: Future[Environment] = self._pool.submit(environment.__enter__)

    def __enter__(self) -> Callable[[], Environment]:
        """Return a function that waits for the environment and returns it."""
        return self._future.result

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if self._future.exception() is None:
            self._environment.__exit__(type_, error, trace)


def everything(api: Api) -> Iterator[Json]:
    """Yield every object that can be deleted, each in one version."""
    seen: set[str] = set()
    for kind in api.kinds():
        if not {"list", "delete"} <= set(kind.verbs):
            continue
        try:
            found = api.list(kind.api_version, kind.kind)
        except ApiError as problem:
            if problem.status == 404:
                # Its CRD was deleted in the meantime.
                continue
            raise
        for live in found:
            if live["metadata"]["uid"] not in seen:
                seen.add(live["metadata"]["uid"])
                yield live


def _called(live: Json) -> str:
    metadata = live["metadata"]
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{live['kind']} {where}{metadata['name']}"
