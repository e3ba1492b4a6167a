"""The specs of a RayCluster and of a RayJob: how Ray's autoscaler reads them, and how long they wait for nodes.

The reviewed lists of the stack files (tests/rehearsal/golden) have their other values.
"""

from __future__ import annotations

from typing import Any

import pytest

from infra.eks.pod import gpu_pod, queue_args
from infra.eks.workload import ray_args as on_eks
from infra.gke.workload import ray_args as on_gke
from infra.kubernetes.indexed_job import job_spec
from infra.kubernetes.pods import RayArgs
from infra.kubernetes.ray_cluster import ray_cluster_spec, ray_job_spec
from infra.kubernetes.workload_objects import workload
from infra.outputs import JOB_STACK, Outputs
from infra.settings import EksSettings, GkeSettings, parse
from tests.unit.stacks import EKS, GKE, changed, eks

JOB: dict[str, Any] = {"ray.mode": "job", "ray.entrypoint": "python /app/train.py"}
BLOCK = "cr-0123456789abcdef0"


def args_of(stack: dict[str, Any], changes: dict[str, Any]) -> RayArgs:
    settings = parse(changed(stack, changes))
    if isinstance(settings, GkeSettings):
        return on_gke(settings, "a3u-ray")
    assert isinstance(settings, EksSettings)
    return on_eks(settings, "p5-ray")


def test_autoscaler_reads_one_group_of_whole_nodes_from_zero() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    spec = ray_cluster_spec(args_of(GKE, {"nodes.max": 4}))
    seen = _derive_autoscaling_config_from_ray_cr({"metadata": {"name": "a3u-ray", "namespace": "ray"}, "spec": spec})
    group, head = (seen["available_node_types"][name] for name in ("gpu-group", "headgroup"))
    assert (group["min_workers"], group["max_workers"], group["idle_timeout_s"]) == (0, 4, 900)
    assert (group["resources"]["GPU"], group["resources"]["CPU"]) == (8, 220)
    assert (head["resources"]["CPU"], "GPU" in head["resources"]) == (0, False)


