"""Invariants of queued capacity on Google Cloud: which requests exist, their contents and retries."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.capacity import GKE_CAPACITIES, MAX_RUN_HOURS
from infra.kubernetes import queue_objects as objects
from rehearsal.clouds.kind import value_at
from rehearsal.clouds.kubernetes.admission import PodSet
from rehearsal.clouds.kubernetes.kueue_shapes import ADMISSION_CHECK, CLUSTER_QUEUE, PROVISIONING
from rehearsal.graph import Node
from rehearsal.invariants.gke_resources import gpu_pools
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import workloads
from rehearsal.invariants.queue_resources import GPU, gpu_flavors, name_of, nodes_of, queued, sets_of, specs

QUEUED_TAINT = "cloud.google.com/gke-queued"
"""Taint of queued nodes (GKE docs provisioningrequest, 2026-04-08)."""
OWN_RESOURCES = {"cpu", "memory", "ephemeral-storage", GPU}
"""Resources that a request may contain: GKE refuses others (skypilot #3837)."""


def queued_pools(stack: Stack) -> list[Node]:
    """Return the node pools whose nodes need a request."""
    return [pool for pool in gpu_pools(stack) if at(pool, "queuedProvisioning.enabled")]


def queued_flavors(stack: Stack) -> list[str]:
    """Return the flavors of those pools."""
    return [name for name in gpu_flavors(stack) if all(node in queued_pools(stack) for node in nodes_of(stack, name))]


def requests_are_made_for_queued_machines_alone(stack: Stack) -> Iterator[str]:
    """Exactly the flavors of queued pools have the check: others would wait for a request that is never granted."""
    if stack.cloud.queue != "kueue":
        if queued_pools(stack):
            yield "no check requests the nodes of a queued pool"
        return
    checked = [
        (check["name"], flavor)
        for spec in specs(stack, CLUSTER_QUEUE).values()
        for check in value_at(spec, "admissionChecksStrategy.admissionChecks") or ()
        for flavor in check.get("onFlavors") or ["every flavor"]
    ]
    wanted = [(name_of(check), flavor) for check in stack.of(ADMISSION_CHECK) for flavor in queued_flavors(stack)]
    if checked != wanted or bool(queued_pools(stack)) != bool(checked):
        yield f"checks are {checked}, and queued flavors {queued_flavors(stack)}"


def a_check_asks_google(stack: Stack) -> Iterator[str]:
    """The check is Kueue's provisioning check, and its configuration requests queued machines for pods with GPUs."""
    configs = {name_of(node): node for node in stack.of(PROVISIONING)}
    for check in stack.of(ADMISSION_CHECK):
        yield from expect(check, spec__controllerName=objects.PROVISIONING_CONTROLLER)
        config = configs.get(str(at(check, "spec.parameters.name")))
        if config is None:
            yield f"{check.name}: no ProvisioningRequestConfig {at(check, 'spec.parameters.name')}"
            continue
        yield from expect(
            config,
            spec__provisioningClassName=objects.PROVISIONING_CLASS,
            spec__managedResources=[GPU],
            spec__podSetMergePolicy="IdenticalWorkloadSchedulingRequirements",
        )


def requests_are_retried_for_days(stack: Stack) -> Iterator[str]:
    """A failed request is retried for as long as the capacity may take, at least once an hour."""
    for config in stack.of(PROVISIONING):
        retries = at(config, "spec.retryStrategy") or {}
        count, base, most = (
            int(retries.get(key) or 0) for key in ("backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
        )
        waits = [min(base * 2 ** min(number, 30), most) for number in range(count)]
        # The first retries are faster, so the last may end a little before the wait does.
        capacity_wait = 3600 * GKE_CAPACITIES["flex-start-queued"].wait_hours
        if sum(waits) < 0.9 * capacity_wait:
            yield f"{config.name}: it gives up after {sum(waits)} s"
        if not 0 < most <= 3600:
            yield f"{config.name}: a failed request is retried only after {most} s"


def a_request_is_for_one_set_of_pods(stack: Stack) -> Iterator[str]:
    """A request has exactly one pod set, of identical pods, with resources that GKE knows; GKE grants no other."""
    for workload in queued(stack) if queued_pools(stack) else ():
        managed = [one for one in sets_of(workload) if GPU in one.asks() and one.count]
        if len({_requirements(one) for one in managed}) != 1:
            yield f"{workload.name}: a request would have {len(managed)} pod sets"
        for one in managed:
            foreign = sorted(one.asks().keys() - OWN_RESOURCES)
            if foreign:
                yield f"{workload.name}: {one.name} requests {', '.join(foreign)}"


def queued_machines_are_tolerated(stack: Stack) -> Iterator[str]:
    """Workers tolerate the taint of queued nodes; otherwise GKE grants nodes that stay empty."""
    for workload in workloads(stack) if queued_pools(stack) else ():
        for one in sets_of(workload):
            tolerated = {toleration.get("key") for toleration in one.spec.get("tolerations") or ()}
            if GPU in one.asks() and QUEUED_TAINT not in tolerated:
                yield f"{workload.name}: {one.name} does not tolerate {QUEUED_TAINT}"


def requests_match_the_pools_run_time(stack: Stack) -> Iterator[str]:
    """A request sets the run time of its nodes: that of the pool's nodes, seven days at most."""
    for workload in queued(stack):
        said = (at(workload, "metadata.annotations") or {}).get(objects.MAX_RUN_ANNOTATION)
        for pool in queued_pools(stack):
            longest = str(at(pool, "nodeConfig.maxRunDuration")).removesuffix("s")
            if said != longest or not 0 < int(longest) <= 3600 * MAX_RUN_HOURS:
                yield f"{workload.name}: requests {said} s, but nodes of {pool.name} run for {longest} s"
        if said is not None and not queued_pools(stack):
            yield f"{workload.name}: needs a ProvisioningRequest, but there is no queued pool"


def _requirements(one: PodSet) -> str:
    """Return what Kueue compares when it merges pod sets (pkg/controller/admissionchecks/provisioning, 0.19.2)."""
    spec = one.spec
    keys = ("nodeSelector", "affinity", "tolerations", "resourceClaims", "schedulingGates")
    return repr((sorted(one.asks().items()), [spec.get(key) for key in keys]))


INVARIANTS: tuple[Invariant, ...] = (
    requests_are_made_for_queued_machines_alone,
    a_check_asks_google,
    requests_are_retried_for_days,
    a_request_is_for_one_set_of_pods,
    queued_machines_are_tolerated,
    requests_match_the_pools_run_time,
)
