"""Cases of refusals by the simulated Google Cloud: changes that invalidate a valid request, and their cloud states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rehearsal.clouds.gcp import tokens
from rehearsal.clouds.kind import Verb
from rehearsal.clouds.state import View
from tests.rehearsal import gcp_supporting as land
from tests.rehearsal.supporting import GONE

N, S, F, R, NAT = tokens.NETWORK, tokens.SUBNETWORK, tokens.FIREWALL, tokens.ROUTER, tokens.NAT
ACCOUNT, PROJECT, BUCKET = tokens.ACCOUNT, tokens.PROJECT_MEMBER, tokens.BUCKET_MEMBER
C, P = tokens.CLUSTER, tokens.NODE_POOL

QUEUED: dict[str, Any] = {"queuedProvisioning": {"enabled": True}}
PLAIN: dict[str, Any] = {
    "nodeConfig.flexStart": GONE,
    "nodeConfig.maxRunDuration": GONE,
    "management": {"autoRepair": True, "autoUpgrade": True},
}
"""Changes that turn the valid pool, a flex-start one, into an on-demand pool."""
COMPACT: dict[str, Any] = {"placementPolicy": {"type": "COMPACT"}}
AUTO: dict[str, Any] = {"networkConfig": {"acceleratorNetworkProfile": "auto"}}
NO_NETWORKS: dict[str, Any] = {"networkConfig": GONE}
RESERVED: dict[str, Any] = {
    "nodeConfig.reservationAffinity": {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["block-1"],
    }
}


def nothing(_state: View) -> None:
    """Use the supporting resources unchanged."""


def quota(limits: Mapping[str, int]) -> Callable[[View], None]:
    return lambda state: state.set("quota", dict(limits))


def cluster(changes: Mapping[str, Any]) -> Callable[[View], None]:
    """Change the pools' cluster."""

    def prepare(state: View) -> None:
        live = state.get(C, land.CLUSTER_ID)
        assert live is not None
        state.put(C, land.CLUSTER_ID, land.changed(live, changes))

    return prepare


def also(type_: str, inputs: dict[str, Any]) -> Callable[[View], None]:
    def prepare(state: View) -> None:
        land.make(state, type_, inputs)

    return prepare


def router_on_rdma(state: View) -> None:
    land.make(state, R, {"name": "odd", "network": land.RDMA, "region": land.REGION})


def no_cluster(state: View) -> None:
    state.remove(C, land.CLUSTER_ID)


def gpu_pool(state: View) -> None:
    land.make(state, P, {**land.POOL, "name": "gpu"})


@dataclass(frozen=True, kw_only=True)
class Case:
    """`changes` invalidate the valid request of a kind, in the cloud state of `prepare`; `says` is a pattern."""

    rule: str
    kind: str
    changes: Mapping[str, Any]
    says: str
    verb: Verb = "create"
    prepare: Callable[[View], None] = nothing
    right: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=lambda: land.CONFIG)

    @property
    def name(self) -> str:
        """Return the test id."""
        return f"{self.kind.rpartition(':')[2]}-{self.rule}"


def case(rule: str, kind: str, changes: Mapping[str, Any], says: str, **more: Any) -> Case:
    """Return a case."""
    return Case(rule=rule, kind=kind, changes=changes, says=says, **more)
