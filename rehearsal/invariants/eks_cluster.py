"""Invariants of an AWS stack: cluster, add-ons, identities, and deletion order."""

from __future__ import annotations

import json
from collections.abc import Iterator

from infra.catalog.aws import EMPTY_MINUTES, PROVISION_MINUTES
from infra.catalog.pins import AWS_DRANET, EFA_PLUGIN, EKS, EKS_ADDONS, NVIDIA_PLUGIN
from infra.fabric import GPU_TOLERATION
from rehearsal.graph import Node
from rehearsal.invariants.eks_resources import (
    ADDON,
    ATTACHMENT,
    CLUSTER,
    ENTRY,
    ENTRY_POLICY,
    LAUNCH_TEMPLATE,
    LOG_GROUP,
    NODE_GROUP,
    POD_IDENTITY,
    ROLE,
    behind,
    gpu_groups,
    machine_of,
    system_groups,
)
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import RELEASE, on_the_way_down, workloads
from tools.recovery import FOUND_BY_TAGS, NAME_TAG, STACK_TAG

BEFORE_NODES, AFTER_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent"), ("coredns",)


def cluster_is_closed(stack: Stack) -> Iterator[str]:
    """The control plane has a private endpoint, restricts its public one, and authenticates by access entries only."""
    access = stack.eks.access
    for cluster in stack.of(CLUSTER):
        yield from expect(
            cluster,
            vpcConfig__endpointPrivateAccess=True,
            vpcConfig__endpointPublicAccess=access.public_endpoint,
            vpcConfig__publicAccessCidrs=list(access.authorized_networks) if access.public_endpoint else None,
            accessConfig__authenticationMode="API",
            accessConfig__bootstrapClusterCreatorAdminPermissions=True,
        )
    found = sorted(str(at(entry, "principalArn")) for entry in stack.of(ENTRY))
    if found != sorted(access.administrators) or len(stack.of(ENTRY_POLICY)) != len(found):
        yield f"{', '.join(found)} have access"


def secrets_are_encrypted_and_logs_end(stack: Stack) -> Iterator[str]:
    """Secrets are encrypted with a rotating key, and logs of the control plane have a retention period."""
    keys = {str(key.outputs.get("arn")): key for key in stack.of("aws:kms/key:Key")}
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, encryptionConfig__resources=["secrets"])
        key = keys.get(str(at(cluster, "encryptionConfig.provider.keyArn")))
        if key is None or at(key, "enableKeyRotation") is not True:
            yield f"{cluster.name}: its key"
        if len(at(cluster, "enabledClusterLogTypes") or []) != 5:
            yield f"{cluster.name}: {at(cluster, 'enabledClusterLogTypes')}"
        logs = [node for node in stack.of(LOG_GROUP) if at(node, "name") == f"/aws/eks/{at(cluster, 'name')}/cluster"]
        for log in logs:
            if not at(log, "retentionInDays") or log.urn not in stack.graph.needs(cluster.urn):
                yield f"{log.name}: no retention period, or created after the cluster"
        if not logs:
            yield f"{cluster.name}: EKS creates the log group"


def nothing_upgrades_under_a_job(stack: Stack) -> Iterator[str]:
    """Kubernetes versions are pinned, and the end of standard support costs nothing extra."""
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, version=EKS, upgradePolicy__supportType="STANDARD")


def addons_come_in_order(stack: Stack) -> Iterator[str]:
    """Add-ons that nodes need exist before them, DNS after them; EKS installs no self-managed copies."""
    found = {str(at(addon, "addonName")): addon for addon in stack.of(ADDON)}
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, bootstrapSelfManagedAddons=False)
    for name in (*BEFORE_NODES, *AFTER_NODES):
        if name not in found:
            yield f"{name} is missing"
    for group in stack.of(NODE_GROUP):
        for name in BEFORE_NODES:
            if name in found and found[name].urn not in stack.graph.needs(group.urn):
                yield f"{group.name} does not wait for {name}"
    for name in AFTER_NODES:
        for group in system_groups(stack):
            if name in found and group.urn not in stack.graph.needs(found[name].urn):
                yield f"{name} does not wait for {group.name}"
    if ("aws-fsx-csi-driver" in found) != (stack.eks.storage.bucket is not None):
        yield "the FSx driver exists without a file system, or the reverse"


def network_policies_count(stack: Stack) -> Iterator[str]:
    """The CNI enforces network policies and assigns addresses by prefix."""
    for addon in stack.of(ADDON):
        if at(addon, "addonName") == "vpc-cni":
            values = json.loads(str(at(addon, "configurationValues") or "{}"))
            if values.get("enableNetworkPolicy") != "true":
                yield f"{addon.name}: network policies are off"
            if (values.get("env") or {}).get("ENABLE_PREFIX_DELEGATION") != "true":
                yield f"{addon.name}: single addresses"


