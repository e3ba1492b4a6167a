"""The stack of Pulumi.gke.yaml on real Kubernetes: its Ray cluster from the head alone to two nodes and back.

Real in all tests: Pulumi's engine, the API server with its admission, RBAC and disruption controller, the scheduler and
KubeRay's operator 1.6.2. Simulated: nodes (kwok reports them as ready), Google Cloud and its controllers in the cluster
(nodes, the resources of networks and of GPUs, the webhook that adds them to pods), and the decisions of Ray's
autoscaler. No container runs. The tests are in the order of the stack's life; each one states what else is shown, and
by which component.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.catalog.fabrics import INSTALLED
from infra.catalog.pins import GKE_NETWORK_API
from infra.kubernetes.pods import HEAD_ACCOUNT, WORKER_ACCOUNT
from tests.clone import executable
from tests.kubernetes.doctor import findings
from tests.kubernetes.queries import (
    GPU,
    RAY,
    WITHIN_S,
    condition,
    destroy,
    gpu_nodes,
    head,
    is_ready,
    name,
    pods,
    rules,
    scale,
    unresolved,
    until_ready,
    workers,
)
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import Api, ApiError, Json

NETWORKS = [f"networking.gke.io.networks/rdma-{nic}" for nic in range(8)]
POOL = "cloud.google.com/gke-nodepool"


@pytest.fixture(scope="module")
def stack(run_stack: Callable[[str], RunningStack]) -> RunningStack:
    return run_stack("gke")


@pytest.fixture(scope="module")
def api(stack: RunningStack) -> Api:
    return stack.api


@pytest.fixture(scope="module")
def two(api: Api) -> list[Json]:
    """Two workers, requested after the head is ready."""
    until_ready(api, 0)
    return scale(api, 2)


def test_head_runs_on_system_pool_without_gpu_nodes(api: Api) -> None:
    """KubeRay creates the head, the scheduler places it. That no other node starts is due to the simulated
    autoscaler."""
    until_ready(api, 0)
    node = api.get("v1", "Node", head(api)["spec"]["nodeName"])
    assert node is not None
    assert node["metadata"]["labels"][POOL] == "system"
    assert not [name(pod) for pod in api.list("v1", "Pod") if pod["status"]["phase"] == "Pending"]
    assert not gpu_nodes(api)


def test_two_workers_get_nodes_with_all_nics(api: Api, two: list[Json]) -> None:
    """KubeRay creates two pods, each gets its own node. Their references exist: kwok runs a pod without them, a kubelet
    does not."""
    nodes = {name(node): node for node in gpu_nodes(api)}
    assert len(nodes) == 2
    assert {pod["spec"]["nodeName"] for pod in two} == set(nodes)
    for node in nodes.values():
        assert node["status"]["allocatable"][GPU] == "8"
        assert [node["status"]["allocatable"].get(network) for network in NETWORKS] == ["1"] * 8
        assert node["metadata"]["labels"][POOL] != "system"
    assert [unresolved(api, pod) for pod in (head(api), *two)] == [[], [], []]


def test_doctor_is_silent_and_names_planted_faults(stack: RunningStack, api: Api, two: list[Json]) -> None:
    """The messages are those of the scheduler and the DaemonSet controller; the autoscaler's event is Google's text."""
    assert findings(stack) == {}
    node = two[0]["spec"]["nodeName"]
    api.create(idle_pod("quota", {"test": "nowhere"}))
    about = {"kind": "Pod", "namespace": RAY, "name": "quota"}
    event = {"reason": "FailedScaleUp", "message": "GCE quota exceeded: GPUS_ALL_REGIONS", "type": "Warning"}
    its = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "quota", "namespace": RAY}}
    api.create(its | event | {"involvedObject": about})
    api.create(idle_pod("tainted", {"kubernetes.io/hostname": node}))
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "no", "resources": {"requests": {"storage": "1Gi"}}}
    its = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": RAY}}
    api.create(its | {"spec": spec})
    nowhere(api, {"test": "nowhere"}, 0)
    found = {where: (check, cause) for (check, where), cause in findings(stack).items()}
    nodes = ", ".join(f"node {each}" for each in sorted(pod["spec"]["nodeName"] for pod in two))
    assert found == {
        "pod quota": ("pods", "no node: the cloud refuses the nodes: the quota of the project or account is used up"),
        "pod tainted": ("pods", "no node: the fitting nodes have a taint that the pod does not tolerate"),
        "PersistentVolumeClaim data": ("volumes", "the volume claim is not bound"),
        nodes: ("installer", "no installer of the NCCL plugin runs there"),
    }
    for kind, each in (("Pod", "quota"), ("Pod", "tainted"), ("PersistentVolumeClaim", "data"), ("Event", "quota")):
        api.delete("v1", kind, each, RAY)
    nowhere(api, None, 2)


def test_ray_starts_only_with_the_settings_of_the_fabric(two: list[Json], tmp_path: Path) -> None:
    """The command that the operator composed, in a shell: first the installer comes late, then its script fails."""
    (command,) = two[0]["spec"]["containers"][0]["args"]
    ray, script = tmp_path / "bin" / "ray", tmp_path / "scripts" / "set_nccl_env.sh"
    for file, text in ((ray, '#!/bin/sh\necho "ray with $SETTINGS"\n'), (script, "export SETTINGS=those\n")):
        executable(file, text)
    line = ["bash", "-c", command.replace("/usr/local/gib", str(tmp_path))]
    environment = {"PATH": f"{ray.parent}:{os.environ['PATH']}"}
    worker = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "waiting for the gIB installer\n"
    (tmp_path / INSTALLED).touch()
    said, _ = worker.communicate(timeout=60)
    assert said.splitlines()[-1] == "ray with those"
    script.write_text("return 1\n")
    failed = subprocess.run(line, env=environment, stdout=subprocess.PIPE, check=False, timeout=60)
    assert (failed.returncode, failed.stdout) == (1, b"")


def test_node_without_a_nic_gets_no_worker(api: Api, two: list[Json]) -> None:
    """The scheduler's own decision, on a free node that lacks only that one resource."""
    like = gpu_nodes(api)[0]
    odd = "seven-nics"
    capacity = {key: value for key, value in like["status"]["capacity"].items() if key != NETWORKS[7]}
    labels = like["metadata"]["labels"] | {"kubernetes.io/hostname": odd}
    taints = [taint for taint in like["spec"].get("taints", []) if not taint["key"].startswith("node.kubernetes.io")]
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": odd, "labels": labels}, "spec": {"taints": taints}}
    # With its status from the start: kwok writes its own amounts to a node without them.
    api.create(body | {"status": {"capacity": capacity, "allocatable": capacity}})
    api.until("the odd node ready", lambda: is_ready(api.get("v1", "Node", odd) or {}), WITHIN_S)
    assert odd not in [pod["spec"]["nodeName"] for pod in scale(api, 3)]
    set_capacity(api, odd, capacity | {NETWORKS[7]: "1"})
    assert odd in [pod["spec"]["nodeName"] for pod in scale(api, 4)]
    extra = [pod for pod in workers(api) if name(pod) not in map(name, two)]
    assert [name(pod) for pod in scale(api, 2, *extra)] == [name(pod) for pod in two]
    api.delete("v1", "Node", odd)


