"""Invariants of a Google Cloud stack's cluster, node pools and deletion order."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.capacity import GKE_CAPACITIES
from infra.catalog.gcp import EXCLUSION_START, MAINTENANCE_HOUR, NODE_ROLES, NODE_SCOPES, SYSTEM_MACHINE, version_key
from infra.catalog.pins import GIB_IMAGE
from infra.gke.pod import COMPUTE_CLASS
from infra.gke.site import minimum_version
from rehearsal.invariants.gke_resources import (
    CLUSTER,
    NETWORK,
    POOL,
    SUBNET,
    gpu_pools,
    machine_of,
    nic_subnets,
    system_pools,
)
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import RELEASE, on_the_way_down, workloads


def cluster_carries_the_fabric(stack: Stack) -> Iterator[str]:
    """The cluster has the settings that only creation can set: VPC-native addresses, Dataplane V2, multi-networking."""
    for cluster in stack.of(CLUSTER):
        yield from expect(
            cluster,
            networkingMode="VPC_NATIVE",
            datapathProvider="ADVANCED_DATAPATH",
            enableMultiNetworking=stack.gke.fabric != "managed-dranet",
            nodeLocations=[stack.gke.location],
        )
        for owner in ("clusterSecondaryRangeName", "servicesSecondaryRangeName"):
            if not at(cluster, f"ipAllocationPolicy.{owner}"):
                yield f"{cluster.name}: {owner} is not set"
        # The address plan gives a node a /24, which fits this many pods.
        yield from expect(cluster, defaultMaxPodsPerNode=110)


def cluster_is_closed(stack: Stack) -> Iterator[str]:
    """Nodes are private and shielded, pods use workload identity, and access to the control plane is restricted."""
    access = stack.gke.access
    for cluster in stack.of(CLUSTER):
        yield from expect(
            cluster,
            privateClusterConfig__enablePrivateNodes=True,
            privateClusterConfig__enablePrivateEndpoint=not access.public_endpoint,
            enableShieldedNodes=True,
        )
        blocks = at(cluster, "masterAuthorizedNetworksConfig.cidrBlocks")
        if blocks is None or [block["cidrBlock"] for block in blocks] != list(access.authorized_networks):
            yield f"{cluster.name}: authorized networks are {blocks}"
        if not at(cluster, "workloadIdentityConfig.workloadPool"):
            yield f"{cluster.name}: no workload identity"
        if at(cluster, "controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic") is not True:
            yield f"{cluster.name}: the DNS endpoint is closed"


def everything_is_protected(stack: Stack) -> Iterator[str]:
    """`protect` protects the stack: the cluster in Google Cloud, and everything in the engine before it deletes
    anything."""
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, deletionProtection=stack.gke.protect)
    for node in stack.graph.managed:
        if node.protect != stack.gke.protect:
            yield f"{node.name}: the engine's protection is {node.protect}"


def nothing_upgrades_under_a_job(stack: Stack) -> Iterator[str]:
    """No minor version and no node is upgraded automatically; the first version supports machine and fabric."""
    minimum = minimum_version(stack.gke, machine_of(stack))
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, releaseChannel__channel="REGULAR")
        yield from expect(
            cluster,
            maintenancePolicy__dailyMaintenanceWindow__startTime=MAINTENANCE_HOUR,
            maintenancePolicy__maintenanceExclusions__0__startTime=EXCLUSION_START,
            maintenancePolicy__maintenanceExclusions__0__exclusionOptions__scope="NO_MINOR_OR_NODE_UPGRADES",
            maintenancePolicy__maintenanceExclusions__0__exclusionOptions__endTimeBehavior="UNTIL_END_OF_SUPPORT",
        )
        if not at(cluster, "maintenancePolicy.maintenanceExclusions.0.exclusionName"):
            yield f"{cluster.name}: the exclusion has no name"
        first = at(cluster, "minMasterVersion") or cluster.outputs.get("masterVersion")
        if version_key(str(first)) < version_key(minimum):
            yield f"{cluster.name}: the first version is {first}, less than {minimum}"


def cluster_is_watched(stack: Stack) -> Iterator[str]:
    """GPU metrics (DCGM), metrics and logs of system and pods, and the Cloud Storage FUSE driver are enabled."""
    for cluster in stack.of(CLUSTER):
        wanted = {"monitoringConfig": {"SYSTEM_COMPONENTS", "POD", "DAEMONSET", "DCGM"}}
        wanted["loggingConfig"] = {"SYSTEM_COMPONENTS", "WORKLOADS"}
        for what, components in wanted.items():
            missing = components - set(at(cluster, f"{what}.enableComponents") or [])
            if missing:
                yield f"{cluster.name}: {what} lacks {', '.join(sorted(missing))}"
        yield from expect(
            cluster,
            monitoringConfig__managedPrometheus__enabled=True,
            addonsConfig__gcsFuseCsiDriverConfig__enabled=True,
        )


def nodes_have_an_identity_of_their_own(stack: Stack) -> Iterator[str]:
    """Nodes run as the stack's own service account, with only a node's roles."""
    accounts = stack.of("gcp:serviceaccount/account:Account")
    if len(accounts) != 1:
        yield f"there are {len(accounts)} service accounts"
    for pool in stack.of(POOL):
        if not str(at(pool, "nodeConfig.serviceAccount")).startswith(f"{at(accounts[0], 'accountId')}@"):
            yield f"{pool.name}: {at(pool, 'nodeConfig.serviceAccount')}"
        yield from expect(pool, nodeConfig__workloadMetadataConfig__mode="GKE_METADATA")
        yield from expect(pool, nodeConfig__oauthScopes=list(NODE_SCOPES))
    for cluster in stack.of(CLUSTER):
        # The default pool of a cluster is removed at once, but its nodes run for a minute.
        yield from expect(cluster, removeDefaultNodePool=True, nodeConfig__oauthScopes=list(NODE_SCOPES))
        if not str(at(cluster, "nodeConfig.serviceAccount")).startswith(f"{at(accounts[0], 'accountId')}@"):
            yield f"{cluster.name}: {at(cluster, 'nodeConfig.serviceAccount')}"
    members = stack.of("gcp:projects/iAMMember:IAMMember")
    if sorted(str(at(member, "role")) for member in members) != sorted(NODE_ROLES):
        yield f"the roles are {[at(member, 'role') for member in members]}"


def pools_are_as_their_capacity_demands(stack: Stack) -> Iterator[str]:
    """A GPU pool matches its capacity: size, location, repair, reservation, run time, upgrades."""
    nodes = stack.gke.nodes
    ways = {"gpu": nodes.capacity, "fallback": nodes.fallback}
    if [at(pool, "name") for pool in gpu_pools(stack)] != sorted(name for name, way in ways.items() if way):
        yield f"the pools are {[at(pool, 'name') for pool in gpu_pools(stack)]}"
    for pool in gpu_pools(stack):
        capacity = GKE_CAPACITIES[str(ways[str(at(pool, "name"))])]
        yield from expect(
            pool,
            autoscaling__totalMaxNodeCount=nodes.max,
            autoscaling__locationPolicy="ANY",
            nodeCount=None,
            nodeLocations=[stack.gke.location],
            management__autoRepair=capacity.auto_repair,
            management__autoUpgrade=True,
            nodeConfig__reservationAffinity__consumeReservationType=capacity.reservation_affinity,
            nodeConfig__flexStart=capacity.flex_start or None,
            nodeConfig__spot=capacity.spot or None,
            queuedProvisioning__enabled=capacity.queued or None,
            nodeConfig__maxRunDuration=f"{3600 * (nodes.max_run_hours or 0)}s" if capacity.flex_start else None,
        )
        if capacity.starts_empty:
            yield from expect(pool, initialNodeCount=0, autoscaling__totalMinNodeCount=0)
        if capacity.flex_start and at(pool, "upgradeSettings"):
            yield f"{pool.name}: upgrade settings on flex-start"


def pools_are_as_their_machine_demands(stack: Stack) -> Iterator[str]:
    """A GPU pool matches its machine: GPUs, driver, NICs, disks, taint."""
    machine = machine_of(stack)
    for pool in gpu_pools(stack):
        yield from expect(
            pool,
            nodeConfig__machineType=machine.name,
            nodeConfig__guestAccelerators__0__type=machine.accelerator,
            nodeConfig__guestAccelerators__0__count=machine.gpus,
            nodeConfig__guestAccelerators__0__gpuDriverInstallationConfig__gpuDriverVersion="LATEST",
            nodeConfig__gvnic__enabled=True,
            nodeConfig__ephemeralStorageLocalSsdConfig__localSsdCount=machine.local_ssds,
            nodeConfig__diskType=machine.boot_disk,
            nodeConfig__gcfsConfig__enabled=True,
            nodeConfig__shieldedInstanceConfig__enableSecureBoot=True,
            nodeConfig__shieldedInstanceConfig__enableIntegrityMonitoring=True,
            networkConfig__enablePrivateNodes=True,
        )
        taints = {taint["key"] for taint in at(pool, "nodeConfig.taints") or []}
        if any(
            (taint["effect"], bool(taint["value"])) != ("NO_SCHEDULE", True) for taint in at(pool, "nodeConfig.taints")
        ):
            yield f"{pool.name}: {at(pool, 'nodeConfig.taints')}"
        labels = at(pool, "nodeConfig.labels") or {}
        if "nvidia.com/gpu" not in taints:
            yield f"{pool.name}: pods without a GPU may run on it"
        if stack.gke.compute_class and (
            "cloud.google.com/compute-class" not in taints
            or labels.get("cloud.google.com/compute-class") != COMPUTE_CLASS
        ):
            yield f"{pool.name}: does not belong to the ComputeClass"


def a_pool_without_gpus(stack: Stack) -> Iterator[str]:
    """A small pool without GPUs runs the head, the operator and the system's own pods."""
    others = [pool for pool in stack.of(POOL) if pool not in gpu_pools(stack)]
    if len(others) != 1:
        yield f"there are {len(others)}"
    for pool in others:
        if not 1 <= at(pool, "autoscaling.totalMinNodeCount") <= at(pool, "autoscaling.totalMaxNodeCount") <= 8:
            yield f"{pool.name}: {at(pool, 'autoscaling')}"
        yield from expect(
            pool,
            initialNodeCount=1,
            autoscaling__locationPolicy="ANY",
            nodeLocations=[stack.gke.location],
            management__autoRepair=True,
            management__autoUpgrade=True,
            upgradeSettings__strategy="SURGE",
            upgradeSettings__maxSurge=1,
            upgradeSettings__maxUnavailable=0,
            nodeConfig__machineType=SYSTEM_MACHINE,
            nodeConfig__gvnic__enabled=True,
            nodeConfig__gcfsConfig__enabled=True,
            nodeConfig__shieldedInstanceConfig__enableSecureBoot=True,
            nodeConfig__shieldedInstanceConfig__enableIntegrityMonitoring=True,
        )