def one_kind_of_efa_devices(stack: Stack) -> Iterator[str]:
    """EFA devices come from the device plugin or from DRANET, never from both, and never from NVIDIA's plugin."""
    charts = {str(at(release, "chart")): release for release in stack.of(RELEASE)}
    wanted = AWS_DRANET.name if stack.eks.fabric == "efa-dranet" else EFA_PLUGIN.name
    if (found := {EFA_PLUGIN.name, AWS_DRANET.name} & charts.keys()) != {wanted}:
        yield f"found {sorted(found)}"
    if EFA_PLUGIN.name in charts:
        yield from expect(charts[EFA_PLUGIN.name], version=EFA_PLUGIN.version)
    if NVIDIA_PLUGIN.name not in charts:
        yield "nothing provides GPUs"
    else:
        yield from expect(charts[NVIDIA_PLUGIN.name], values__mofedEnabled=False)
    for name in {wanted} & charts.keys():
        if "nvidia.com/gpu" not in str(at(charts[name], "values.tolerations")):
            yield f"{name}: its pods do not run on GPU nodes"
        if machine_of(stack).name not in (at(charts[name], "values.supportedInstanceLabels.values") or []):
            yield f"{name}: its pods do not run on {machine_of(stack).name}"


def addons_are_pinned(stack: Stack) -> Iterator[str]:
    """An add-on has the pinned version, if there is one, and overwrites conflicting settings."""
    for addon in stack.of(ADDON):
        yield from expect(
            addon,
            addonVersion=EKS_ADDONS[str(at(addon, "addonName"))],
            resolveConflictsOnCreate="OVERWRITE",
            resolveConflictsOnUpdate="OVERWRITE",
        )


def the_cni_has_rights_of_its_own(stack: Stack) -> Iterator[str]:
    """The CNI has its own role for addresses, since nodes have no permission."""
    roles = {str(role.outputs.get("arn")): role for role in stack.of(ROLE)}
    for addon in stack.of(ADDON):
        if at(addon, "addonName") == "vpc-cni":
            role = roles.get(str(at(addon, "podIdentityAssociations.0.roleArn")))
            mine = [str(at(one, "policyArn")) for one in stack.of(ATTACHMENT) if role is not None and _of(one, role)]
            if not any(arn.endswith("/AmazonEKS_CNI_Policy") for arn in mine):
                yield f"{addon.name}: {mine}"
            yield from expect(addon, podIdentityAssociations__0__serviceAccount="aws-node")


def the_autoscaler_finds_its_groups(stack: Stack) -> Iterator[str]:
    """The autoscaler has cloud, region and cluster, runs on the CPU nodes, and uses the account with its
    permissions."""
    releases = [release for release in stack.of(RELEASE) if at(release, "chart") == "cluster-autoscaler"]
    if len(releases) != 1:
        yield f"there are {len(releases)}"
    accounts = [(at(node, "namespace"), at(node, "serviceAccount")) for node in stack.of(POD_IDENTITY)]
    for release in releases:
        for cluster in stack.of(CLUSTER):
            yield from expect(
                release,
                atomic=True,
                values__cloudProvider="aws",
                values__awsRegion=cluster.outputs.get("region"),
                values__autoDiscovery__clusterName=at(cluster, "name"),
                values__rbac__serviceAccount__create=True,
            )
        selector = at(release, "values.nodeSelector") or {}
        if selector.get("eks.amazonaws.com/nodegroup") not in [
            at(one, "nodeGroupName") for one in system_groups(stack)
        ]:
            yield f"{release.name}: it may run on a node that it removes"
        if (at(release, "namespace"), at(release, "values.rbac.serviceAccount.name")) not in accounts:
            yield f"{release.name}: its account has no permissions"
        # Keys of chart values contain dots and hyphens, so a path cannot address them.
        extra = at(release, "values.extraArgs") or {}
        wanted = {
            "scale-down-unneeded-time": f"{EMPTY_MINUTES}m",
            "max-node-provision-time": f"{PROVISION_MINUTES}m",
            "skip-nodes-with-system-pods": False,
            "skip-nodes-with-local-storage": False,
        }
        if extra != wanted:
            yield f"{release.name}: {extra}"


