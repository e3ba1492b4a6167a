"""Simulated GKE cluster that the user has, for `cluster.existing`: a Standard cluster with Dataplane V2, a node pool,
and workloads in it. It has what a stack needs, and nothing of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.catalog.names import KUBERAY_LABELS
from infra.catalog.pins import KUBERAY
from infra.settings import EksSettings, GkeSettings, Settings
from rehearsal import existing_eks_cluster
from rehearsal.clouds.gcp.references import CLUSTER, COMPUTE, NETWORK, NODE_POOL, SUBNETWORK
from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.kubernetes.connection import certificate
from rehearsal.engine.kind import Json
from rehearsal.existing_eks_cluster import inside, pods

PROJECT = "my-project"
"""That of the stack files."""
_NAME = "theirs"
_VERSION = "1.36.5-gke.1032000"
_PODS = IPv4Network("10.128.0.0/14")


def objects(settings: Settings) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield the cluster that a stack file names and what is in it, as ((type, id), live)."""
    if isinstance(settings, GkeSettings) and settings.cluster.existing is not None:
        yield from _on_google_cloud(settings, settings.cluster.existing)
    if isinstance(settings, EksSettings) and settings.cluster.existing is not None:
        yield from existing_eks_cluster.objects(settings, settings.cluster.existing)


def _on_google_cloud(settings: GkeSettings, existing: str) -> Iterator[tuple[tuple[str, str], Json]]:
    location, _, name = existing.partition("/")
    region = settings.location.rpartition("-")[0]
    network, path = f"projects/{PROJECT}/global/networks/{_NAME}", f"projects/{PROJECT}/regions/{region}"
    subnetwork, cluster = f"{path}/subnetworks/{_NAME}", f"projects/{PROJECT}/locations/{location}/clusters/{name}"
    common = {"project": PROJECT, "autoCreateSubnetworks": False, "mtu": 1460, "routingMode": "REGIONAL"}
    yield (NETWORK, network), {"name": _NAME, "selfLink": f"{COMPUTE}{network}", **common}
    ranges = [{"rangeName": "pods", "ipCidrRange": str(_PODS)}]
    place = {"name": _NAME, "project": PROJECT, "region": region, "network": f"{COMPUTE}{network}"}
    yield (SUBNETWORK, subnetwork), {**place, "ipCidrRange": "10.132.16.0/20", "secondaryIpRanges": ranges}
    yield (
        (CLUSTER, cluster),
        {
            "name": name,
            "project": PROJECT,
            "location": location,
            "nodeLocations": [settings.location],
            "network": network,
            "subnetwork": subnetwork,
            "masterVersion": _VERSION,
            "nodeVersion": _VERSION,
            "enableAutopilot": False,
            "enableMultiNetworking": True,
            "datapathProvider": "ADVANCED_DATAPATH",
            "clusterIpv4Cidr": str(_PODS),
            "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods"},
            "releaseChannel": {"channel": "REGULAR"},
            "endpoint": "203.0.113.251",
            "masterAuth": {"clusterCaCertificate": certificate(cluster)},
            "controlPlaneEndpointsConfig": {
                "dnsEndpointConfig": {"endpoint": f"gke-theirs.{region}.gke.goog", "allowExternalTraffic": True}
            },
            "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
            "monitoringConfig": {"managedPrometheus": {"enabled": True}},
            "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}},
            "deletionProtection": True,
            "resourceLabels": {"team": "platform"},
        },
    )
    config = {"machineType": "n2d-standard-8", "resourceLabels": {"team": "platform"}}
    pool = {"name": "default-pool", "project": PROJECT, "location": location, "cluster": name, "nodeCount": 1}
    yield (
        (NODE_POOL, f"{cluster}/nodePools/default-pool"),
        {**pool, "nodeLocations": [settings.location], "nodeConfig": config, "version": _VERSION},
    )
    yield inside(cluster, identity.NAMESPACE, "web")
    yield inside(cluster, identity.DEPLOYMENT, "web", "web", spec=pods("nginx"))
    if "kuberay" in settings.cluster.provides:
        yield inside(cluster, identity.DEFINITION, "rayclusters.ray.io", spec={"group": "ray.io"})
        spec = pods(f"{KUBERAY.image}:v{KUBERAY.version}")
        yield inside(cluster, identity.DEPLOYMENT, "kuberay-operator", "web", KUBERAY_LABELS, spec=spec)
