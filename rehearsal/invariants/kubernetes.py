"""Invariants of the objects in the cluster, for every stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from infra.catalog.pins import KUBERAY
from infra.kubernetes.pods import (
    DASHBOARD_PORT,
    HEAD_ACCOUNT,
    JOB_LABEL,
    KUBERAY_NAMESPACE,
    METRICS_PORTS,
    NAMESPACE,
    TOKEN_KEY,
    WORKER_ACCOUNT,
)
from rehearsal.clouds.kind import value_at
from rehearsal.graph import PROVIDERS, Graph, Node
from rehearsal.invariants.invariant import Invariant, Stack, at, expect

RAY_CLUSTER = "kubernetes:ray.io/v1:RayCluster"
RAY_JOB = "kubernetes:ray.io/v1:RayJob"
JOB = "kubernetes:batch/v1:Job"
LOCAL_QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue"
RELEASE = "kubernetes:helm.sh/v3:Release"
IN_NAMESPACE = (
    RAY_CLUSTER,
    RAY_JOB,
    JOB,
    LOCAL_QUEUE,
    "kubernetes:core/v1:ConfigMap",
    "kubernetes:core/v1:Service",
    "kubernetes:core/v1:ServiceAccount",
    "kubernetes:core/v1:Secret",
    "kubernetes:networking.k8s.io/v1:NetworkPolicy",
    "kubernetes:policy/v1:PodDisruptionBudget",
    "kubernetes:resource.k8s.io/v1:ResourceClaimTemplate",
)
OPEN_KINDS = ("kubernetes:networking.k8s.io/v1:Ingress",)


def ray_clusters(stack: Stack) -> list[Node]:
    """Return the RayClusters, and each RayJob with its cluster's spec instead of its own."""
    jobs = [replace(job, inputs={**job.inputs, "spec": at(job, "spec.rayClusterSpec")}) for job in stack.of(RAY_JOB)]
    return [*stack.of(RAY_CLUSTER), *jobs]


def workloads(stack: Stack) -> list[Node]:
    """Return the Ray workloads: RayClusters, RayJobs or Jobs."""
    return [node for type_ in (RAY_CLUSTER, RAY_JOB, JOB) for node in stack.of(type_)]


def pod_marks(ray: Node) -> dict[str, str]:
    """Return the labels of a Ray cluster's pods: its name, which in a RayJob is random, or the job's."""
    name = at(ray, "metadata.name")
    return {JOB_LABEL if ray.type == RAY_JOB else "ray.io/cluster": name}


def only_the_root_at_top_level(stack: Stack) -> Iterator[str]:
    """Only providers and the stack's one component are at the top level."""
    for node in _top(stack.graph):
        if not node.type.startswith((PROVIDERS, f"rdma-ray:{stack.cloud.target}:")):
            yield f"{node.type} {node.name} does"
    if sum(not node.type.startswith(PROVIDERS) for node in _top(stack.graph)) != 1:
        yield "there is not exactly one component"


def inside_by_the_stacks_provider(stack: Stack) -> Iterator[str]:
    """Objects in the cluster use the stack's own Kubernetes provider, never a default one."""
    for node in _inside(stack):
        if node.provider is None or "::default" in node.provider:
            yield f"{node.name}: its provider is {node.provider}"


def inside_goes_with_the_cluster(stack: Stack) -> Iterator[str]:
    """Every object in the cluster is deleted with the cluster."""
    for node in _inside(stack):
        if node.deleted_with is None or not node.deleted_with.partition("::")[2].endswith("Cluster::cluster"):
            yield f"{node.name} is deleted with {node.deleted_with}"


def provider_follows_the_cluster_only(stack: Stack) -> Iterator[str]:
    """A new address of the control plane does not replace the provider and its objects."""
    for node in stack.of(f"{PROVIDERS}kubernetes"):
        if not node.inputs.get("clusterIdentifier"):
            yield f"{node.name} has no clusterIdentifier"


def nothing_is_public(stack: Stack) -> Iterator[str]:
    """No Service, Ingress or load balancer exposes the cluster."""
    for node in _inside(stack):
        if node.type in OPEN_KINDS or value_at(node.inputs, "spec.type") in ("LoadBalancer", "NodePort"):
            yield f"{node.name} does"