@pytest.mark.parametrize(
    ("stack", "changes", "hours"),
    [
        (GKE, {"nodes.capacity": "flex-start"}, 168),
        (GKE, {"nodes.capacity": "spot"}, 168),
        (GKE, {"nodes.capacity": "reservation", "nodes.reservation": "mine"}, 1),
        # The longer wait of both counts.
        (
            GKE,
            {
                "nodes.capacity": "reservation",
                "nodes.reservation": "mine",
                "computeClass": True,
                "nodes.fallback": "spot",
            },
            168,
        ),
        (EKS, {"nodes.capacity": "on-demand"}, 1),
        (EKS, {"nodes.capacity": "reservation", "nodes.reservation": BLOCK}, 1),
        (EKS, {"nodes.capacity": "spot"}, 168),
        (EKS, {"nodes.capacity": "capacity-block", "nodes.reservation": BLOCK}, 168),
    ],
)
def test_ray_waits_as_long_as_its_capacity_may_take(stack: dict[str, Any], changes: dict[str, Any], hours: int) -> None:
    spec = ray_cluster_spec(args_of(stack, changes))
    waits = {item["name"]: item.get("value") for item in spec["autoscalerOptions"]["env"]}
    assert waits["RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"] == str(3600 * hours)
    head = spec["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "value": str(3600 * hours)} in head
    assert ray_job_spec(args_of(stack, changes | JOB))["preRunningDeadlineSeconds"] == 3600 * hours


def test_job_without_a_queue_releases_its_nodes() -> None:
    spec = ray_job_spec(args_of(GKE, JOB))
    assert (spec["submissionMode"], spec["shutdownAfterJobFinishes"], spec["backoffLimit"]) == ("HTTPMode", True, 0)
    assert 0 < spec["ttlSecondsAfterFinished"] <= 600
    assert "activeDeadlineSeconds" not in spec


def stack_in(template: dict[str, Any]) -> Outputs | None:
    """The stack that the pods' first container describes to an entry point; None if it does not."""
    (container,) = template["spec"]["containers"]
    said = [variable["value"] for variable in container["env"] if variable["name"] == JOB_STACK]
    return Outputs.model_validate_json(said[0]) if said else None


@pytest.mark.parametrize("stack", [GKE, EKS])
def test_entry_point_knows_its_stack(stack: dict[str, Any]) -> None:
    """A cluster's head does not: its template would change with every size. A job's has a fixed size."""
    cluster = ray_cluster_spec(args_of(stack, {}))["headGroupSpec"]["template"]
    assert stack_in(cluster) is None
    changes = JOB | {"nodes.max": 6, "ray.maxWorkers": 4, "storage.bucket": "mine"}
    head = ray_job_spec(args_of(stack, changes))["rayClusterSpec"]["headGroupSpec"]["template"]
    indexed = job_spec(args_of(stack, changes | {"ray.mode": "indexed-job"}))["template"]
    for known in (stack_in(head), stack_in(indexed)):
        assert known is not None
        assert (known.target, known.machine) == (stack["target"], stack["nodes"]["machine"])
        assert (known.nodes.default_gang, known.nodes.slots_per_node, known.nodes.elastic) == (4, 8, False)
        assert known.storage is not None
        assert known.storage.path == "/bucket"
        assert known.ray.token.get_secret_value() == ""
        assert known.kubeconfig is None


def test_other_settings_of_a_stack_do_not_replace_its_indexed_job() -> None:
    mode = {"ray.mode": "indexed-job", "ray.entrypoint": "true", "nodes.max": 4, "ray.maxWorkers": 2}
    others: dict[str, Any] = {"nodes.max": 6, "nodes.maxRunHours": 24, "access.publicEndpoint": True, "protect": False}
    others |= {"access.authorizedNetworks": ["203.0.113.7/32"]}
    assert job_spec(args_of(GKE, mode)) == job_spec(args_of(GKE, mode | others))


@pytest.mark.parametrize(("least", "nodes"), [(0, 0), (1, 0), (1, 4)])
def test_elastic_cluster_in_a_queue_is_as_kueue_leaves_it(least: int, nodes: int) -> None:
    """Its annotation, the gate on every pod and the number of workers, from which Kueue counts. It has no topology."""
    changes = {"queue": "kueue", "ray.minWorkers": least, "nodes.min": nodes, "nodes.max": 4}
    reserved = {"nodes.capacity": "reservation", "nodes.reservation": "ours"}
    for args in (args_of(EKS, changes), args_of(GKE, changes | reserved)):
        body = workload(args)
        assert body["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
        assert body["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpu"}
        spec = body["spec"]
        assert (spec["suspend"], spec["enableInTreeAutoscaling"]) == (True, True)
        (group,) = spec["workerGroupSpecs"]
        assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (least, least, 4)
        for template in (spec["headGroupSpec"]["template"], group["template"]):
            assert template["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/elastic-job"}]
            assert "kueue.x-k8s.io/podset-preferred-topology" not in template["metadata"]["annotations"]


@pytest.mark.parametrize("changes", [{"queue": "kueue"}, {}, {"queue": "kueue", **JOB}])
def test_other_workloads_are_not_elastic(changes: dict[str, Any]) -> None:
    text = str(workload(args_of(EKS, changes)))
    assert "elastic-job" not in text
    assert "schedulingGates" not in text


@pytest.mark.parametrize(
    ("machine", "layer"), [("p5en.48xlarge", 3), ("p4d.24xlarge", 3), ("p6-b200.48xlarge", 4), ("p6-b300.48xlarge", 4)]
)
def test_topology_ends_with_the_closest_layer_of_the_machine(machine: str, layer: int) -> None:
    settings = eks({"queue": "kueue", "nodes.machine": machine, "nodes.min": 2, "nodes.max": 2})
    args = queue_args(settings, gpu_pod(settings, settings.machine))
    layers = [f"topology.k8s.aws/network-node-layer-{number}" for number in range(1, layer + 1)]
    assert args.topology == (*layers, "kubernetes.io/hostname")
    assert args.pod.annotations == {"kueue.x-k8s.io/podset-preferred-topology": layers[-1]}
