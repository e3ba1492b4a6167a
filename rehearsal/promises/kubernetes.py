"""What every stack promises about the things inside its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from infra.capacity import GKE_CAPACITIES
from infra.kubernetes.kuberay import VERSION as KUBERAY_VERSION
from infra.kubernetes.ray_manifest import TOKEN_KEY
from rehearsal.clouds.kind import value_at
from rehearsal.graph import PROVIDERS, Graph, Node
from rehearsal.promises.promise import Promise, Stack, at, expect

RAY_CLUSTER = "kubernetes:ray.io/v1:RayCluster"
RELEASE = "kubernetes:helm.sh/v3:Release"
POD_KINDS = ("kubernetes:apps/v1:DaemonSet", "kubernetes:apps/v1:Deployment", RAY_CLUSTER)
OPEN_KINDS = ("kubernetes:networking.k8s.io/v1:Ingress",)


def only_the_root_at_top_level(stack: Stack) -> Iterator[str]:
    """Nothing but providers and the stack's one component stands at the top level."""
    for node in _top(stack.graph):
        if not node.type.startswith((PROVIDERS, f"rdma-ray:{stack.settings.target}:")):
            yield f"{node.type} {node.name} does"
    if sum(not node.type.startswith(PROVIDERS) for node in _top(stack.graph)) != 1:
        yield "there is not exactly one component"


def inside_by_the_stacks_provider(stack: Stack) -> Iterator[str]:
    """Everything in the cluster is made through the stack's own Kubernetes provider, never through a default one."""
    for node in _inside(stack):
        if node.provider is None or "::default" in node.provider:
            yield f"{node.name}: its provider is {node.provider}"


def inside_goes_with_the_cluster(stack: Stack) -> Iterator[str]:
    """Everything in the cluster goes with the cluster."""
    for node in _inside(stack):
        if node.deleted_with is None or not node.deleted_with.partition("::")[2].endswith("Cluster::cluster"):
            yield f"{node.name} is deleted with {node.deleted_with}"


def provider_follows_the_cluster_only(stack: Stack) -> Iterator[str]:
    """Another address of the control plane does not replace the provider, and with it everything inside."""
    for node in stack.of(f"{PROVIDERS}kubernetes"):
        if not node.inputs.get("clusterIdentifier"):
            yield f"{node.name} has no clusterIdentifier"


def ray_needs_a_token(stack: Stack) -> Iterator[str]:
    """Ray answers only to the token: by the operator's own option and by the environment of every container."""
    for ray in stack.of(RAY_CLUSTER):
        yield from expect(ray, spec__authOptions__mode="token")
        secret = at(ray, "spec.authOptions.secretName")
        if secret not in [at(node, "metadata.name") for node in stack.of("kubernetes:core/v1:Secret")]:
            yield f"{ray.name}: there is no Secret {secret}"
        for where, variables in _environments(ray):
            found = {variable["name"]: variable for variable in variables}
            wanted = {"name": secret, "key": TOKEN_KEY}
            if value_at(found, "RAY_AUTH_MODE.value") != "token":
                yield f"{where}: RAY_AUTH_MODE is not token"
            if value_at(found, "RAY_AUTH_TOKEN.valueFrom.secretKeyRef") != wanted:
                yield f"{where}: RAY_AUTH_TOKEN does not come from the Secret"


def nothing_gives_up_before_the_capacity_does(stack: Stack) -> Iterator[str]:
    """A worker may wait for its node as long as the way to get machines may take."""
    nodes = stack.settings.nodes
    ways = [way for way in (nodes.capacity, nodes.fallback) if way in GKE_CAPACITIES]
    promised = 3600 * max((GKE_CAPACITIES[str(way)].wait_hours for way in ways), default=0)
    name = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
    for ray in stack.of(RAY_CLUSTER):
        yield from expect(ray, spec__autoscalerOptions__version="v2", spec__enableInTreeAutoscaling=True)
        variables = {variable["name"]: variable for variable in at(ray, "spec.autoscalerOptions.env") or []}
        if int(value_at(variables, f"{name}.value") or 0) < promised:
            yield f"{ray.name}: {name} is less than {promised}"


def idle_workers_go(stack: Stack) -> Iterator[str]:
    """An idle worker goes after ray.idleMinutes, and the number of workers is the autoscaler's."""
    for ray in stack.of(RAY_CLUSTER):
        idle = 60 * (stack.settings.ray.idle_minutes or 0)
        yield from expect(ray, spec__autoscalerOptions__idleTimeoutSeconds=idle)
        for group in at(ray, "spec.workerGroupSpecs") or []:
            if "replicas" in group:
                yield f"{group['groupName']}: replicas is set"
            if (group.get("minReplicas"), group.get("maxReplicas")) != (
                stack.settings.ray.min_workers,
                stack.settings.ray.max_workers,
            ):
                yield f"{group['groupName']}: {group.get('minReplicas')} to {group.get('maxReplicas')} workers"