def test_accounts_have_minimal_permissions(stack: RunningStack, two: list[Json]) -> None:
    """The API server's RBAC authorizer with KubeRay's Role. No job reads a token: only the container of the autoscaler,
    which KubeRay adds, and the init container that reads a worker's node mount one."""
    assert rules(stack.plane, HEAD_ACCOUNT) == {
        *(f"{verb} /pods" for verb in ("get", "list", "watch", "patch")),
        "patch /pods/resize",
        *(f"{verb} ray.io/rayclusters" for verb in ("get", "patch")),
    }
    for namespace in ("default", "kube-system", "kuberay-system"):
        assert rules(stack.plane, HEAD_ACCOUNT, namespace) == set()
    assert rules(stack.plane, WORKER_ACCOUNT) == {"get /nodes"}
    assert [with_token(pod) for pod in (head(stack.api), *two)] == [["autoscaler"], ["node-place"], ["node-place"]]


@pytest.mark.usefixtures("two")
def test_network_policy_selects_pods_of_ray(api: Api) -> None:
    """On the labels that KubeRay wrote. Enforcement is not shown here."""
    (policy,) = api.list("networking.k8s.io/v1", "NetworkPolicy", RAY)
    peers = policy["spec"]["ingress"][0]["from"][0]["podSelector"]
    for selector in (policy["spec"]["podSelector"], peers):
        assert [name(pod) for pod in pods(api, selecting(selector))] == [name(pod) for pod in pods(api)]


