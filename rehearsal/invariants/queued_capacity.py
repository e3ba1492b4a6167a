"""What a stack on Google Cloud promises about machines that come for a request: who asks, how, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.capacity import GKE_CAPACITIES, MAX_RUN_HOURS
from infra.kubernetes import queue_facts as facts
from rehearsal.clouds.kind import value_at
from rehearsal.clouds.kubernetes.admission import PodSet
from rehearsal.clouds.kubernetes.kueue_shapes import ADMISSION_CHECK, CLUSTER_QUEUE, PROVISIONING
from rehearsal.graph import Node
from rehearsal.invariants.gke_resources import gpu_pools
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import workloads
from rehearsal.invariants.queue_resources import GPU, gpu_flavors, name_of, nodes_of, queued, sets_of, specs

QUEUED_TAINT = "cloud.google.com/gke-queued"
"""GKE taints queued nodes with it (GKE docs provisioningrequest, 2026-04-08)."""
OWN_RESOURCES = {"cpu", "memory", "ephemeral-storage", GPU}
"""What a request for machines may be about: GKE refuses resources that it does not know (skypilot #3837)."""


def queued_pools(stack: Stack) -> list[Node]:
    """The node pools whose nodes come for a request only."""
    return [pool for pool in gpu_pools(stack) if at(pool, "queuedProvisioning.enabled")]


def queued_flavors(stack: Stack) -> list[str]:
    """The flavors of those pools."""
    return [name for name in gpu_flavors(stack) if all(node in queued_pools(stack) for node in nodes_of(stack, name))]


def requests_are_made_for_queued_machines_alone(stack: Stack) -> Iterator[str]:
    """Exactly the flavors of queued pools have the check: others would wait for a request that nobody grants."""
    if stack.settings.queue != "kueue":
        if queued_pools(stack):
            yield "nobody asks for the nodes of a queued pool"
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
    """The check is Kueue's provisioning check, and its configuration asks for queued machines, for pods with GPUs."""
    configs = {name_of(node): node for node in stack.of(PROVISIONING)}
    for check in stack.of(ADMISSION_CHECK):
        yield from expect(check, spec__controllerName=facts.PROVISIONING_CONTROLLER)
        config = configs.get(str(at(check, "spec.parameters.name")))
        if config is None:
            yield f"{check.name}: there is no ProvisioningRequestConfig {at(check, 'spec.parameters.name')}"
            continue
        yield from expect(
            config,
            spec__provisioningClassName=facts.PROVISIONING_CLASS,
            spec__managedResources=[GPU],
            spec__podSetMergePolicy="IdenticalWorkloadSchedulingRequirements",
        )


def requests_are_made_anew_for_days(stack: Stack) -> Iterator[str]:
    """A request that failed is made anew for as long as the way to get machines may take, at least once an hour."""
    for config in stack.of(PROVISIONING):
        retries = at(config, "spec.retryStrategy") or {}
        count, base, most = (
            int(retries.get(key) or 0) for key in ("backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
        )
        waits = [min(base * 2 ** min(number, 30), most) for number in range(count)]
        # The first ones come quicker, so the last may end a little before the wait does.
        promised = 3600 * GKE_CAPACITIES["flex-start-queued"].wait_hours
        if sum(waits) < 0.9 * promised:
            yield f"{config.name}: after {sum(waits)} s it is given up"
        if not 0 < most <= 3600:
            yield f"{config.name}: a request that failed is made anew only after {most} s"


def a_request_is_for_one_set_of_pods(stack: Stack) -> Iterator[str]:
    """A request holds exactly one set of pods, all alike, of resources that GKE knows: it grants no other."""
    for workload in queued(stack) if queued_pools(stack) else ():
        managed = [one for one in sets_of(workload) if GPU in one.asks() and one.count]
        if len({_requirements(one) for one in managed}) != 1:
            yield f"{workload.name}: a request would hold {len(managed)} sets of pods"
        for one in managed:
            foreign = sorted(one.asks().keys() - OWN_RESOURCES)
            if foreign:
                yield f"{workload.name}: {one.name} asks for {', '.join(foreign)}"


def queued_machines_are_tolerated(stack: Stack) -> Iterator[str]:
    """Workers tolerate the taint of queued nodes: GKE's own nodes would be granted, and stay empty."""
    for workload in workloads(stack) if queued_pools(stack) else ():
        for one in sets_of(workload):
            tolerated = {toleration.get("key") for toleration in one.spec.get("tolerations") or ()}
            if GPU in one.asks() and QUEUED_TAINT not in tolerated:
                yield f"{workload.name}: {one.name} does not tolerate {QUEUED_TAINT}"


def machines_are_lent_for_as_long_as_the_pool_says(stack: Stack) -> Iterator[str]:
    """A request says for how long machines are lent: as long as the pool's nodes may run, seven days at the most."""
    for workload in queued(stack):
        said = (at(workload, "metadata.annotations") or {}).get(facts.MAX_RUN_ANNOTATION)
        for pool in queued_pools(stack):
            longest = str(at(pool, "nodeConfig.maxRunDuration")).removesuffix("s")
            if said != longest or not 0 < int(longest) <= 3600 * MAX_RUN_HOURS:
                yield f"{workload.name}: asked for {said} s, and nodes of {pool.name} run for {longest} s"
        if said is not None and not queued_pools(stack):
            yield f"{workload.name}: asks for machines by request, and there is no queued pool"


def _requirements(one: PodSet) -> str:
    """What Kueue compares when it merges sets of pods (pkg/controller/admissionchecks/provisioning, 0.19.2)."""
    spec = one.spec
    keys = ("nodeSelector", "affinity", "tolerations", "resourceClaims", "schedulingGates")
    return repr((sorted(one.asks().items()), [spec.get(key) for key in keys]))


INVARIANTS: tuple[Invariant, ...] = (
    requests_are_made_for_queued_machines_alone,
    a_check_asks_google,
    requests_are_made_anew_for_days,
    a_request_is_for_one_set_of_pods,
    queued_machines_are_tolerated,
    machines_are_lent_for_as_long_as_the_pool_says,
)