def device_plugins_come_to_gpu_nodes(stack: Stack) -> Iterator[str]:
    """Both device plugins run next to the system's pods, with bounded resources, and tolerate the GPU taint."""
    for release in stack.of(RELEASE):
        if at(release, "chart") in (NVIDIA_PLUGIN.name, EFA_PLUGIN.name, AWS_DRANET.name):
            yield from expect(release, namespace="kube-system", atomic=True)
        if at(release, "chart") in (EFA_PLUGIN.name, AWS_DRANET.name):
            yield from expect(
                release,
                values__tolerations=[dict(GPU_TOLERATION)],
                values__supportedInstanceLabels__keys=["node.kubernetes.io/instance-type"],
            )


def nodes_have_an_identity_of_their_own(stack: Stack) -> Iterator[str]:
    """Nodes have only a worker's permissions; pods get theirs by Pod Identity, never from the node."""
    for role in stack.of(ROLE):
        mine = {str(at(one, "policyArn")).rpartition("/")[2] for one in stack.of(ATTACHMENT) if _of(one, role)}
        trusted = str(at(role, "assumeRolePolicy"))
        if mine & {"AdministratorAccess", "PowerUserAccess", "AmazonFSxFullAccess", "AmazonS3FullAccess"}:
            yield f"{role.name}: {sorted(mine)}"
        if "ec2.amazonaws.com" in trusted and "AmazonEKS_CNI_Policy" in mine:
            yield f"{role.name}: every pod with the node's credentials may assign addresses"
        if "oidc" in trusted:
            yield f"{role.name} is assumed by tokens of the cluster"
    agents = [at(addon, "addonName") for addon in stack.of(ADDON)]
    if stack.of(POD_IDENTITY) and "eks-pod-identity-agent" not in agents:
        yield "the agent is missing"


def everything_is_protected(stack: Stack) -> Iterator[str]:
    """`protect` protects the stack: the cluster in AWS, and everything in the engine before it deletes anything."""
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, deletionProtection=stack.eks.protect)
    for node in stack.graph.managed:
        if node.protect != stack.eks.protect:
            yield f"{node.name}: the engine's protection is {node.protect}"


def resources_are_labelled(stack: Stack) -> Iterator[str]:
    """Everything that can have tags has the stack's name, for billing, and each generated id has a unique name tag.

    Recovery finds resources with generated ids by both tags.
    """
    named: dict[tuple[str, str], str] = {}
    for node in stack.graph.managed:
        tags = at(node, "tags") or {}
        if node.type.startswith("aws:") and "tagsAll" in node.outputs and not tags.get(STACK_TAG):
            yield f"{node.name} does not"
        if node.type in FOUND_BY_TAGS:
            other = named.setdefault((FOUND_BY_TAGS[node.type], str(tags.get(NAME_TAG))), node.urn)
            if not tags.get(NAME_TAG) or other != node.urn:
                yield f"{node.name} and another have the name tag {tags.get(NAME_TAG)}"
    for template in stack.of(LAUNCH_TEMPLATE):
        tagged = {one.get("resourceType"): one.get("tags") or {} for one in at(template, "tagSpecifications") or []}
        for kind in ("instance", "volume", "network-interface"):
            if not tagged.get(kind, {}).get("rdma-ray-stack"):
                yield f"{template.name}: {kind}"


def down_in_order(stack: Stack) -> Iterator[str]:
    """Deletion order: Ray, operator and groups, add-ons of nodes, cluster, subnets."""
    before = [addon for addon in stack.of(ADDON) if at(addon, "addonName") in BEFORE_NODES]
    used = [subnet for cluster in stack.of(CLUSTER) for subnet in behind(stack, cluster, "vpcConfig.subnetIds")]
    operator = [node for node in stack.of(RELEASE) if at(node, "chart") == "kuberay-operator"]
    yield from on_the_way_down(
        stack.graph, [workloads(stack), operator, system_groups(stack), before, stack.of(CLUSTER), used]
    )
    yield from on_the_way_down(stack.graph, [workloads(stack), gpu_groups(stack), before])
    # The control plane deletes its interfaces with the permissions of its role.
    grants = [one for one in stack.of(ATTACHMENT) if str(at(one, "policyArn")).endswith("/AmazonEKSClusterPolicy")]
    yield from on_the_way_down(stack.graph, [stack.of(CLUSTER), grants])


def _of(attachment: Node, role: Node) -> bool:
    return bool(at(attachment, "role") == at(role, "name"))


INVARIANTS: tuple[Invariant, ...] = (
    cluster_is_closed,
    secrets_are_encrypted_and_logs_end,
    nothing_upgrades_under_a_job,
    addons_come_in_order,
    network_policies_count,
    one_kind_of_efa_devices,
    addons_are_pinned,
    the_cni_has_rights_of_its_own,
    the_autoscaler_finds_its_groups,
    device_plugins_come_to_gpu_nodes,
    nodes_have_an_identity_of_their_own,
    everything_is_protected,
    resources_are_labelled,
    down_in_order,
)
