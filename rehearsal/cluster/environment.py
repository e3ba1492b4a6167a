"""What stands behind a rehearsal of depth `cluster` or `pods`: the control plane, the landlord, and the time line.

The API server is there from the beginning, but nobody reaches it before the simulated cluster exists: the provider asks
the world. When that is deleted, the landlord lets everything in it go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from infra.settings import Settings
from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes.connection import CLUSTER, EKS_CLUSTER
from rehearsal.clouds.state import State
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.cluster.objects import ours
from rehearsal.cluster.provider import SETTING
from rehearsal.cluster.real_nodes import RealNodes, stand_ins
from rehearsal.cluster.scaled import CHANGES, STAYED, to_setting
from rehearsal.cluster.timeline import Tell, Timeline
from tools.kubernetes.api import Api, ApiError
from tools.kubernetes.control_plane import ControlPlane
from tools.kubernetes.node_cluster import Cluster
from tools.kubernetes.scaling import Scale

_LOOK_S = 0.2
_EMPTY_WITHIN_S = 60.0
# Kubelets end their pods first, on processors that all nodes share.
_EMPTY_OF_PODS_WITHIN_S = 300.0
_STOOD_IN = (
    "The landlord stands in for the clouds' own controllers{also}: autoscaler, devices, networks, queued "
    "provisioning{more} (rehearsal/cluster/controllers, with sources). Nothing that it decides is proof."
)

_NODES = (
    "kubelet, kube-proxy and containerd of every node, CoreDNS, and Ray in the pods with its autoscaler and dashboard."
)
_NUMBERS = (
    "Nodes share this machine's processors, memory and kernel; GPUs and NICs are numbers without a device; "
    "NetworkPolicy is stored and not enforced."
)


class Environment:
    """From `with` to the end of the block: a control plane whose objects are those of the world's simulated cluster.

    `plane` is the control plane, `landlord` plays the clouds' own controllers, `timeline` tells what happens in it.
    With a `scale` its nodes are real ones, and manifests are scaled to this machine; otherwise nodes are kwok's.
    Raises `BuildError` where a program of Kubernetes is missing and cannot be built, `Missing` where real nodes cannot
    run.
    """

    plane: ControlPlane
    controllers: CloudControllers
    timeline: Timeline

    def __init__(
        self, folder: Path, state: State, settings: Settings, tell: Tell, *, scale: Scale | None = None
    ) -> None:
        self._folder = folder
        self._scale = scale
        self._state = state
        self._settings = settings
        self._tell = tell
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
        """A client of the API server."""
        return self.plane.api

    @property
    def notes(self) -> tuple[str, ...]:
        """What was real and what stood in, for the report."""
        version = self.api.request("GET", "/version")["gitVersion"].removeprefix("v")
        behind = "".join(f", the controller behind release {release}" for release in self.controllers.real)
        real = f"real are API server, scheduler and controller manager of Kubernetes {version}{behind}"
        if self._scale is None:
            return (
                f"Depth cluster: {real}.",
                "Nodes are kwok's: they are ready at once, and no container runs in their pods.",
                _STOOD_IN.format(also=" and for Ray", more=", dashboard"),
            )
        return (
            f"Depth pods: {real}; {_NODES}",
            _NUMBERS,
            *(f"An image of this environment answers to {name}." for name in self._images),
            *(f"The image {name} is stood in for." for name in self._stood_in),
            _STOOD_IN.format(also="", more=""),
            *(f"scaled: {change}" for change in self._changes()),
            f"Not scaled: {STAYED}. The engine's inputs and state have what the program wrote.",
        )

    def left(self, within_s: float = 0.0) -> list[str]:
        """What the provider made and is still there, as "Kind namespace/name".

        Where the simulated cluster is deleted, the landlord lets all of it go; that is waited for. Otherwise, what is
        still going by itself is waited for `within_s`.
        """
        empty_s = _EMPTY_WITHIN_S if self._scale is None else _EMPTY_OF_PODS_WITHIN_S
        deadline = time.monotonic() + (within_s if self._stands() else empty_s)
        while True:
            self.check()
            over = time.monotonic() > deadline
            try:
                found = [_called(live) for live in everything(self.api) if ours(live)]
            except ApiError:
                # A controller that ends takes its definitions along, and before them the webhook that converts them.
                if over:
                    raise
            else:
                if not found or over:
                    return found
            time.sleep(_LOOK_S)

    def check(self) -> None:
        """Raise what ended a program of the control plane, or a part of the landlord."""
        self.controllers.check()

    def _changes(self) -> list[str]:
        with self._state.transaction() as view:
            found: list[str] = view.setting(CHANGES, [])
        return found

    def _begin(self) -> None:
        self.timeline = Timeline(self._tell)
        cluster = None
        if self._scale is None:
            self.plane = self._stack.enter_context(ControlPlane(self._folder, say=self._tell))
        else:
            cluster = self._stack.enter_context(self._cluster())
            self.plane = cluster.plane
        # The token is in it, for as long as it is of use.
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
            self.plane, self._state, self._settings, self.timeline.said, machines=machines, operators=cluster
        )
        self.controllers = self._stack.enter_context(controllers)
        self._stack.enter_context(self.timeline.watching(self.plane.api))

    def _cluster(self) -> Cluster:
        """Real nodes to come, with the images that the stack's own objects name."""
        others = stand_ins(self._settings)
        self._images = [self._settings.ray.image] if self._settings.ray.image else []
        self._stood_in = (*others.sleeping, *others.acting)
        return Cluster(
            self._folder,
            nodes={},
            real_images=self._images,
            stand_ins=others.sleeping,
            acting=others.acting,
            say=self._tell,
        )

    def _set(self, there: Json | None) -> None:
        with self._state.transaction() as view:
            view.set(SETTING, there)

    def _stands(self) -> bool:
        with self._state.transaction() as view:
            return any(True for type_ in (CLUSTER, EKS_CLUSTER) for _ in view.all(type_))


class EnvironmentStart:
    """A stage that is set up while something else is done."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._future: Future[Environment] = self._pool.submit(environment.__enter__)

    def __enter__(self) -> Callable[[], Environment]:
        """What waits for the stage and returns it."""
        return self._future.result

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if self._future.exception() is None:
            self._environment.__exit__(type_, error, trace)


def everything(api: Api) -> Iterator[Json]:
    """Every object that somebody can delete, each in one of its versions."""
    seen: set[str] = set()
    for kind in api.kinds():
        if not {"list", "delete"} <= set(kind.verbs):
            continue
        try:
            found = api.list(kind.api_version, kind.kind)
        except ApiError as problem:
            if problem.status == 404:
                # Its definition has just gone.
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
