"""Events of the cloud controllers, with one line of text each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXTS: Mapping[str, str] = {
    # The control plane of a simulated cluster answers and has the kinds and objects that its cloud installs.
    "ClusterOpened": "cluster {cluster} is ready with {objects} objects",
    # A simulated cluster was deleted with all of its objects; `forced` had finalizers without a controller.
    "ClusterEmptied": "cluster {cluster} is deleted with {objects} objects, {forced} of them with finalizers",
    # A Helm release is served: by the real controller, or (`real` is false) by the cloud controllers.
    "ControllerReady": "release {release}: {how}",
    "ControllerFailed": "release {release}: its controller did not start: {why}",
    "ControllerStopped": "release {release}: deleted",
    "NodesWanted": "{pending} pods pending; pool {pool} grows by {count} nodes",
    # `after_s` is counted from the request, 0 for the initial nodes of a pool.
    "NodeGranted": "node {node} granted to pool {pool} after {after_s:.1f} s",
    "NodeJoined": "node {node} is ready (real), {after_s:.1f} s after it was granted",
    "NodeRemoved": "node {node} removed from pool {pool}: {why}",
    "MachineFull": "this machine has room for {room} more nodes: pool {pool} does not get {count} nodes",
    "OutOfStock": "out of stock: pool {pool} does not get {count} nodes; other pools may serve the pods",
    "Scaled": "scaled: {change}",
    "NetworkReady": "network {network} is {state}",
    # A ProvisioningRequest got a condition: Accepted, Provisioned, Failed or BookingExpired.
    "RequestChanged": "ProvisioningRequest {request} ({nodes} nodes of pool {pool}): {condition}. {message}",
    "JobChanged": "Ray job {job} on {cluster}: {status}",
    # A reconciler is broken, so the rehearsal cannot continue.
    "ReconcileFailed": "cloud controller {part} fails: {why}",
}


@dataclass(frozen=True)
class Event:
    """Event of a kind of `TEXTS`, at `at_s` seconds after the start of the controllers; its fields are attributes."""

    kind: str
    fields: Mapping[str, Any]
    at_s: float = 0.0

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        return TEXTS[self.kind].format(**self.fields)
