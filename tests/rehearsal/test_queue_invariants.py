"""Invariants of the queue and the RayJob: each one holds, and is violated by a change of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rehearsal.clouds.kubernetes.kueue_shapes import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    PROVISIONING,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from rehearsal.fork_server import ForkServer
from rehearsal.graph import Graph, Node
from rehearsal.invariants import queued_capacity, queues, ray, ray_job
from rehearsal.invariants.invariant import Invariant, Stack
from rehearsal.invariants.kubernetes import RAY_CLUSTER, RAY_JOB, RELEASE
from rehearsal.matrix import Cell, deploy
from rehearsal.replay import changed
from rehearsal.workspace import Workspace
from tests.rehearsal.kubernetes_objects import with_

A3U = "a3-ultragpu-8g"
CELLS: Mapping[str, Cell] = {
    "dws": Cell("gke", A3U, "flex-start-queued", None, False, "multi-network", "kueue", "job"),
    "reserved first": Cell("gke", A3U, "reservation", "flex-start-queued", False, "dranet", "kueue", "cluster"),
    "by place": Cell("gke", A3U, "reservation", None, False, "multi-network", "kueue", "indexed-job"),
    "aws": Cell("eks", "p5en.48xlarge", "on-demand", None, False, "efa-dranet", "kueue", "cluster"),
}
"""Queued machines for a RayJob; two flavors with claimed devices; nodes placed by topology; and AWS."""


@pytest.fixture(scope="module")
def stacks(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stack]:
    """The stacks, as the engine registers them."""
    folder = tmp_path_factory.mktemp("queues")
    return {
        name: deploy(cell, Workspace(folder / str(n), fork_server.bin))[1]
        for n, (name, cell) in enumerate(CELLS.items())
    }


@dataclass(frozen=True)
class Broken:
    """Invariant and its violation: another value at a path of a resource's inputs, or a missing resource."""

    invariant: Invariant
    type: str
    path: str = ""
    new: Any = None
    name: str = ""
    stack: str = "dws"

    def __str__(self) -> str:
        return f"{self.invariant.__name__}-{self.path or 'gone'}"


RETRY = "spec/retryStrategy"
QUOTA = "spec/resourceGroups/0/flavors"
CONFIG = "values/managerConfig/controllerManagerConfigYaml"
LABEL = "metadata/labels/kueue.x-k8s.io~queue-name"
LENT = "metadata/annotations/provreq.kueue.x-k8s.io~maxRunDurationSeconds"
CLUSTER = "spec/rayClusterSpec"
HEAD = f"{CLUSTER}/headGroupSpec/template"
WORKERS = f"{CLUSTER}/workerGroupSpecs/0"
BOX = f"{WORKERS}/template/spec/containers/0"
POOL = "gcp:container/nodePool:NodePool"
ON_GKE = "cloud.google.com/gke-nodepool"
GPUS = "nvidia.com~gpu"


def said(stack: Stack, old: str, new: str) -> Any:
    """Return Kueue's configuration with replaced text."""
    (release,) = (node for node in stack.of(RELEASE) if node.name == "kueue")
    text = str(release.inputs["values"]["managerConfig"]["controllerManagerConfigYaml"])
    assert old in text
    return text.replace(old, new)


