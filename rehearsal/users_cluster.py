"""Simulated cluster and network that the user has: what the stack file names is there.

The cluster is that of a stack of target `kubernetes` or of `cluster.existing`, the network that of
`network.subnetwork` or `network.subnets`. Their objects are in the state with those of the stack, but the stack neither
makes, changes nor deletes them. On target `kubernetes`, KubeRay and Kueue are there by a CRD of their group, which a
chart of the stack would install otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.catalog.names import GPU, KUBERAY_LABELS, KUBERAY_NAMESPACE
from infra.catalog.pins import KUBERAY, KUBERNETES_BUILT, OPERATOR_API
from infra.existing.workload import ray_args
from infra.settings import EksSettings, GkeSettings, KubernetesSettings, Settings
from infra.settings.common import pairs
from rehearsal import existing_clusters, users_network
from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.kubernetes.connection import USERS
from rehearsal.engine.kind import Json
from rehearsal.engine.state import View

_QUEUE = "users"
"""ClusterQueue and ResourceFlavor of the user's LocalQueue."""


Users = Mapping[tuple[str, str], Json | None]
"""Objects that the user has, by type and id."""


def prepare(state: View, settings: Settings) -> Users:
    """Add what a stack file names to the user's cluster or network; return the objects as they are then.

    What exists stays as it is.
    """
    if isinstance(settings, GkeSettings | EksSettings):
        theirs = {**dict(users_network.objects(settings)), **dict(existing_clusters.objects(settings))}
        return _put(state, theirs)
    if not isinstance(settings, KubernetesSettings):
        return {}
    state.set(USERS, {"name": settings.context, "version": KUBERNETES_BUILT})
    return _put(state, {(type_, identity.object_id(type_, live, {})): live for type_, live in _objects(settings)})


def _put(state: View, every: Mapping[tuple[str, str], Json]) -> Users:
    for (type_, id_), live in every.items():
        if state.get(type_, id_) is None:
            state.put(type_, id_, live)
    return now(state, every)


def now(state: View, users: Iterable[tuple[str, str]]) -> Users:
    """Return these objects as they are; None for one that is gone."""
    return {key: state.get(*key) for key in users}


def changed(state: View, users: Users) -> Iterator[str]:
    """Yield a line for each of the user's objects that is not as before."""
    for (type_, id_), live in now(state, users).items():
        if live != users[type_, id_]:
            what = "deleted" if live is None else "changed"
            yield f"{what}, although it is the user's: {type_} {id_}"


def _objects(settings: KubernetesSettings) -> Iterator[tuple[str, Json]]:
    place, ray = settings.namespace, settings.ray
    yield _object(identity.NAMESPACE, place)
    yield from _nodes(settings)
    if not settings.install_kuberay:
        yield _object(identity.NAMESPACE, KUBERAY_NAMESPACE)
        yield _definition("rayclusters", "ray.io")
        yield operator("kuberay-operator", KUBERAY_NAMESPACE, {}, [])
    if settings.local_queue is not None:
        yield _definition("localqueues", identity.KUEUE)
        flavor = {"name": _QUEUE, "resources": [{"name": "cpu", "nominalQuota": "1k"}]}
        group = {"coveredResources": ["cpu"], "flavors": [flavor]}
        yield _object(identity.RESOURCE_FLAVOR, _QUEUE, spec={})
        yield _object(identity.CLUSTER_QUEUE, _QUEUE, spec={"resourceGroups": [group]})
        yield _object(identity.LOCAL_QUEUE, settings.local_queue, place, spec={"clusterQueue": _QUEUE})
    if settings.monitoring == "operator":
        yield _definition("podmonitors", OPERATOR_API.partition("/")[0])
    claims = [*pairs(ray.volumes), *([(settings.storage.claim, "")] if settings.storage.claim else [])]
    for name, _ in claims:
        yield _object(identity.CLAIM, name, place, spec={"accessModes": ["ReadWriteMany"]})
    for name in (*(name for name, _ in pairs(ray.secrets)), *ray.pull_secrets):
        yield _object(identity.SECRET, name, place)
    if ray.service_account is not None:
        yield _object(identity.SERVICE_ACCOUNT, ray.service_account, place)
    if ray.priority_class is not None:
        yield _object(identity.PRIORITY_CLASS, ray.priority_class, value=1000)


def _nodes(settings: KubernetesSettings) -> Iterator[tuple[str, Json]]:
    """Yield a node for each worker, which has no room for more, and one for Ray's head and the operators."""
    args = ray_args(settings, "any")
    for name, nodes, pod in (("worker", settings.nodes, args.pod), ("other", settings.other_nodes, args.other_pod)):
        if pod is None:
            continue
        taints = [{"key": GPU, "value": "present", "effect": "NoSchedule"}] if nodes.gpus else []
        taints += [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in pairs(nodes.tolerations)]
        status = {"allocatable": dict(pod.resources["requests"])}
        for number in range(nodes.max):
            labels = dict(pod.node_selector)
            yield _object(identity.NODE, f"{name}-{number}", labels=labels, spec={"taints": taints}, status=status)
    size, labels = {"cpu": "64", "memory": "256Gi"}, dict(pairs(settings.nodes.head_selector))
    yield _object(identity.NODE, "head", labels=labels, spec={}, status={"allocatable": size})


def operator(name: str, namespace: str, labels: Json, watched: list[str]) -> tuple[str, Json]:
    """Return the Deployment of KubeRay, which watches all namespaces if none is given (KubeRay chart, v1.6.2)."""
    arguments = ["--watch-namespace", ",".join(watched)] if watched else []
    container = {"name": name, "image": f"{KUBERAY.image}:v{KUBERAY.version}", "args": arguments}
    spec = {"template": {"spec": {"containers": [container]}}}
    return _object(identity.DEPLOYMENT, name, namespace, labels={**KUBERAY_LABELS, **labels}, spec=spec)


def _definition(plural: str, group: str) -> tuple[str, Json]:
    return _object(identity.DEFINITION, f"{plural}.{group}", spec={"group": group})


def _object(type_: str, name: str, namespace: str = "", labels: Json | None = None, **fields: Any) -> tuple[str, Json]:
    return type_, identity.thing(type_, name, namespace, labels, **fields)