def test_only_workers_can_be_evicted(api: Api, two: list[Json]) -> None:
    """The disruption controller counts, the API server's eviction refuses. A dry run: the worker stays."""

    def budget() -> Json:
        (found,) = api.list("policy/v1", "PodDisruptionBudget", RAY)
        return found

    api.until("the budget counted", lambda: budget().get("status", {}).get("expectedPods") == 1, WITHIN_S)
    assert [name(pod) for pod in pods(api, selecting(budget()["spec"]["selector"]))] == [name(head(api))]
    evict(api, two[0])
    with pytest.raises(ApiError) as refused:
        evict(api, head(api))
    assert refused.value.status == 429
    (cause,) = refused.value.body["details"]["causes"]
    assert cause["message"] == f"The disruption budget {name(budget())} needs 1 healthy pods and has 1 currently"


@pytest.mark.usefixtures("two")
def test_preview_is_empty_after_controller_writes(stack: RunningStack) -> None:
    """The engine compares with what KubeRay, the requests for workers and the API server wrote to the objects."""
    for arguments in (("--refresh=false",), ()):
        said = stack.engine.preview(*arguments)
        assert said.ok, said.text


def test_only_terminated_workers_and_nodes_are_removed(api: Api, two: list[Json]) -> None:
    """KubeRay deletes only the named worker. The simulated autoscaler removes nodes."""
    idle, busy = two
    stays = head(api)["metadata"]["uid"]
    assert [pod["metadata"]["uid"] for pod in scale(api, 1, idle)] == [busy["metadata"]["uid"]]
    api.until("one GPU node", lambda: len(gpu_nodes(api)) == 1, WITHIN_S)
    assert scale(api, 0, busy) == []
    api.until("no GPU node", lambda: not gpu_nodes(api), WITHIN_S)
    assert head(api)["metadata"]["uid"] == stays
    assert condition(head(api), "Ready")["status"] == "True"


def test_objects_can_be_deleted_one_by_one(stack: RunningStack) -> None:
    """A blocking finalizer would show; GKE's own one is on each parameter set. Then the stack is destroyed, and with
    the cluster an object of another program, whose finalizer no controller processes."""
    parameters = stack.api.list(GKE_NETWORK_API, "GKENetworkParamSet")
    assert [each["metadata"]["finalizers"] for each in parameters] == [["networking.gke.io/gnp-controller"]] * 10
    stack.phases.delete_one_by_one(stack.engine, stack.graph)
    stuck = {"name": "stuck", "namespace": "default", "finalizers": ["example.com/never"]}
    stack.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": stuck})
    destroy(stack)


def idle_pod(its: str, selector: Json) -> Json:
    spec = {"containers": [{"name": "a", "image": "a"}], "nodeSelector": selector}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": its, "namespace": RAY}, "spec": spec}


def nowhere(api: Api, selector: Json | None, left: int) -> None:
    """Set the installer's nodeSelector, and wait until it has this many ready pods."""
    patch = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
    api.patch("apps/v1", "DaemonSet", "nccl-rdma-installer", "kube-system", patch)

    def there() -> bool:
        status = (api.get("apps/v1", "DaemonSet", "nccl-rdma-installer", "kube-system") or {})["status"]
        running = [pod for pod in api.list("v1", "Pod", "kube-system") if name(pod).startswith("nccl-rdma-installer")]
        return (status.get("numberReady", 0), len(running)) == (left, left)

    api.until(f"{left} installers", there, WITHIN_S)


def selecting(selector: Json) -> str:
    """Return an object's label selector as that of a request."""
    assert set(selector) == {"matchLabels"}
    return ",".join(f"{key}={value}" for key, value in selector["matchLabels"].items())


def with_token(pod: Json) -> list[str]:
    """Return the containers that mount a token for the API server."""
    spec = pod["spec"]
    tokens = {volume["name"] for volume in spec["volumes"] if "serviceAccountToken" in str(volume.get("projected"))}
    every = [*spec["containers"], *spec.get("initContainers", [])]
    return [each["name"] for each in every if tokens & {mount["name"] for mount in each["volumeMounts"]}]


def set_capacity(api: Api, node: str, capacity: dict[str, str]) -> None:
    patch = [{"op": "add", "path": f"/status/{key}", "value": capacity} for key in ("capacity", "allocatable")]
    place = f"/api/v1/nodes/{node}/status"
    api.request("PATCH", place, body=patch, content_type="application/json-patch+json")


def evict(api: Api, pod: Json) -> None:
    path = f"/api/v1/namespaces/{RAY}/pods/{name(pod)}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name(pod), "namespace": RAY}}
    api.request("POST", path, query={"dryRun": "All"}, body=body | {"deleteOptions": {"dryRun": ["All"]}})
