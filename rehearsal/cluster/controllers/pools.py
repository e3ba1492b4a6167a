"""GKE node pools and EKS node groups of the cloud state, as one type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.catalog.machines import EKS_CATALOG, GKE_CATALOG, Machine
from rehearsal.clouds.aws import tokens as aws
from rehearsal.clouds.aws.references import desired, groups_of, scaling_group_of, types_of, zone_of
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.gcp.capacity import affinity, is_flex, is_queued, is_spot, machine, node
from rehearsal.clouds.kubernetes.identity import RELEASE
from rehearsal.cluster.controllers.quantities import GIB, MIB
from rehearsal.engine.kind import Json, value_at
from rehearsal.engine.state import View
from rehearsal.engine.values import digest

LOCAL_SSD = 375 * 10**9
"""Bytes of one local SSD (Compute Engine docs; unverified, 2026-11)."""
TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template/resources/"
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_PER_CPU_GIB = {"e2-standard": 4, "n2-standard": 4, "n4-standard": 4, "e2-highmem": 8, "e2-highcpu": 1}
_EC2 = re.compile(r"[mrct]\d\w*\.(?:(\d*)x)?large")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes of one kind: a node pool of GKE or a node group of EKS.

    Args:
        key: type and id of its live object.
        least, most: limits of the autoscaler, None without one.
        wanted: its size in the cloud.
        cpus, memory, storage: of a node; memory and storage in bytes.
        networks: pairs of VPC and subnet of its additional interfaces, in order (GKE).
        announced: devices that the tags of an empty group list (EKS).
        queued: grows for ProvisioningRequests only.
        managed_dranet: GKE runs the driver that offers its RDMA devices.
        placed: its nodes have topology labels, as those of a reservation do on GKE; others may have them.
    """

    cloud: Literal["gke", "eks"]
    key: tuple[str, str]
    cluster: str
    name: str
    machine: str
    zone: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    least: int | None
    most: int
    wanted: int
    cpus: int
    memory: int
    storage: int
    gpus: int = 0
    nics: int = 0
    networks: tuple[tuple[str, str], ...] = ()
    announced: Mapping[str, int] = field(default_factory=dict)
    queued: bool = False
    managed_dranet: bool = False
    placed: bool = False

    @property
    def autoscaled(self) -> bool:
        """Whether the autoscaler sets its number of nodes."""
        return self.least is not None

    def node_name(self, number: int) -> str:
        """Return the stable name of its nth node, from 1, in the cloud's format."""
        if self.cloud == "gke":
            return f"gke-{self.cluster[:20]}-{self.name[:20]}-{digest('/'.join(self.key))[:8]}-{number:04d}"
        return f"ip-10-0-{int(digest(self.name), 16) % 200}-{number}.{self.zone[:-1]}.compute.internal"

    def resized(self, live: Json, by: int) -> Json:
        """Return its live object with another number of nodes, as its autoscaler updates it."""
        if self.cloud == "gke":
            return {**live, "nodeCount": max(0, int(live.get("nodeCount") or 0) + by)}
        scaling = live["scalingConfig"]
        return {**live, "scalingConfig": {**scaling, "desiredSize": max(0, scaling["desiredSize"] + by)}}


class UnknownMachineError(ValueError):
    """The machine type of a pool is neither in the catalog nor in this file."""


def pools(state: View, cluster: tuple[str, str]) -> list[Pool]:
    """Return the pools of a live cluster, given by type and id, sorted by name."""
    type_, id_ = cluster
    pools_of_cluster = _gke(state, id_) if type_ == gcp.CLUSTER else _eks(state, id_)
    return sorted(pools_of_cluster, key=lambda pool: pool.name)


def _gke(state: View, cluster: str) -> Iterator[Pool]:
    name = str((state.get(gcp.CLUSTER, cluster) or {}).get("name") or cluster.rpartition("/")[2])
    for _, id_, live in state.all(gcp.NODE_POOL):
        if not id_.startswith(f"{cluster}/nodePools/"):
            continue
        type_ = machine(live)
        row = GKE_CATALOG.get(type_)
        cpus, memory = _size(type_, row)
        zones = [str(zone) for zone in live.get("nodeLocations") or ()] or [f"{live.get('location')}-a"]
        scaling = live.get("autoscaling") or {}
        wanted = int(live.get("nodeCount") or 0)
        disks = int(value_at(live, "nodeConfig.ephemeralStorageLocalSsdConfig.localSsdCount") or 0)
        yield Pool(
            cloud="gke",
            key=(gcp.NODE_POOL, id_),
            cluster=name,
            name=str(live["name"]),
            machine=type_,
            zone=zones[0],
            labels=_gke_labels(live, row, zones[0]),
            taints=tuple(_gke_taints(live)),
            least=int(scaling.get("totalMinNodeCount") or 0) if scaling else None,
            most=int(scaling["totalMaxNodeCount"]) if scaling else wanted,
            wanted=wanted,
            cpus=cpus,
            memory=memory,
            storage=disks * LOCAL_SSD or int(node(live).get("diskSizeGb") or 100) * 10**9,
            gpus=sum(int(each.get("count") or 0) for each in node(live).get("guestAccelerators") or ()),
            nics=row.nics if row else 0,
            networks=tuple(
                (str(each.get("network")), str(each.get("subnetwork")))
                for each in value_at(live, "networkConfig.additionalNodeNetworkConfigs") or ()
            ),
            queued=is_queued(live),
            placed=affinity(live) in ("SPECIFIC_RESERVATION", "ANY_RESERVATION"),
            managed_dranet=_labels(live).get("cloud.google.com/gke-networking-dra-driver") == "true",
        )