BROKEN = (
    Broken(queues.there_is_a_queue_where_one_is_asked_for, LOCAL_QUEUE),
    Broken(queues.kueue_is_pinned_and_placed, RELEASE, "version", "0.18.6", "kueue"),
    Broken(queues.kueue_is_pinned_and_placed, RELEASE, "values/controllerManager/nodeSelector", {}, "kueue"),
    Broken(
        queues.kueue_is_pinned_and_placed,
        RELEASE,
        "values/controllerManager/manager/image/repository",
        "us-central1-docker.pkg.dev/k8s-staging-images/kueue",
        "kueue",
    ),
    Broken(queues.kueue_looks_after_what_the_stack_runs, RELEASE, CONFIG, ("ray.io/rayjob", "pod"), "kueue"),
    Broken(
        queues.workloads_are_not_evicted_while_machines_start,
        RELEASE,
        CONFIG,
        ("timeout: 3600s", "timeout: 300s"),
        "kueue",
    ),
    Broken(
        queues.workloads_are_not_evicted_while_machines_start, RELEASE, CONFIG, ("Count: 2", "Count: null"), "kueue"
    ),
    Broken(queues.every_workload_waits_in_the_queue, RAY_JOB, LABEL, "other"),
    Broken(queues.every_workload_waits_in_the_queue, RAY_JOB, "spec/suspend", False),
    Broken(queues.every_workload_waits_in_the_queue, LOCAL_QUEUE, "spec/clusterQueue", "other"),
    Broken(queues.every_workload_waits_in_the_queue, LOCAL_QUEUE, "metadata/namespace", "default"),
    Broken(queues.the_queue_is_for_ray_alone, CLUSTER_QUEUE, "spec/namespaceSelector", {}),
    Broken(queues.queue_has_one_group, CLUSTER_QUEUE, "spec/resourceGroups", []),
    Broken(queues.the_queue_admits_what_the_stack_runs, CLUSTER_QUEUE, f"{QUOTA}/1/resources/2/nominalQuota", "15"),
    Broken(queues.the_queue_admits_what_the_stack_runs, RAY_JOB, f"{BOX}/resources/requests/hugepages-2Mi", "1Gi"),
    Broken(queues.the_queue_admits_what_the_stack_runs, RAY_JOB, f"{HEAD}/spec/nodeSelector", {ON_GKE: "gpu"}),
    Broken(
        queues.every_gpu_flavor_could_take_it,
        CLUSTER_QUEUE,
        f"{QUOTA}/2/resources/2/nominalQuota",
        "8",
        stack="reserved first",
    ),
    Broken(queues.quotas_do_not_exceed_node_capacity, CLUSTER_QUEUE, f"{QUOTA}/1/resources/2/nominalQuota", "17"),
    Broken(queues.quotas_do_not_exceed_node_capacity, CLUSTER_QUEUE, f"{QUOTA}/0/resources/3/nominalQuota", "1Gi"),
    Broken(queues.flavors_are_the_stacks_nodes, RESOURCE_FLAVOR, f"spec/nodeLabels/{ON_GKE.replace('/', '~')}", "gpus"),
    Broken(queues.flavors_are_the_stacks_nodes, POOL, "name", "gpus", "pool-gpu"),
    Broken(
        queues.flavors_are_the_stacks_nodes,
        RESOURCE_FLAVOR,
        "spec/nodeLabels/node.kubernetes.io~instance-type",
        "p5.48xlarge",
        "queue-flavor-gpu",
        "aws",
    ),
    Broken(
        queues.kueue_changes_nothing_that_was_asked_for,
        RESOURCE_FLAVOR,
        "spec/tolerations",
        [{"operator": "Exists"}],
    ),
    Broken(
        queues.kueue_changes_nothing_that_was_asked_for,
        RAY_JOB,
        f"{WORKERS}/template/spec/nodeSelector/{ON_GKE.replace('/', '~')}",
        None,
    ),
    Broken(
        queues.kueue_changes_nothing_that_was_asked_for,
        RAY_CLUSTER,
        "spec/workerGroupSpecs/0/template/spec/nodeSelector",
        {ON_GKE: "gpu"},
        stack="reserved first",
    ),
    Broken(
        queues.claimed_devices_have_a_quota, RELEASE, CONFIG, ("rdma-nics", "nics"), "kueue", stack="reserved first"
    ),
    Broken(
        queues.claimed_devices_have_a_quota,
        "kubernetes:resource.k8s.io/v1:ResourceClaimTemplate",
        "spec/spec/devices/requests/0/exactly/count",
        99,
        stack="aws",
    ),
    Broken(queues.places_are_known, TOPOLOGY, "spec/levels", [{"nodeLabel": "rack"}], stack="by place"),
    Broken(queues.places_are_known, RESOURCE_FLAVOR, "spec/topologyName", None, "queue-flavor-gpu", "by place"),
    Broken(queued_capacity.requests_are_made_for_queued_machines_alone, POOL, "queuedProvisioning", None, "pool-gpu"),
    Broken(
        queued_capacity.requests_are_made_for_queued_machines_alone,
        CLUSTER_QUEUE,
        "spec/admissionChecksStrategy/admissionChecks/0/onFlavors",
        ["reserved", "queued"],
        stack="reserved first",
    ),
    Broken(queued_capacity.requests_are_made_for_queued_machines_alone, CLUSTER_QUEUE, "spec/admissionChecksStrategy"),
    Broken(queued_capacity.a_check_asks_google, ADMISSION_CHECK, "spec/controllerName", "kueue.x-k8s.io/multikueue"),
    Broken(queued_capacity.a_check_asks_google, ADMISSION_CHECK, "spec/parameters/name", "other"),
    Broken(queued_capacity.a_check_asks_google, PROVISIONING, "spec/managedResources", ["cpu"]),
    Broken(queued_capacity.requests_are_retried_for_days, PROVISIONING, f"{RETRY}/backoffLimitCount", 3),
    Broken(queued_capacity.requests_are_retried_for_days, PROVISIONING, f"{RETRY}/backoffMaxSeconds", 86400),
    Broken(
        queued_capacity.a_request_is_for_one_set_of_pods,
        RAY_JOB,
        f"{HEAD}/spec/containers/0/resources/limits/{GPUS}",
        1,
    ),
    Broken(
        queued_capacity.a_request_is_for_one_set_of_pods, RAY_JOB, f"{BOX}/resources/limits/networking.gke.io~nic", 1
    ),
    Broken(queued_capacity.queued_machines_are_tolerated, RAY_JOB, f"{WORKERS}/template/spec/tolerations", []),
    Broken(queued_capacity.requests_match_the_pools_run_time, RAY_JOB, LENT, "60"),
    Broken(queued_capacity.requests_match_the_pools_run_time, RAY_JOB, LENT, None),
    Broken(ray_job.the_ray_job_runs_its_entry_point_once, RAY_JOB, "spec/submissionMode", "K8sJobMode"),
    Broken(ray_job.the_ray_job_runs_its_entry_point_once, RAY_JOB, "spec/entrypoint", "true"),
    Broken(ray_job.the_ray_job_runs_its_entry_point_once, RAY_JOB, "spec/backoffLimit", 3),
    Broken(ray_job.the_ray_job_gives_its_nodes_back, RAY_JOB, "spec/shutdownAfterJobFinishes", False),
    Broken(ray_job.the_ray_job_gives_its_nodes_back, RAY_JOB, "spec/ttlSecondsAfterFinished", 300),
    Broken(ray_job.the_ray_job_has_a_deadline_for_its_machines_alone, RAY_JOB, "spec/preRunningDeadlineSeconds", 3600),
    Broken(ray_job.the_ray_job_has_a_deadline_for_its_machines_alone, RAY_JOB, "spec/activeDeadlineSeconds", 604800),
    Broken(ray.ray_resizes_only_what_may_change, RAY_JOB, f"{CLUSTER}/enableInTreeAutoscaling", True),
    Broken(ray.ray_resizes_only_what_may_change, RAY_JOB, f"{WORKERS}/minReplicas", 0),
    Broken(ray.ray_resizes_only_what_may_change, RAY_JOB, f"{WORKERS}/idleTimeoutSeconds", 60),
    Broken(ray.pods_are_complete, RAY_JOB, f"{HEAD}/metadata/labels", {}),
)


