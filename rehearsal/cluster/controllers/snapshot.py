"""Snapshot of one round: the simulated clouds, and the API server's nodes and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from infra.catalog.pins import GKE_NETWORK_API
from rehearsal.clouds.aws import tokens as aws
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.kubernetes.connection import OWNER
from rehearsal.clouds.kubernetes.identity import RELEASE
from rehearsal.cluster.controllers.nodes import pool_of
from rehearsal.cluster.controllers.pools import Pool, pools
from rehearsal.cluster.controllers.scheduling import CandidateNode, place_of
from rehearsal.engine.kind import Json
from rehearsal.engine.state import State, View
from tools.kubernetes.api import Api, ApiError

_WATCHED_TYPES = (gcp.NETWORK, gcp.SUBNETWORK, aws.ADDON)


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Delays of the simulated clouds in seconds, and those of real clouds.

    Args:
        grant: from a pending pod to its node (minutes to days).
        idle: until an empty node is removed (10 minutes on GKE, 3 in our EKS stacks).
        queue: from a ProvisioningRequest to its nodes (minutes to days).
        booking: until unused nodes of a request may be removed (10 minutes).
        refusal: until a pool that was out of stock is tried again (5 minutes).
    """

    grant: float = 2.0
    idle: float = 8.0
    queue: float = 3.0
    booking: float = 30.0
    refusal: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Simulated cluster: its live object by type and id, and its name."""

    type: str
    id: str
    live: Json

    @property
    def cloud(self) -> Literal["gke", "eks"]:
        """The cloud of the cluster."""
        return "gke" if self.type == gcp.CLUSTER else "eks"

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return str(self.live.get("name") or self.id)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Helm release: its id is NAMESPACE/NAME; `revision` counts its changes."""

    id: str
    chart: str
    revision: int
    values: Mapping[str, Any]


@dataclass(kw_only=True)
class Snapshot:
    """State at one moment. Nodes and pods are read on demand, once a round."""

    api: Api
    now: float
    cluster: Cluster | None
    pools: list[Pool] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    live: Mapping[str, list[Json]] = field(default_factory=dict)
    """The live VPCs, subnets and add-ons by type."""

    @cached_property
    def nodes(self) -> list[Json]:
        """All nodes of the cloud controllers."""
        return [node for node in self.api.list("v1", "Node") if pool_of(node) is not None]

    @cached_property
    def pods(self) -> list[Json]:
        """All pods of all namespaces, the oldest first."""
        return sorted(self.api.list("v1", "Pod"), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))

    @cached_property
    def places(self) -> list[CandidateNode]:
        """The nodes that are not being deleted, with their pods counted."""
        staying = [node for node in self.nodes if not node["metadata"].get("deletionTimestamp")]
        return [place_of(node, str(pool_of(node)), self.pods) for node in staying]

    @cached_property
    def networks(self) -> dict[tuple[str, str], str]:
        """The ready Network objects of GKE by the VPC and subnet of their interface."""
        parameters = {each["metadata"]["name"]: each for each in self.custom("GKENetworkParamSet")}
        by_name = {}
        for network in self.custom("Network"):
            its = parameters.get(((network.get("spec") or {}).get("parametersRef") or {}).get("name"))
            if its is not None and condition(network, "Ready") == "True":
                by_name[its["spec"].get("vpc"), its["spec"].get("vpcSubnet")] = network["metadata"]["name"]
        return by_name

    @property
    def charts(self) -> dict[str, Mapping[str, Any]]:
        """The values of the installed releases, by chart."""
        return {release.chart: release.values for release in self.releases}

    def custom(self, kind: str, api_version: str = GKE_NETWORK_API) -> list[Json]:
        """Return the objects of a kind that this cluster may not have."""
        try:
            return self.api.list(api_version, kind)
        except ApiError as problem:
            if problem.status == 404:
                return []
            raise


@dataclass(frozen=True, kw_only=True)
class Context:
    """Shared context of the reconcilers.

    `report` receives the kind of an event and its fields (`events`); `now` is seconds on a monotonic clock.
    """

    api: Api
    state: State
    delays: Delays
    now: Callable[[], float]
    report: Callable[..., None]

    def look(self) -> Snapshot:
        """Take a snapshot."""
        with self.state.transaction() as view:
            clusters = [
                Cluster(type=type_, id=id_, live=live)
                for type_ in (gcp.CLUSTER, aws.CLUSTER)
                for _, id_, live in view.all(type_)
            ]
            cluster = next(iter(clusters), None)
            return Snapshot(
                api=self.api,
                now=self.now(),
                cluster=cluster,
                pools=pools(view, (cluster.type, cluster.id)) if cluster else [],
                releases=list(_releases(view)) if cluster else [],
                live={type_: [live for _, _, live in view.all(type_)] for type_ in _WATCHED_TYPES},
            )


def new_condition(type_: str, status: str, reason: str, message: str) -> Json:
    """Return a condition of an object's status."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


def condition(body: Json, type_: str) -> str | None:
    """Return the status of a condition, or None."""
    conditions = ((body.get("status") or {}).get("conditions")) or ()
    return next((str(each["status"]) for each in conditions if each["type"] == type_), None)


def _releases(view: View) -> Iterable[Release]:
    for _, id_, live in view.all(RELEASE):
        if OWNER in live:
            status = live.get("status") or {}
            chart, revision = str(status.get("chart") or ""), int(status.get("revision") or 0)
            yield Release(id=id_, chart=chart, revision=revision, values=live.get("values") or {})