def ray_is_reached_by_few(stack: Stack) -> Iterator[str]:
    """Only Ray's own pods, the operator (dashboard) and the metrics collectors reach Ray's pods."""
    for ray in ray_clusters(stack):
        own = {"matchLabels": pod_marks(ray)}
        policies = [
            policy
            for policy in stack.of("kubernetes:networking.k8s.io/v1:NetworkPolicy")
            if at(policy, "spec.podSelector") == own
        ]
        if len(policies) != 1:
            yield f"{len(policies)} network policies select the pods of {ray.name}"
            continue
        yield from expect(policies[0], spec__policyTypes=["Ingress"])
        peers, operator, metrics = at(policies[0], "spec.ingress")
        if peers != {"from": [{"podSelector": own}]}:
            yield f"{policies[0].name}: its own pods are {peers}"
        for rule, ports in ((operator, [DASHBOARD_PORT]), (metrics, list(METRICS_PORTS))):
            if [(port["port"], port["protocol"]) for port in rule["ports"]] != [(port, "TCP") for port in ports]:
                yield f"{policies[0].name}: {rule['ports']}"
            if not rule["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]:
                yield f"{policies[0].name}: {rule['from']}"
        if not operator["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]:
            yield f"{policies[0].name}: any pod of the operator's namespace has access"


def everything_has_its_place(stack: Stack) -> Iterator[str]:
    """Ray and its objects are in the stack's one namespace, with their own service accounts."""
    for type_ in IN_NAMESPACE:
        for node in stack.of(type_):
            yield from expect(node, metadata__namespace=NAMESPACE)
    tokens = {
        at(account, "metadata.name"): account.inputs.get("automountServiceAccountToken")
        for account in stack.of("kubernetes:core/v1:ServiceAccount")
    }
    # The head's autoscaler, if there is one, uses the API server.
    autoscaled = [bool(at(ray, "spec.enableInTreeAutoscaling")) for ray in ray_clusters(stack)]
    if tokens != ({HEAD_ACCOUNT: any(autoscaled)} if autoscaled else {}) | {WORKER_ACCOUNT: False}:
        yield f"the accounts and their tokens are {tokens}"


def the_token_is_random_and_secret(stack: Stack) -> Iterator[str]:
    """The token is long, random and in a Secret under the key that the operator reads."""
    for password in stack.of("random:index/randomPassword:RandomPassword"):
        if not password.inputs["length"] >= 32 or password.inputs["special"] is not False:
            yield f"{password.name}: {dict(password.inputs)}"
    for secret in stack.of("kubernetes:core/v1:Secret"):
        content = secret.inputs["stringData"]
        # Encrypted as a whole if the state is exported without its secrets.
        if not {TOKEN_KEY, "ciphertext", "plaintext"} & set(content):
            yield f"{secret.name} has {sorted(content)}"


def images_are_pinned(stack: Stack) -> Iterator[str]:
    """Every image and chart has a version."""
    for node in _inside(stack):
        for image in _images(node.inputs):
            if ":" not in image.rpartition("/")[2] or image.endswith(":latest"):
                yield f"{node.name}: {image}"
        if node.type == RELEASE and not node.inputs.get("version"):
            yield f"{node.name}: no version"
    for release in stack.of(RELEASE):
        if release.inputs.get("chart") == "kuberay-operator":
            yield from expect(
                release,
                version=KUBERAY.version,
                atomic=True,
                createNamespace=True,
                namespace=KUBERAY_NAMESPACE,
                repositoryOpts__repo=KUBERAY.repository,
            )
            if not at(release, "values.nodeSelector"):
                yield f"{release.name}: the operator may run on GPU nodes"
            if set(at(release, "values.resources")) != {"requests", "limits"}:
                yield f"{release.name}: the operator has no resource limits"


def only_the_installer_is_privileged(stack: Stack) -> Iterator[str]:
    """Only the NCCL installer is privileged or uses the host's network."""
    for node in _inside(stack):
        text = str(node.inputs)
        if "installer" not in node.name and ("'privileged': True" in text or "'hostNetwork': True" in text):
            yield f"{node.name} is"


def on_the_way_down(graph: Graph, order: list[list[Node]]) -> Iterator[str]:
    """Yield each resource of a group that does not wait for any resource of the next group."""
    for first, then in pairwise(order):
        behind = {node.urn for node in then}
        for node in first:
            if behind and not behind <= graph.needs(node.urn):
                missing = sorted(urn.rpartition("::")[2] for urn in behind - graph.needs(node.urn))
                yield f"{node.name} could be deleted after {', '.join(missing)}"


def _top(graph: Graph) -> list[Node]:
    roots = {node.urn for node in graph.nodes.values() if node.type == "pulumi:pulumi:Stack"}
    return [
        node for node in graph.nodes.values() if node.urn not in roots and (not node.parent or node.parent in roots)
    ]


def _inside(stack: Stack) -> list[Node]:
    return [node for node in stack.graph.managed if node.type.startswith("kubernetes:")]


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "image" and isinstance(item, str):
                yield item
            else:
                yield from _images(item)
    elif isinstance(value, list):
        for item in value:
            yield from _images(item)


INVARIANTS: tuple[Invariant, ...] = (
    only_the_root_at_top_level,
    inside_by_the_stacks_provider,
    inside_goes_with_the_cluster,
    provider_follows_the_cluster_only,
    nothing_is_public,
    ray_is_reached_by_few,
    everything_has_its_place,
    the_token_is_random_and_secret,
    images_are_pinned,
    only_the_installer_is_privileged,
)
