"""What the landlord tells: one line each for people, and typed for those who compare."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened `at_s` seconds after the landlord began."""

    at_s: float = 0.0

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, kw_only=True)
class ClusterOpened(Event):
    """The control plane of a simulated cluster answers, with what its cloud installs: kinds, and kinds of objects."""

    cluster: str
    brings: tuple[str, ...]

    def __str__(self) -> str:
        return f"cluster {self.cluster} is there and brings {', '.join(self.brings)}"


@dataclass(frozen=True, kw_only=True)
class ClusterEmptied(Event):
    """A simulated cluster was deleted, and all of its objects with it. `forced` had finalizers that nobody served."""

    cluster: str
    objects: int
    forced: tuple[str, ...]

    def __str__(self) -> str:
        held = f", {len(self.forced)} with finalizers that nobody serves any more" if self.forced else ""
        return f"cluster {self.cluster} is deleted; {self.objects} objects went with it{held}"


@dataclass(frozen=True, kw_only=True)
class ControllerReady(Event):
    """A Helm release is served: by the real controller, or by a part of the landlord."""

    release: str
    chart: str
    real: bool
    after_s: float

    def __str__(self) -> str:
        how = f"the real controller runs after {self.after_s:.1f} s" if self.real else "stood in for"
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
    """A Helm release is gone, and what served it as well."""

    release: str

    def __str__(self) -> str:
        return f"release {self.release}: gone"


@dataclass(frozen=True, kw_only=True)
class NodesWanted(Event):
    """Pods wait, and a pool is to grow for them."""

    pool: str
    count: int
    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.pods)} pods wait; pool {self.pool} is to get {_nodes(self.count)}"


@dataclass(frozen=True, kw_only=True)
class NodeGranted(Event):
    """A node came. `after_s`: since it was wanted, 0 for those that a pool begins with."""

    node: str
    pool: str
    after_s: float

    def __str__(self) -> str:
        return f"node {self.node} granted to pool {self.pool} after {self.after_s:.1f} s"


@dataclass(frozen=True, kw_only=True)
class NodeJoined(Event):
    """The kubelet of a real node has signed in, and says that it is ready; so long after the node was granted."""

    node: str
    after_s: float

    def __str__(self) -> str:
        return f"node {self.node} is a real one and ready, {self.after_s:.1f} s after it was granted"


@dataclass(frozen=True, kw_only=True)
class MachineFull(Event):
    """This machine is to bear no more real nodes."""

    pool: str
    count: int
    room: int

    def __str__(self) -> str:
        return f"this machine has room for {_nodes(self.room)} more: pool {self.pool} does not get {_nodes(self.count)}"


@dataclass(frozen=True, kw_only=True)
class Scaled(Event):
    """A manifest was changed so that this machine can run it."""

    change: str

    def __str__(self) -> str:
        return f"scaled: {self.change}"


@dataclass(frozen=True, kw_only=True)
class NodeRemoved(Event):
    """A node went."""

    node: str
    pool: str
    why: str

    def __str__(self) -> str:
        return f"node {self.node} taken from pool {self.pool}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class OutOfStock(Event):
    """The cloud has no machine for a pool now; whoever may go elsewhere does."""

    pool: str
    count: int

    def __str__(self) -> str:
        return f"out of stock: pool {self.pool} does not get {_nodes(self.count)}"


@dataclass(frozen=True, kw_only=True)
class NetworkReady(Event):
    """Pods may name a Network from now on; None as a reason where it is ready, else why it is not."""

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
    """A job of Ray got another status in the dashboard's stand-in."""

    cluster: str
    job: str
    status: str

    def __str__(self) -> str:
        return f"Ray job {self.job} on {self.cluster}: {self.status}"


@dataclass(frozen=True, kw_only=True)
class ReconcileFailed(Event):
    """A part of the landlord cannot do its work; a rehearsal that goes on would say nothing."""

    part: str
    why: str

    def __str__(self) -> str:
        return f"the landlord's {self.part} fails: {self.why}"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
