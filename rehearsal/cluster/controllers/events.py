"""Events of the cloud controllers, with one line of text each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Event:
    """Event at `at_s` seconds after the start of the controllers."""

    at_s: float = 0.0

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, kw_only=True)
class ClusterOpened(Event):
    """The control plane of a simulated cluster answers and has the kinds and objects that its cloud installs."""

    cluster: str
    brings: tuple[str, ...]

    def __str__(self) -> str:
        return f"cluster {self.cluster} is ready with {', '.join(self.brings)}"


@dataclass(frozen=True, kw_only=True)
class ClusterEmptied(Event):
    """A simulated cluster was deleted with all of its objects. `forced` had finalizers without a controller."""

    cluster: str
    objects: int
    forced: tuple[str, ...]

    def __str__(self) -> str:
        held = f", {len(self.forced)} with finalizers that no controller serves anymore" if self.forced else ""
        return f"cluster {self.cluster} is deleted with {self.objects} objects{held}"


@dataclass(frozen=True, kw_only=True)
class ControllerReady(Event):
    """A Helm release is served: by the real controller, or by the cloud controllers."""

    release: str
    chart: str
    real: bool
    after_s: float

    def __str__(self) -> str:
        how = f"the real controller runs after {self.after_s:.1f} s" if self.real else "simulated"
        return f"release {self.release}: {how}"


@dataclass(frozen=True, kw_only=True)
class ControllerFailed(Event):
    """The real controller of a Helm release did not start."""

    release: str
    why: str

    def __str__(self) -> str:
        return f"release {self.release}: its controller did not start: {self.why}"


@dataclass(frozen=True, kw_only=True)
class ControllerStopped(Event):
    """A Helm release was deleted, and its controller stopped."""

    release: str

    def __str__(self) -> str:
        return f"release {self.release}: deleted"


@dataclass(frozen=True, kw_only=True)
class NodesWanted(Event):
    """Pods are pending, and a pool grows for them."""

    pool: str
    count: int
    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.pods)} pods pending; pool {self.pool} grows by {_nodes(self.count)}"


@dataclass(frozen=True, kw_only=True)
class NodeGranted(Event):
    """A node was created. `after_s`: seconds since the request, 0 for the initial nodes of a pool."""

    node: str
    pool: str
    after_s: float

    def __str__(self) -> str:
        return f"node {self.node} granted to pool {self.pool} after {self.after_s:.1f} s"


@dataclass(frozen=True, kw_only=True)
class NodeJoined(Event):
    """The kubelet of a real node reports ready, `after_s` seconds after the node was granted."""

    node: str
    after_s: float

    def __str__(self) -> str:
        return f"node {self.node} is ready (real), {self.after_s:.1f} s after it was granted"


@dataclass(frozen=True, kw_only=True)
class MachineFull(Event):
    """This machine cannot run more real nodes."""

    pool: str
    count: int
    room: int

    def __str__(self) -> str:
        return f"this machine has room for {_nodes(self.room)} more: pool {self.pool} does not get {_nodes(self.count)}"


@dataclass(frozen=True, kw_only=True)
class Scaled(Event):
    """A manifest was scaled for this machine."""

    change: str

    def __str__(self) -> str:
        return f"scaled: {self.change}"


@dataclass(frozen=True, kw_only=True)
class NodeRemoved(Event):
    """A node was removed."""

    node: str
    pool: str
    why: str

    def __str__(self) -> str:
        return f"node {self.node} removed from pool {self.pool}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class OutOfStock(Event):
    """The cloud has no machine for a pool now; other pools may serve the pods."""

    pool: str
    count: int

    def __str__(self) -> str:
        return f"out of stock: pool {self.pool} does not get {_nodes(self.count)}"


@dataclass(frozen=True, kw_only=True)
class NetworkReady(Event):
    """The readiness of a Network changed. `problem` is None if it is ready, else the reason."""

    network: str
    problem: str | None

    def __str__(self) -> str:
        return f"network {self.network} is {'ready' if self.problem is None else f'not ready: {self.problem}'}"


@dataclass(frozen=True, kw_only=True)
class RequestChanged(Event):
    """A ProvisioningRequest got a condition: Accepted, Provisioned, Failed or BookingExpired."""

    request: str
    condition: str
    pool: str
    nodes: int
    message: str

    def __str__(self) -> str:
        where = f" ({_nodes(self.nodes)} of pool {self.pool})" if self.pool else ""
        return f"ProvisioningRequest {self.request}{where}: {self.condition}. {self.message}"


@dataclass(frozen=True, kw_only=True)
class JobChanged(Event):
    """A Ray job changed its status in the stub of the dashboard."""

    cluster: str
    job: str
    status: str

    def __str__(self) -> str:
        return f"Ray job {self.job} on {self.cluster}: {self.status}"


@dataclass(frozen=True, kw_only=True)
class ReconcileFailed(Event):
    """A reconciler is broken, so the rehearsal cannot continue."""

    part: str
    why: str

    def __str__(self) -> str:
        return f"cloud controller {self.part} fails: {self.why}"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