def plugin_is_pinned(stack: Stack) -> Iterator[str]:
    """A pinned image installs the NCCL plugin on the GPU nodes, and it does not change under a running job."""
    found = [node for node in stack.of("kubernetes:apps/v1:DaemonSet") if "installer" in node.name]
    if not found:
        yield "nothing installs it"
    for node in found:
        pod = "spec.template.spec"
        terms = f"{pod}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if at(node, f"{terms}.0.matchExpressions.0.values") != [machine_of(stack).accelerator]:
            yield f"{node.name}: it does not choose the nodes of {machine_of(stack).accelerator}"
        script = str((at(node, f"{pod}.initContainers.0.command") or [""])[-1])
        paths = [mount["mountPath"] for mount in at(node, f"{pod}.initContainers.0.volumeMounts") or []]
        if not paths or not all(path in script for path in paths):
            yield f"{node.name}: it does not copy to what it mounts"
        for host, mounted in zip(at(node, f"{pod}.volumes") or [], paths, strict=True):
            if f"/usr/local{host['hostPath']['path']}" != mounted or host["hostPath"]["type"] != "DirectoryOrCreate":
                yield f"{node.name}: {host} is mounted at {mounted}"
        yield from expect(
            node,
            metadata__namespace="kube-system",
            metadata__annotations={"pulumi.com/skipAwait": "true"},
            spec__updateStrategy__type="OnDelete",
            spec__template__spec__tolerations=[{"operator": "Exists"}],
            spec__template__spec__priorityClassName="system-node-critical",
            spec__template__spec__hostNetwork=True,
            spec__template__spec__hostPID=True,
            spec__template__spec__automountServiceAccountToken=False,
            spec__template__spec__initContainers__0__image=GIB_IMAGE,
            spec__template__spec__initContainers__0__imagePullPolicy="IfNotPresent",
            spec__template__spec__initContainers__0__securityContext__privileged=True,
            spec__template__spec__initContainers__0__command=["/bin/sh", "-c", script],
            spec__template__spec__initContainers__0__resources__requests__cpu="150m",
        )