def chosen(stack: Stack, broken: Broken) -> Node:
    """Return the changed resource: the last of its type, or the one with the name."""
    return [node for node in stack.of(broken.type) if broken.name in ("", node.name)][-1]


def broken_stack(stack: Stack, broken: Broken) -> Stack:
    """Return the stack with the change."""
    node = chosen(stack, broken)
    if not broken.path:
        return replace(stack, graph=Graph({urn: each for urn, each in stack.graph.nodes.items() if urn != node.urn}))
    new = said(stack, *broken.new) if broken.path == CONFIG else broken.new
    return replace(stack, graph=changed(stack.graph, node.urn, with_(node.inputs, broken.path, new)))


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_invariant_is_violated_by_its_input(stacks: dict[str, Stack], broken: Broken) -> None:
    stack = stacks[broken.stack]
    assert list(broken.invariant(stack)) == []
    assert list(broken.invariant(broken_stack(stack, broken)))


def test_deletion_order_is_an_invariant(stacks: dict[str, Stack]) -> None:
    stack = stacks["dws"]
    assert list(queues.the_queue_goes_in_order(stack)) == []
    for type_ in (RAY_JOB, LOCAL_QUEUE, CLUSTER_QUEUE, RESOURCE_FLAVOR, ADMISSION_CHECK):
        node = stack.of(type_)[-1]
        loose = replace(node, depends=frozenset(), data=frozenset())
        graph = Graph({**stack.graph.nodes, node.urn: loose})
        assert any(node.name in wrong for wrong in queues.the_queue_goes_in_order(replace(stack, graph=graph)))


def test_every_queue_invariant_has_a_violation() -> None:
    every = {*queues.INVARIANTS, *queued_capacity.INVARIANTS, *ray_job.INVARIANTS} - {queues.the_queue_goes_in_order}
    assert every <= {broken.invariant for broken in BROKEN}


@pytest.mark.parametrize("name", CELLS)
def test_queue_invariants_hold(stacks: dict[str, Stack], name: str) -> None:
    invariants = (*queues.INVARIANTS, *(queued_capacity.INVARIANTS if CELLS[name].target == "gke" else ()))
    assert [wrong for invariant in invariants for wrong in invariant(stacks[name])] == []