def head_takes_no_work(stack: Stack) -> Iterator[str]:
    """The head has no GPU, takes no work, and runs on the system pool."""
    for ray in stack.of(RAY_CLUSTER):
        head = at(ray, "spec.headGroupSpec") or {}
        if value_at(head, "rayStartParams.num-cpus") != "0":
            yield f"{ray.name}: rayStartParams.num-cpus of the head is not 0"
        spec = value_at(head, "template.spec") or {}
        if not spec.get("nodeSelector"):
            yield f"{ray.name}: the head may run anywhere"
        if "gpu" in str(value_at(spec, "containers.0.resources")):
            yield f"{ray.name}: the head asks for a GPU"


def workers_own_their_node(stack: Stack) -> Iterator[str]:
    """The first container of a worker asks for every GPU of the node, with requests equal to limits."""
    for ray in stack.of(RAY_CLUSTER):
        for group in at(ray, "spec.workerGroupSpecs") or []:
            resources = value_at(group, "template.spec.containers.0.resources") or {}
            if not value_at(resources, "limits.nvidia") and "nvidia.com/gpu" not in (resources.get("limits") or {}):
                yield f"{group['groupName']}: no GPU is asked for"
            if resources.get("requests") != resources.get("limits"):
                yield f"{group['groupName']}: requests and limits differ"


def version_is_the_images(stack: Stack) -> Iterator[str]:
    """The operator is told the Ray version that the stack file names."""
    for ray in stack.of(RAY_CLUSTER):
        yield from expect(ray, spec__rayVersion=stack.settings.ray.version)


def nothing_is_public(stack: Stack) -> Iterator[str]:
    """No Service, Ingress or load balancer opens the cluster; the network policy limits who reaches Ray."""
    for node in _inside(stack):
        if node.type in OPEN_KINDS or value_at(node.inputs, "spec.type") in ("LoadBalancer", "NodePort"):
            yield f"{node.name} does"
    for ray in stack.of(RAY_CLUSTER):
        name = at(ray, "metadata.name")
        policies = stack.of("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        selected = [at(policy, "spec.podSelector.matchLabels") for policy in policies]
        if {"ray.io/cluster": name} not in selected:
            yield f"no network policy selects the pods of {name}"


def workers_hold_no_api_token(stack: Stack) -> Iterator[str]:
    """Workers hold no token of the Kubernetes API: a job could otherwise act with it."""
    for ray in stack.of(RAY_CLUSTER):
        for group in at(ray, "spec.workerGroupSpecs") or []:
            if value_at(group, "template.spec.automountServiceAccountToken") is not False:
                yield f"{group['groupName']}: automountServiceAccountToken is not false"


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
            yield from expect(release, version=KUBERAY_VERSION)


def only_the_installer_is_privileged(stack: Stack) -> Iterator[str]:
    """No container is privileged or shares the host's network, but that of the NCCL installer."""
    for node in _inside(stack):
        text = str(node.inputs)
        if "installer" not in node.name and ("'privileged': True" in text or "'hostNetwork': True" in text):
            yield f"{node.name} is"


def on_the_way_down(graph: Graph, order: list[list[Node]]) -> Iterator[str]:
    """Pairs of neighbouring groups in which something does not wait for anything of the next group."""
    for first, then in pairwise(order):
        behind = {node.urn for node in then}
        for node in first:
            if behind and not behind <= graph.needs(node.urn):
                missing = sorted(urn.rpartition("::")[2] for urn in behind - graph.needs(node.urn))
                yield f"{node.name} could go after {', '.join(missing)}"


def _top(graph: Graph) -> list[Node]:
    roots = {node.urn for node in graph.nodes.values() if node.type == "pulumi:pulumi:Stack"}
    return [
        node for node in graph.nodes.values() if node.urn not in roots and (not node.parent or node.parent in roots)
    ]


def _inside(stack: Stack) -> list[Node]:
    return [node for node in stack.graph.made if node.type.startswith("kubernetes:")]


def _environments(ray: Node) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "autoscaler", at(ray, "spec.autoscalerOptions.env") or []
    yield "head", at(ray, "spec.headGroupSpec.template.spec.containers.0.env") or []
    for group in at(ray, "spec.workerGroupSpecs") or []:
        yield group["groupName"], value_at(group, "template.spec.containers.0.env") or []


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


PROMISES: tuple[Promise, ...] = (
    only_the_root_at_top_level,
    inside_by_the_stacks_provider,
    inside_goes_with_the_cluster,
    provider_follows_the_cluster_only,
    ray_needs_a_token,
    nothing_gives_up_before_the_capacity_does,
    idle_workers_go,
    head_takes_no_work,
    workers_own_their_node,
    version_is_the_images,
    nothing_is_public,
    workers_hold_no_api_token,
    images_are_pinned,
    only_the_installer_is_privileged,
)