def _gke_labels(live: Json, row: Machine | None, zone: str) -> dict[str, str]:
    """Return the pool's labels and GKE's (docs of labels, flex-start and DRANET; unverified, 2026-11)."""
    type_ = machine(live)
    labels = {
        "cloud.google.com/gke-nodepool": str(live["name"]),
        **_place(type_, zone, zone.rpartition("-")[0], row),
        **_labels(live),
    }
    accelerators = node(live).get("guestAccelerators") or ()
    if accelerators:
        labels["cloud.google.com/gke-accelerator"] = str(accelerators[0]["type"])
        labels["cloud.google.com/gke-gpu"] = "true"
    if is_flex(live):
        labels["cloud.google.com/gke-flex-start"] = "true"
    if is_spot(live):
        labels["cloud.google.com/gke-spot"] = "true"
    if value_at(live, "networkConfig.acceleratorNetworkProfile"):
        labels["gke.networks.io/accelerator-network-profile"] = "auto"
    return labels


def _gke_taints(live: Json) -> Iterator[Json]:
    """Return the pool's taints and GKE's: that of GPUs, and that of queued nodes (GKE docs provisioningrequest)."""
    written = [*(node(live).get("taints") or ()), *(node(live).get("effectiveTaints") or ())]
    if is_queued(live):
        written.append({"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NO_SCHEDULE"})
    yield from _taints(written)


def _discovered(state: View, tags: list[Json]) -> bool:
    """Return whether the autoscaler sizes a group, which must have all tags that the autoscaler's release names.

    EKS sets those of the cluster (kubernetes/autoscaler: cloudprovider/aws README; unverified, 2026-11).
    """
    wanted: list[str] = []
    for _, _, release in state.all(RELEASE):
        wanted += value_at(release, "values.autoDiscovery.tags") or []
    own = {str(tag.get("key")) for tag in tags}
    return all(each in own or each.startswith("k8s.io/cluster-autoscaler/") for each in wanted)


def _eks(state: View, cluster: str) -> Iterator[Pool]:
    for id_, live in groups_of(state, cluster):
        type_ = types_of(state, live)[0]
        row = EKS_CATALOG.get(type_)
        cpus, memory = _size(type_, row)
        zone = zone_of(state, str((live.get("subnetIds") or [""])[0]))
        scaling = live.get("scalingConfig") or {}
        name, group = str(live["nodeGroupName"]), scaling_group_of(live)
        # EKS docs, managed node groups; labels of the AWS cloud provider; unverified, 2026-11.
        labels = {
            "eks.amazonaws.com/nodegroup": name,
            "eks.amazonaws.com/capacityType": str(live.get("capacityType") or "ON_DEMAND"),
            **_place(type_, zone, zone[:-1], row),
            **_labels(live),
        }
        tags = [tag.get("tag") or {} for _, _, tag in state.all(aws.GROUP_TAG) if tag["autoscalingGroupName"] == group]
        yield Pool(
            cloud="eks",
            key=(aws.NODE_GROUP, id_),
            cluster=cluster,
            name=name,
            machine=type_,
            zone=zone,
            labels=labels,
            taints=tuple(_taints(live.get("taints") or ())),
            least=int(scaling.get("minSize") or 0) if _discovered(state, tags) else None,
            most=int(scaling.get("maxSize") or 0),
            wanted=desired(live),
            cpus=cpus,
            memory=memory,
            storage=(row.nvme_gb if row else 100) * 10**9,
            gpus=row.gpus if row else 0,
            nics=row.nics if row else 0,
            placed=bool(row and row.nics),
            announced={
                str(tag["key"]).removeprefix(TEMPLATE_TAG): int(tag["value"])
                for tag in tags
                if str(tag.get("key")).startswith(TEMPLATE_TAG)
            },
        )


def _place(type_: str, zone: str, region: str, row: Machine | None) -> dict[str, str]:
    return {
        "node.kubernetes.io/instance-type": type_,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": row.arch if row else "amd64",
    }


def _labels(live: Mapping[str, Any]) -> dict[str, str]:
    its = live.get("labels") if "nodeGroupName" in live else value_at(live, "nodeConfig.labels")
    return {str(key): str(value) for key, value in (its or {}).items()}


def _taints(written: Any) -> Iterator[Json]:
    seen = set()
    for taint in written:
        its = {"key": taint["key"], "value": taint.get("value") or "", "effect": _EFFECTS[taint["effect"]]}
        if (its["key"], its["effect"]) not in seen:
            seen.add((its["key"], its["effect"]))
            yield its


def _size(type_: str, row: Machine | None) -> tuple[int, int]:
    """Return CPUs, and bytes of memory."""
    if row is not None and row.vcpus is not None and row.memory_mib is not None:
        return row.vcpus, row.memory_mib * MIB
    family, _, number = type_.rpartition("-")
    if family in _PER_CPU_GIB:
        return int(number), int(number) * _PER_CPU_GIB[family] * GIB
    if (match := _EC2.fullmatch(type_)) is not None:
        # "large" has two CPUs, "xlarge" four. General-purpose types have 4 GiB per CPU, compute-optimized ones 2.
        cpus = 2 if match[1] is None else 4 * int(match[1] or 1)
        return cpus, cpus * {"c": 2, "r": 8}.get(type_[0], 4) * GIB
    raise UnknownMachineError(f"machine type {type_}: its CPUs and memory are unknown")
