"""Small valid Google Cloud environment for tests: three networks, a cluster, an account, a system pool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rehearsal.clouds.gcp import tokens
from rehearsal.clouds.gcp.cloud import CLOUD
from rehearsal.clouds.gcp.references import project_number
from rehearsal.clouds.kind import Call, Json, Kind, Verb
from rehearsal.clouds.state import View
from rehearsal.clouds.values import applied
from tests.rehearsal import supporting as shared

PROJECT, REGION, ZONE = "acme-ml", "us-central1", "us-central1-b"
CONFIG: Mapping[str, Any] = {"project": PROJECT, "region": REGION}
MAIN, GVNIC, RDMA = (f"projects/{PROJECT}/global/networks/{name}" for name in ("main", "gvnic", "rdma"))
CLUSTER_ID = f"projects/{PROJECT}/locations/{REGION}/clusters/ray"
ACCOUNT = f"ray-nodes@{PROJECT}.iam.gserviceaccount.com"
PROFILE = f"projects/{PROJECT}/global/networkProfiles/{ZONE}-vpc-roce"
NETWORK: Json = {"name": "fresh", "autoCreateSubnetworks": False, "mtu": 8896, "networkProfile": PROFILE}
SUBNETWORK: Json = {
    "name": "fresh",
    "network": MAIN,
    "region": REGION,
    "ipCidrRange": "10.60.0.0/24",
    "secondaryIpRanges": [{"rangeName": "more", "ipCidrRange": "10.61.0.0/16"}],
}
FIREWALL: Json = {
    "name": "fresh",
    "network": MAIN,
    "direction": "INGRESS",
    "sourceRanges": ["10.0.0.0/8"],
    "allows": [{"protocol": "tcp"}],
}
ROUTER: Json = {"name": "fresh", "network": MAIN, "region": REGION}
NAT: Json = {"name": "fresh", "router": "out", "region": REGION, "natIpAllocateOption": "AUTO_ONLY"}
SERVICE_ACCOUNT: Json = {"accountId": "fresh-account", "displayName": "Fresh"}
PROJECT_MEMBER: Json = {"project": PROJECT, "role": "roles/logging.logWriter", "member": f"serviceAccount:{ACCOUNT}"}
BUCKET_MEMBER: Json = {
    "bucket": "acme-data",
    "role": "roles/storage.objectUser",
    "member": f"principal://iam.googleapis.com/projects/{project_number(PROJECT)}/locations/global/"
    f"workloadIdentityPools/{PROJECT}.svc.id.goog/subject/ns/default/sa/ray",
}
CLUSTER: Json = {
    "name": "fresh",
    "location": REGION,
    "nodeLocations": [ZONE],
    "network": MAIN,
    "subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/main",
    "networkingMode": "VPC_NATIVE",
    "datapathProvider": "ADVANCED_DATAPATH",
    "enableMultiNetworking": True,
    "deletionProtection": False,
    "initialNodeCount": 1,
    "removeDefaultNodePool": True,
    "minMasterVersion": "1.35.2-gke.1485000",
    "releaseChannel": {"channel": "REGULAR"},
    "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
    "privateClusterConfig": {"enablePrivateNodes": True, "masterIpv4CidrBlock": "172.16.0.16/28"},
    "masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]},
    "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
    "nodeConfig": {"machineType": "e2-small", "serviceAccount": ACCOUNT},
    "resourceLabels": {"team": "ml"},
}
SYSTEM_POOL: Json = {
    "name": "system",
    "cluster": "ray",
    "location": REGION,
    "nodeLocations": [ZONE],
    "initialNodeCount": 1,
    "autoscaling": {"totalMinNodeCount": 1, "totalMaxNodeCount": 3, "locationPolicy": "ANY"},
    "management": {"autoRepair": True, "autoUpgrade": True},
    "nodeConfig": {"machineType": "e2-standard-8", "serviceAccount": ACCOUNT, "labels": {"team": "ml"}},
}
INTERFACES = [{"network": "gvnic", "subnetwork": "gvnic"}] + [
    {"network": "rdma", "subnetwork": f"rdma-{nic}"} for nic in range(8)
]
POOL: Json = {
    "name": "fresh",
    "cluster": "ray",
    "location": REGION,
    "nodeLocations": [ZONE],
    "initialNodeCount": 0,
    "autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 4, "locationPolicy": "ANY"},
    "management": {"autoRepair": False, "autoUpgrade": True},
    "networkConfig": {"enablePrivateNodes": True, "additionalNodeNetworkConfigs": INTERFACES},
    "nodeConfig": {
        "machineType": "a3-ultragpu-8g",
        "flexStart": True,
        "maxRunDuration": "604800s",
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
        "guestAccelerators": [{"type": "nvidia-h200-141gb", "count": 8}],
        "gvnic": {"enabled": True},
        "ephemeralStorageLocalSsdConfig": {"localSsdCount": 32},
        "diskType": "hyperdisk-balanced",
        "serviceAccount": ACCOUNT,
        "labels": {},
    },
}

RIGHT: Mapping[str, Json] = {
    tokens.NETWORK: NETWORK,
    tokens.SUBNETWORK: SUBNETWORK,
    tokens.FIREWALL: FIREWALL,
    tokens.ROUTER: ROUTER,
    tokens.NAT: NAT,
    tokens.ACCOUNT: SERVICE_ACCOUNT,
    tokens.PROJECT_MEMBER: PROJECT_MEMBER,
    tokens.BUCKET_MEMBER: BUCKET_MEMBER,
    tokens.CLUSTER: CLUSTER,
    tokens.NODE_POOL: POOL,
}
"""A valid request of each kind."""


def kind(type_: str) -> Kind:
    """Return a kind of this cloud."""
    return CLOUD.kinds[type_]


def call(state: View, type_: str, inputs: Json, verb: Verb = "create", config: Mapping[str, Any] | None = None) -> Call:
    """Return a request as the provider sends it."""
    used = CONFIG if config is None else config
    id_ = kind(type_).identify(inputs, used)
    live = (state.get(type_, id_) or {}) if verb != "create" else {}
    now = inputs if verb == "create" else applied(live, inputs, inputs)
    return Call(verb=verb, type=type_, id=id_, inputs=inputs, live=live, config=used, state=state, now=now)


changed = shared.changed
refusals = partial(shared.refusals, CLOUD)
make = partial(shared.make, CLOUD, call)


def landscape(state: View) -> None:
    """Create the supporting resources of all valid requests."""
    for name, profile in (("main", None), ("gvnic", None), ("rdma", PROFILE)):
        network: Json = {"name": name, "autoCreateSubnetworks": False, "mtu": 8896}
        make(state, tokens.NETWORK, network | ({"networkProfile": profile} if profile else {}))
    secondary = [
        {"rangeName": "pods", "ipCidrRange": "10.0.0.0/16"},
        {"rangeName": "services", "ipCidrRange": "10.1.0.0/20"},
    ]
    main: Json = {"name": "main", "network": MAIN, "region": REGION, "ipCidrRange": "10.2.0.0/20"}
    make(state, tokens.SUBNETWORK, {**main, "secondaryIpRanges": secondary})
    gvnic: Json = {"name": "gvnic", "network": GVNIC, "region": REGION, "ipCidrRange": "10.3.0.0/20"}
    make(state, tokens.SUBNETWORK, gvnic)
    for nic in range(8):
        rdma: Json = {"name": f"rdma-{nic}", "network": RDMA, "region": REGION, "ipCidrRange": f"10.4.{nic}.0/24"}
        make(state, tokens.SUBNETWORK, rdma)
    make(state, tokens.ROUTER, {**ROUTER, "name": "out"})
    make(state, tokens.ACCOUNT, {"accountId": "ray-nodes"})
    private = {"enablePrivateNodes": True, "masterIpv4CidrBlock": "172.16.0.0/28"}
    make(state, tokens.CLUSTER, {**CLUSTER, "name": "ray", "privateClusterConfig": private})
    make(state, tokens.NODE_POOL, SYSTEM_POOL)
