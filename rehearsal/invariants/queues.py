"""Kueue: which workloads wait in which queue, and how its quotas relate to pods and nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import yaml

from rehearsal.clouds.kubernetes.identity import QUEUE
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.engine.kind import Json, value_at
from rehearsal.invariants.invariant import Stack, at, differs, name_of
from rehearsal.invariants.placement import GPU, MachinePool, Pods, pods_of, pools, ray_pods, worker_pools, workloads

FRAMEWORKS = {"RayCluster": "ray.io/raycluster", "RayJob": "ray.io/rayjob", "Job": "batch/job"}
MAX_RUN = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"
REQUESTED = {"cpu", "memory", "ephemeral-storage", GPU}
"""Resources that a request for queued nodes may contain: GKE refuses others (skypilot-org/skypilot #3837)."""


@dataclass(frozen=True)
class Flavor:
    """ResourceFlavor with its quota in the ClusterQueue and the pools that have its labels."""

    name: str
    spec: Json
    quota: Mapping[str, Decimal]
    pools: list[MachinePool]

    def takes(self, pods: Pods) -> bool:
        """Return whether these are the nodes for pods: those of workers for workers."""
        return self.workers == pods.workers

    @property
    def workers(self) -> bool:
        """Whether these are nodes of workers."""
        return any(pool.workers for pool in self.pools)


def workloads_wait_in_the_queue(stack: Stack) -> Iterator[str]:
    """With `queue: kueue`, the workload starts suspended in a LocalQueue, whose ClusterQueue admits its namespace
    alone, and Kueue manages its kind; otherwise there is no queue. On a user's cluster the LocalQueue is theirs."""
    queued, users = stack.cluster.queue == "kueue", stack.on_users_cluster
    counts = [len(stack.charts("kueue")), len(stack.of("ClusterQueue")), len(stack.of("LocalQueue"))]
    yield from differs("releases, ClusterQueues, LocalQueues", counts, [int(queued and not users)] * 3)
    for workload in workloads(stack) if users else ():
        waits = [(at(workload, "metadata.labels") or {}).get(QUEUE), bool(at(workload, "spec.suspend"))]
        yield from differs(f"{workload.name}: queue and suspend", waits, [stack.cluster.local_queue, queued])
    for workload in workloads(stack) if queued and not users else ():
        namespace = at(workload, "metadata.namespace")
        (local,), (queue,) = stack.of("LocalQueue"), stack.of("ClusterQueue")
        found = (at(workload, "metadata.labels") or {}).get(QUEUE)
        yield from differs(f"{workload.name}: queue", found, name_of(local))
        yield from differs(f"{local.name}: queue", at(local, "spec.clusterQueue"), name_of(queue))
        admitted = at(queue, "spec.namespaceSelector.matchLabels")
        yield from differs(f"{queue.name}: namespaces", admitted, {"kubernetes.io/metadata.name": namespace})
        yield from differs(f"{workload.name}: suspend", at(workload, "spec.suspend"), True)
        managed = value_at(_configuration(stack), "integrations.frameworks") or []
        if FRAMEWORKS[workload.type.rpartition(":")[2]] not in managed:
            yield f"{workload.name}: Kueue manages {managed}"


def quotas_are_between_pods_and_nodes(stack: Stack) -> Iterator[str]:
    """A flavor's quota covers everything that Ray's pods for its nodes request, and no more than its largest number of
    nodes can give them; that of CPU nodes has no devices."""
    for flavor in _flavors(stack):
        requests = [(pods, _asks(stack, pods)) for pods in ray_pods(stack) if flavor.takes(pods)]
        nodes = sum(pool.most for pool in flavor.pools)
        for pods, asks in requests:
            for resource, each in asks.items():
                if each * pods.count > flavor.quota.get(resource, 0):
                    yield f"{flavor.name}: {flavor.quota.get(resource)} {resource} for {pods.count} {pods} with {each}"
        for resource, quota in flavor.quota.items():
            most = nodes * max((asks.get(resource, Decimal(0)) for _, asks in requests), default=Decimal(0))
            if quota > most and (flavor.workers or resource not in ("cpu", "memory")):
                yield f"{flavor.name}: {quota} {resource}, and {nodes} nodes have {most}"


def flavors_are_the_nodes_of_the_stack(stack: Stack) -> Iterator[str]:
    """A flavor selects pools of the stack, with GPUs if its quota has them, and every GPU pool has one; pods select the
    nodes of their only flavor themselves, or Kueue would write selectors into the program's objects."""
    flavors = _flavors(stack)
    for flavor in flavors:
        alike = {(pool.workers, bool(pool.gpus)) for pool in flavor.pools}
        if alike != {(flavor.workers, bool(flavor.quota.get(GPU)))}:
            yield f"{flavor.name} selects {[pool.name for pool in flavor.pools]}"
        yield from differs(f"{flavor.name}: tolerations", flavor.spec.get("tolerations"), None)
    if flavors:
        found = {pool.name for flavor in flavors for pool in flavor.pools}
        yield from differs("pools with a flavor", found, {pool.name for pool in pools(stack)})
        yield from differs("flavors", {one.name for one in flavors}, set(map(name_of, stack.of("ResourceFlavor"))))
    for pods in ray_pods(stack):
        fitting = [flavor for flavor in flavors if flavor.takes(pods)]
        selector = (pods.spec.get("nodeSelector") or {}).items()
        for labels in (flavor.spec["nodeLabels"].items() for flavor in fitting):
            if not labels <= selector if len(fitting) == 1 else labels & selector:
                yield f"{pods} select {dict(selector)}, and their {len(fitting)} flavors {dict(labels)}"


def queued_nodes_are_requested(stack: Stack) -> Iterator[str]:
    """Exactly the flavors of queued pools have the admission check that requests nodes; a request is for one set of
    pods with GPUs, resources that GKE knows, and the run time of the pool's nodes."""
    queued = [pool for pool in worker_pools(stack) if at(pool.node, "queuedProvisioning.enabled")]
    named = {name_of(node): at(node, "spec.managedResources") for node in stack.of("ProvisioningRequestConfig")}
    checks = stack.of("AdmissionCheck")
    flavors = [flavor.name for flavor in _flavors(stack) if any(pool in queued for pool in flavor.pools)]
    asked = [
        one
        for node in stack.of("ClusterQueue")
        for one in at(node, "spec.admissionChecksStrategy.admissionChecks") or []
    ]
    yield from differs("checks", asked, [{"name": name_of(check), "onFlavors": flavors} for check in checks])
    yield from differs("checks for queued pools", len(checks), int(bool(queued)))
    for check in checks:
        yield from differs(f"{check.name}: resources", named[at(check, "spec.parameters.name")], [GPU])
    durations = {at(pool.node, "nodeConfig.maxRunDuration").removesuffix("s") for pool in queued} or {None}
    for workload in workloads(stack):
        limit = (at(workload, "metadata.annotations") or {}).get(MAX_RUN)
        yield from differs(f"{workload.name}: run time", {limit}, durations)
        sets = [set(pods.asks) for pods in pods_of(workload) if pods.gpus]
        if queued and (len(sets) != 1 or not sets[0] <= REQUESTED):
            yield f"{workload.name}: a request would be for {sets}"


def _configuration(stack: Stack) -> Json:
    """Return Kueue's configuration, which is a text in the values of its chart."""
    (release,) = stack.charts("kueue")
    read: Json = yaml.safe_load(at(release, "values.managerConfig.controllerManagerConfigYaml"))
    return read


def _flavors(stack: Stack) -> list[Flavor]:
    """Return the flavors of the ClusterQueue's one resource group."""
    specs = {name_of(node): at(node, "spec") for node in stack.of("ResourceFlavor")}
    found = []
    for queue in stack.of("ClusterQueue"):
        (group,) = at(queue, "spec.resourceGroups")
        for one in group["flavors"]:
            quota = {each["name"]: amount(each["nominalQuota"]) for each in one["resources"]}
            labels = specs[one["name"]]["nodeLabels"].items()
            nodes = [pool for pool in pools(stack) if labels <= pool.labels.items()]
            found.append(Flavor(one["name"], specs[one["name"]], quota, nodes))
    return found


def _asks(stack: Stack, pods: Pods) -> dict[str, Decimal]:
    """Return the requests of one pod, with claimed devices by their name in the quota."""
    asks = pods.asks
    requests = {name_of(node): at(node, "spec.spec.devices.requests") for node in stack.of("ResourceClaimTemplate")}
    for claim in pods.spec.get("resourceClaims") or []:
        for request in requests[claim["resourceClaimTemplateName"]]:
            device = request["exactly"]["deviceClassName"]
            mappings = value_at(_configuration(stack), "resources.deviceClassMappings") or []
            names = [one["name"] for one in mappings if device in one["deviceClassNames"]]
            asks[(names or [device])[0]] = Decimal(request["exactly"]["count"])
    return asks