def resources_are_labelled(stack: Stack) -> Iterator[str]:
    """Cluster and machines have the stack's name as a label, for billing."""
    for node in stack.of(CLUSTER):
        if not (at(node, "resourceLabels") or {}).get("rdma-ray-stack"):
            yield f"{node.name} does not"
    for node in stack.of(POOL):
        if not (at(node, "nodeConfig.resourceLabels") or {}).get("rdma-ray-stack"):
            yield f"{node.name} does not"


def down_in_order(stack: Stack) -> Iterator[str]:
    """Deletion order: Ray, operator and pools, cluster, subnets, networks."""
    # Only the operator needs nodes to delete Ray's pods; the release of a DaemonSet does not wait for nodes.
    operators = [release for release in stack.of(RELEASE) if at(release, "chart") == "kuberay-operator"]
    used = [node for node in stack.of(SUBNET) if any(node.urn in stack.graph.needs(c.urn) for c in stack.of(CLUSTER))]
    yield from on_the_way_down(stack.graph, [workloads(stack), operators, system_pools(stack), stack.of(CLUSTER), used])
    yield from on_the_way_down(stack.graph, [workloads(stack), gpu_pools(stack), nic_subnets(stack)])
    for subnet in stack.of(SUBNET):
        if not any(network.urn in stack.graph.needs(subnet.urn) for network in stack.of(NETWORK)):
            yield f"{subnet.name} could be deleted after its network"


INVARIANTS: tuple[Invariant, ...] = (
    cluster_carries_the_fabric,
    cluster_is_closed,
    everything_is_protected,
    nothing_upgrades_under_a_job,
    cluster_is_watched,
    nodes_have_an_identity_of_their_own,
    pools_are_as_their_capacity_demands,
    pools_are_as_their_machine_demands,
    a_pool_without_gpus,
    plugin_is_pinned,
    resources_are_labelled,
    down_in_order,
)
