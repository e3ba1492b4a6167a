"""`rdma-ray doctor` on a cluster that the user has: others' objects and a limited account are no findings."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from tests.workloads.doctor import states
from tests.workloads.doctor.states import HOUR, NOW, at, body
from workloads.doctor.diagnosis import diagnose
from workloads.doctor.others import is_controller, of_stack
from workloads.doctor.state import State, StateReader
from workloads.exits import WorkloadError

TEAM = "team-a"


def shared() -> State:
    """Return the state of a healthy stack in a namespace and on nodes that others use, too."""
    state = states.cloud("eks")
    outputs = state.outputs.model_copy(
        update={
            "target": "kubernetes",
            "location": None,
            "machine": None,
            "kubeconfig": None,
            "context": "company",
            "namespace": TEAM,
        }
    )
    found = deepcopy(state.kubernetes)
    # An hour without work is reported of the stack's GPU nodes only.
    [worker, *_] = [each for each in found["pods"] if each["metadata"]["labels"]["ray.io/node-type"] == "worker"]
    other = deepcopy(worker)
    other["metadata"] |= {"name": "other", "labels": worker["metadata"]["labels"] | {"ray.io/cluster": "another"}}
    other["spec"]["nodeName"] = "gpu-9"
    other["status"] |= {"podIP": "10.0.9.9", "phase": "Pending"}
    found["pods"].append(other)
    node = deepcopy(found["nodes"][-1])
    node["metadata"] |= {"name": "gpu-8", "creationTimestamp": at(NOW - 9 * HOUR)}
    node["spec"]["unschedulable"] = True
    found["nodes"].append(node)
    found["volume claims"].append(body("PersistentVolumeClaim", "others", status={"phase": "Pending"}))
    short = {"desiredNumberScheduled": 5, "currentNumberScheduled": 1, "updatedNumberScheduled": 1}
    found["daemon sets"].append(body("DaemonSet", "others", status=short, namespace="others"))
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    found["jobs"].append(body("Job", "another", status=failed))
    return state.model_copy(update={"outputs": outputs, "kubernetes": found})


def test_others_faults_are_no_findings() -> None:
    state = shared()
    assert {each.check for each in diagnose(state).findings} >= {"nodes", "daemons", "volumes", "ray-nodes"}
    own = state.model_copy(update={"kubernetes": of_stack(state.outputs, state.kubernetes)})
    diagnosis = diagnose(own)
    assert (diagnosis.findings, diagnosis.skipped) == ([], {})


def test_the_stacks_own_faults_are_findings_and_cures_name_its_namespace() -> None:
    state = shared()
    [worker, *_] = [pod for pod in state.objects("pods") if pod["spec"]["nodeName"] == "gpu-1"]
    worker["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": at(NOW - HOUR)}]
    [node] = [each for each in state.objects("nodes") if each["metadata"]["name"] == "gpu-2"]
    node["spec"]["unschedulable"] = True
    own = state.model_copy(update={"kubernetes": of_stack(state.outputs, state.kubernetes)})
    findings = {each.check: each for each in diagnose(own).findings}
    assert findings.keys() == {"pods", "nodes"}
    assert findings["nodes"].where == "node gpu-2"
    assert f"kubectl -n {TEAM} logs" in findings["pods"].cure


class LimitedKubectl:
    """A namespace with no pods, and no right to anything else."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def run(self, *arguments: str) -> str:
        if arguments[1] == "--raw":
            return "{}"
        raise WorkloadError("kubectl get secrets: Error from server (Forbidden): secrets is forbidden")

    def get(self, kind: str, *_: str) -> list[dict[str, Any]]:
        if kind in self.allowed:
            return []
        raise WorkloadError(f"kubectl get {kind}: Error from server (Forbidden): {kind} is forbidden")


@pytest.mark.parametrize("allowed", [("pods", "events"), ()])
def test_what_the_account_may_not_read_does_not_count_but_the_pods(allowed: tuple[str, ...]) -> None:
    stack = SimpleNamespace(outputs=shared().outputs, kubectl=LimitedKubectl(*allowed))
    reader = StateReader(stack)  # type: ignore[arg-type]
    reader._kubernetes()
    assert set(reader.unknown) == {"pods"} - {*allowed}
    assert {"nodes", "operators", "secrets", "daemon sets"} <= reader.absent.keys()


@pytest.mark.parametrize(("labels", "expected"), [({"app.kubernetes.io/name": "kuberay-operator"}, True), ({}, False)])
def test_operator_in_any_namespace(labels: dict[str, Any], expected: bool) -> None:
    assert is_controller(body("Deployment", "operator", namespace="platform", labels=labels)) is expected
