"""The rules about nodes, DaemonSets, containers and workloads: silent on recordings of healthy clusters, and on nothing
else. `test_diagnosis` has faults that have one finding each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Outputs, cluster_outputs, job_stack
from infra.settings import parse
from infra.settings.cloud import CloudSettings
from tests.kubernetes.stack_objects import stacks
from tests.workloads.doctor import cluster_faults, recorded_nodes, states
from tests.workloads.doctor.cluster_faults import crash, daemon, ended, says
from tests.workloads.doctor.fault import named, set_condition
from tests.workloads.doctor.kubernetes_faults import WORKER
from tests.workloads.doctor.states import HOUR, MANAGED_DRANET, NOW, at, body
from tests.workloads.doctor.workload_faults import revoked, workload
from workloads.doctor.conditions import EITHER, is_good
from workloads.doctor.diagnosis import Finding, diagnose
from workloads.doctor.probe import lustre_drivers
from workloads.doctor.state import SYSTEM, State, _system_pods

LINES = [line.split() for text in recorded_nodes.HEALTHY.values() for line in text.splitlines() if line]
TYPES = sorted({(type_, status) for type_, status, _ in LINES})


def found_in(state: State) -> dict[str, Finding]:
    """Return the findings by check: one each."""
    findings = diagnose(state).findings
    assert len({each.check for each in findings}) == len(findings), findings
    return {each.check: each for each in findings}


@pytest.mark.parametrize("name", recorded_nodes.HEALTHY)
@pytest.mark.parametrize("stack", ["gke", "eks"])
def test_conditions_of_healthy_nodes_are_no_finding(stack: str, name: str) -> None:
    state = states.cloud(stack)
    for node in state.kubernetes["nodes"]:
        node["status"]["conditions"] = recorded_nodes.conditions(recorded_nodes.HEALTHY[name], at(NOW - HOUR))
    assert diagnose(state).findings == []


@pytest.mark.parametrize(("type_", "status"), TYPES)
def test_the_other_status_of_each_recorded_condition_is_a_finding(type_: str, status: str) -> None:
    other = {"True": "False", "False": "True"}[status]
    for wrong in ("Unknown", *([] if type_ in EITHER else [other])):
        state = states.cloud("eks" if type_ in recorded_nodes.EKS else "gke")
        says(type_, wrong, "Changed")(state)
        [finding] = diagnose(state).findings
        assert (finding.check, finding.where) == ("nodes", "node gpu-2")
        assert type_ == "Ready" or f"condition {type_} is {wrong}" in finding.cause


def test_polarity_of_types_that_nobody_has_listed() -> None:
    good = ("NvlinkHealthy", "GPUReady", "PodCIDRAvailable", "KubeletConfigOk", "MetadataReachable")
    bad = (
        "GPUNotReady",
        "FabricUnhealthy",
        "NetworkUnavailable",
        "UnhealthyNvidiaDevicePlugin",
        "Readonly",
        "XIDError",
    )
    assert [each for each in good if not is_good(each, "True") or is_good(each, "False")] == []
    assert [each for each in bad if not is_good(each, "False") or is_good(each, "True")] == []
    assert not any(is_good(each, "Unknown") for each in (*good, *bad, *EITHER))


def test_a_silent_kubelet_is_one_finding() -> None:
    """The node controller sets all of the kubelet's conditions to Unknown (kubernetes/kubernetes#48721)."""
    state = states.cloud("gke")
    for type_ in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        says(type_, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")(state)
    assert found_in(state)["nodes"].cause == "the node is not ready"


def test_a_node_without_conditions_is_not_ready() -> None:
    state = states.cloud("gke")
    named(state, "nodes", "gpu-2")["status"]["conditions"] = []
    assert found_in(state)["nodes"].evidence == "no condition"


def test_a_new_node_and_a_new_pod_have_time() -> None:
    state = states.cloud("gke")
    says("NetworkUnavailable", "True", "NodeInitialization", since=at(NOW - 60))(state)
    daemon("fluentbit", containerStatuses=[])(state)
    young = named(state, "system pods", "fluentbit-x")
    young["metadata"]["creationTimestamp"] = young["status"]["conditions"][0]["lastTransitionTime"] = at(NOW - 60)
    daemon("anetd", phase="Failed", containerStatuses=[])(state)  # the one before; anetd-gpu-2 runs
    assert diagnose(state).findings == []
    young["status"]["containerStatuses"] = [crash("ImagePullBackOff")]
    assert found_in(state)["daemons"].where == "pod fluentbit-x on node gpu-2"


def test_restarts_while_a_node_starts_are_no_finding() -> None:
    state = states.cloud("gke")
    running = crash() | {"state": {"running": {}}, "lastState": ended("Error", age=HOUR - 300)}
    daemon("netd", containerStatuses=[running], conditions=states.true("Ready"))(state)
    pod = named(state, "pods", WORKER)
    pod["status"]["initContainerStatuses"] = [
        {"name": "wait", "state": ended("Completed", 0), "lastState": ended("Error")}
    ]
    state.kubernetes["events"] = [
        {
            "reason": "TaintManagerEviction",
            "message": "Cancelling deletion of Pod ray/w",
            "involvedObject": {"name": "w"},
        }
    ]
    assert diagnose(state).findings == []


def test_the_driver_of_managed_dranet_is_the_cause_of_missing_nics() -> None:
    state = states.cloud("gke-dranet")
    cluster_faults.no_driver_on(state)
    found = found_in(state)
    assert {*found} == {"daemons", "nics"}
    assert f"-n {MANAGED_DRANET} logs" in found["daemons"].cure
    assert "networking-dra-driver" in found["nics"].cure
    assert "delete" not in found["nics"].cure


def test_more_nodes_do_not_help_where_a_node_has_lost_a_gpu() -> None:
    state = states.cloud("gke")
    cluster_faults.seven_gpus_and_no_room(state)
    found = {each.check: each for each in diagnose(state).findings}
    assert (found["gpus"].where, found["gpus"].cause[:5]) == ("node gpu-3", "7 of ")
    assert "node gpu-3 offers 7 GPUs" in found["pods"].evidence
    assert "nodes.max" not in found["pods"].cure


@pytest.mark.parametrize("last", [True, False])
def test_the_end_of_max_run_hours_is_told_before_how_to_start_again(last: bool) -> None:
    state = states.cloud("eks, queued", 0)
    workload(("Evicted", "DeactivatedDueToAdmissionCheck", "The workload is deactivated"), active=False)(state)
    revoked(state)
    request, found = diagnose(state).findings
    assert "taken the queued nodes back" in request.cause
    cure = (request if last else found).cure
    assert cure.index("nodes.maxRunHours") < cure.index("from step 0") < cure.index("--resume")
    assert '"active":true' not in request.cure


def test_what_is_usual_after_admission_and_the_end_is_no_finding() -> None:
    state = states.cloud("eks, queued")
    request = body("ProvisioningRequest", "request-1")
    for type_ in ("Accepted", "Provisioned", "BookingExpired"):
        set_condition(request, type_, "True", at(NOW - HOUR), reason=type_)
    state.kubernetes["provisioning requests"] = [request]
    assert diagnose(state).findings == []
    set_condition(state.kubernetes["workloads"][0], "Finished", "True", at(NOW - 60), reason="Succeeded")
    set_condition(request, "CapacityRevoked", "True", at(NOW - 60), reason="CapacityRevoked")
    assert diagnose(state).findings == []


class Answers:
    """A kubectl that has pods of several namespaces."""

    def __init__(self, pods: list[dict[str, Any]]) -> None:
        self.pods = pods

    def get(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        own = f"--namespace={SYSTEM}" in arguments
        assert kind == "pods"
        assert own or arguments == ("--all-namespaces", f"--field-selector=metadata.namespace!={SYSTEM}")
        return [pod for pod in self.pods if (pod["metadata"]["namespace"] == SYSTEM) == own]


def test_the_collector_reads_pods_of_daemon_sets_in_every_namespace() -> None:
    state = states.cloud("gke-dranet")
    daemon("mine", "team")(state)
    pods = state.kubernetes["system pods"]
    for pod in pods:
        pod["spec"] |= {"containers": [{"name": "c", "image": "i", "env": [{"name": "SECRET"}]}], "volumes": []}
    user = body("Pod", "web", {"nodeName": "gpu-1"}, {"phase": "Failed"}, namespace="team")
    own = body("Pod", "dns", {"nodeName": "system-0"}, namespace=SYSTEM)
    found = _system_pods(Answers([*pods, user, own]))  # type: ignore[arg-type]
    assert {pod["metadata"]["name"] for pod in found} == {*(pod["metadata"]["name"] for pod in pods), "dns"}
    assert "SECRET" not in str(found)
    before = diagnose(state).findings
    after = diagnose(state.model_copy(update={"kubernetes": state.kubernetes | {"system pods": found}})).findings
    assert (before == after, [each.check for each in after]) == (True, ["daemons"])


def test_lustre_drivers(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    mounts, modules = tmp_path / "self" / "mounts", tmp_path / "modules"
    modules.write_text("ksocklnd 1 2 - Live 0x0\nlnet 1 2 - Live 0x0\n")
    mounts.write_text("overlay / overlay rw 0 0\n")
    assert lustre_drivers(tmp_path) is None
    mounts.write_text("10.0.0.9@tcp:/fsx /bucket lustre rw 0 0\n")
    assert lustre_drivers(tmp_path) == ["ksocklnd"]
    modules.write_text("kefalnd 1 2 - Live 0x0\nksocklnd 1 2 - Live 0x0\n")
    assert lustre_drivers(tmp_path) == ["ksocklnd", "kefalnd"]


def test_outputs_say_whether_the_folder_is_reached_over_efa() -> None:
    ours = next(ours for name, ours, _ in stacks() if name == "eks-capacity-block")
    settings = parse(ours)
    assert isinstance(settings, CloudSettings)
    for efa in (False, True):
        storage = settings.storage.model_copy(update={"efa": efa})
        changed = settings.model_copy(update={"storage": storage})
        outputs = Outputs.model_validate(cluster_outputs(changed, "ray", "kubeconfig", "token"))
        assert outputs.storage is not None
        assert outputs.storage.efa is efa
        assert "storage" in (job := job_stack(changed, "ray"))
        assert '"efa":' not in job  # it is in the pods' template, whose change would replace a running RayJob
