"""The stack of Pulumi.gke.yaml on real Kubernetes: its Ray cluster from the head alone to two nodes and back.

Real in all tests: Pulumi's engine, the API server with its admission, RBAC and disruption controller, the scheduler,
KubeRay's operator 1.6.2, and Ray 2.60's own code that requests and terminates workers. Simulated: nodes (kwok reports
them as ready), Google Cloud and its controllers in the cluster (nodes, the resources of networks and of GPUs, the
webhook that adds them to pods). No container runs. The tests are in the order of the stack's life; each one states what
else is shown, and by which component.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kubernetes.pods import HEAD_ACCOUNT, WORKER_ACCOUNT, WORKER_GROUP
from rehearsal.cluster.running_stack import RunningStack
from rehearsal.fork_server import ForkServer
from tests.kubernetes.network_policies import admits, selects
from tests.kubernetes.queries import (
    GPU,
    RAY,
    WITHIN_S,
    condition,
    gpu_nodes,
    head,
    is_ready,
    may,
    name,
    pods,
    ray_cluster,
    rules,
    unresolved,
    until_ready,
    workers,
)
from tests.kubernetes.ray_autoscaler import RayAutoscaler, as_account
from tools.kubernetes.api import Api, ApiError, Json

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = [f"networking.gke.io.networks/rdma-{nic}" for nic in range(8)]
POOL = "cloud.google.com/gke-nodepool"


@pytest.fixture(scope="module")
def stack(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("gke") / "stack"
    with RunningStack(
        ROOT / "Pulumi.gke.yaml", folder, changes=("protect=false",), plugins=fork_server.bin
    ) as standing:
        yield standing


@pytest.fixture(scope="module")
def api(stack: RunningStack) -> Api:
    return stack.api


@pytest.fixture(scope="module")
def autoscaler(stack: RunningStack) -> RayAutoscaler:
    until_ready(stack.api, 0)  # it runs in the head's pod, for which the operator creates its role first
    return RayAutoscaler(stack.plane, name(ray_cluster(stack.api)), RAY, HEAD_ACCOUNT)


@pytest.fixture(scope="module")
def two(api: Api, autoscaler: RayAutoscaler) -> list[Json]:
    """Two workers that Ray's autoscaler has requested."""
    autoscaler.launch(WORKER_GROUP, 2)
    return until_ready(api, 2)


def test_head_runs_on_system_pool_without_gpu_nodes(api: Api) -> None:
    """KubeRay creates the head, the scheduler places it. That no other node starts is due to the simulated
    autoscaler."""
    until_ready(api, 0)
    assert is_ready(head(api))
    assert condition(ray_cluster(api), "HeadPodReady")["status"] == "True"
    node = api.get("v1", "Node", head(api)["spec"]["nodeName"])
    assert node is not None
    assert node["metadata"]["labels"][POOL] == "system"
    gpu_workloads = [
        name(pod) for pod in api.list("v1", "Pod") if "Pending" in pod["status"]["phase"] or asks_for_gpus(pod)
    ]
    assert not gpu_workloads
    assert not gpu_nodes(api)


def test_two_workers_get_nodes_with_all_nics(api: Api, autoscaler: RayAutoscaler, two: list[Json]) -> None:
    """Ray's autoscaler requests workers with the head's account, KubeRay creates two pods, each gets its own node."""
    assert autoscaler.workers(WORKER_GROUP) == [name(pod) for pod in two]
    nodes = {name(node): node for node in gpu_nodes(api)}
    assert {pod["spec"]["nodeName"] for pod in two} == set(nodes)
    assert len(nodes) == 2
    for node in nodes.values():
        assert node["status"]["allocatable"][GPU] == "8"
        assert [node["status"]["allocatable"].get(network) for network in NETWORKS] == ["1"] * 8
        assert node["metadata"]["labels"][POOL] != "system"
    assert head(api)["spec"]["nodeName"] not in nodes


def test_worker_pod_has_complete_spec(two: list[Json]) -> None:
    """The API server's defaults and admission, and KubeRay, kept all of it in the pod; the webhook is simulated."""
    pod = two[0]
    (worker, *others) = pod["spec"]["containers"]
    assert not others
    assert worker["resources"]["requests"] == worker["resources"]["limits"]
    assert worker["resources"]["limits"][GPU] == "8"
    assert [worker["resources"]["limits"].get(network) for network in NETWORKS] == ["1"] * 8
    interfaces = json.loads(pod["metadata"]["annotations"]["networking.gke.io/interfaces"])
    assert [each["network"] for each in interfaces] == ["default", "gvnic-1", *(f"rdma-{nic}" for nic in range(8))]
    assert pod["metadata"]["annotations"]["networking.gke.io/default-interface"] == "eth0"
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    mounted = {mount["mountPath"]: mount["name"] for mount in worker["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes[mounted["/usr/local/gib"]]["hostPath"]["path"] == "/home/kubernetes/bin/gib"
    assert volumes[mounted["/usr/local/nvidia"]]["hostPath"]["path"] == "/home/kubernetes/bin/nvidia"
    assert volumes[mounted["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
    assert worker["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    # The operator puts the setup before the `ray start` that it generates, and names the head.
    (command,) = worker["args"]
    assert command.index("set_nccl_env.sh") < command.index("ray start")
    environment = {each["name"]: each.get("value") for each in worker["env"]}
    assert environment["RAY_ADDRESS"].startswith(f"{pod['metadata']['labels']['ray.io/cluster']}-head-svc.{RAY}.svc.")


def test_pod_references_exist(api: Api, two: list[Json]) -> None:
    """Secrets with their keys, accounts, config maps, claims: kwok runs a pod without them, a kubelet does not."""
    assert {name(pod): unresolved(api, pod) for pod in [head(api), *two]} == {
        name(pod): [] for pod in [head(api), *two]
    }


def test_node_without_a_nic_gets_no_worker(api: Api, autoscaler: RayAutoscaler, two: list[Json]) -> None:
    """The scheduler's own decision, on a free node that lacks only that one resource."""
    like = gpu_nodes(api)[0]
    odd = "seven-nics"
    capacity = {key: value for key, value in like["status"]["capacity"].items() if key != NETWORKS[7]}
    labels = like["metadata"]["labels"] | {"kubernetes.io/hostname": odd}
    taints = [taint for taint in like["spec"].get("taints", []) if not taint["key"].startswith("node.kubernetes.io")]
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": odd, "labels": labels}, "spec": {"taints": taints}}
    api.apply(body)
    set_capacity(api, odd, capacity)
    api.until("the odd node ready", lambda: is_ready(api.get("v1", "Node", odd) or {}), WITHIN_S)
    autoscaler.launch(WORKER_GROUP, 1)
    assert odd not in [pod["spec"]["nodeName"] for pod in until_ready(api, 3)]
    set_capacity(api, odd, capacity | {NETWORKS[7]: "1"})
    autoscaler.launch(WORKER_GROUP, 1)
    assert odd in [pod["spec"]["nodeName"] for pod in until_ready(api, 4)]
    extra = [pod for pod in workers(api) if name(pod) not in map(name, two)]
    autoscaler.terminate(*map(name, extra))
    assert [name(pod) for pod in until_ready(api, 2)] == [name(pod) for pod in two]
    api.delete("v1", "Node", odd)


def test_head_account_has_minimal_permissions(stack: RunningStack, api: Api) -> None:
    """The API server's RBAC authorizer with KubeRay's Role; permissions of all users (discovery, reviews) are left
    out."""
    everybody = rules(as_account(stack.plane, "default", "default"), RAY)
    ray = rules(as_account(stack.plane, RAY, HEAD_ACCOUNT), RAY) - everybody
    assert ray == {
        *(f"{verb} /pods" for verb in ("get", "list", "watch", "patch")),
        "patch /pods/resize",
        *(f"{verb} ray.io/rayclusters" for verb in ("get", "patch")),
    }
    for namespace in ("default", "kube-system", "kuberay-system"):
        assert rules(as_account(stack.plane, RAY, HEAD_ACCOUNT), namespace) == everybody
    assert may(api, HEAD_ACCOUNT, "patch", "rayclusters", group="ray.io")
    for verb, resource in (("get", "secrets"), ("create", "pods"), ("create", "pods/exec"), ("delete", "pods")):
        assert not may(api, HEAD_ACCOUNT, verb, resource), (verb, resource)
    assert not may(api, HEAD_ACCOUNT, "patch", "rayclusters", group="ray.io", namespace="default")


def test_workers_have_no_kubernetes_access(stack: RunningStack, api: Api, two: list[Json]) -> None:
    """The API server's ServiceAccount admission mounts one into the head, and none into a worker."""
    assert [has_token(pod) for pod in two] == [False, False]
    assert has_token(head(api))
    assert rules(as_account(stack.plane, RAY, WORKER_ACCOUNT)) == rules(as_account(stack.plane, "default", "default"))


def test_secret_has_token_and_ray_requires_it(stack: RunningStack, api: Api) -> None:
    """As the API server stores it. KubeRay sets the environment of the head, which the manifest sets as well."""
    options = ray_cluster(api)["spec"]["authOptions"]
    secret = api.get("v1", "Secret", options["secretName"], RAY)
    assert secret is not None
    shown = stack.engine.must("stack", "output", "ray", "--show-secrets", "--json", stack=True).text
    assert base64.b64decode(secret["data"]["auth_token"]).decode() == json.loads(shown)["token"]
    assert len(json.loads(shown)["token"]) >= 32
    (container, *_) = head(api)["spec"]["containers"]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["RAY_AUTH_MODE"]["value"] == "token"
    assert environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == name(secret)


def test_network_policy_restricts_ingress_to_ray(api: Api, two: list[Json]) -> None:
    """On the labels that KubeRay and the API server wrote. Enforcement is not shown here."""
    (policy,) = api.list("networking.k8s.io/v1", "NetworkPolicy", RAY)
    everything = pods(api, "")
    assert [name(pod) for pod in everything if selects(policy["spec"]["podSelector"], pod)] == list(
        map(name, everything)
    )
    one, other = two
    stranger = like_pod("stranger", RAY, {})
    operator = like_pod("operator", "kuberay-system", {"app.kubernetes.io/name": "kuberay-operator"})
    unrelated = like_pod("unrelated", "kuberay-system", {})
    for port in (6379, 8265, 10001, 30000):
        assert admits(api, head(api), port, one)
        assert admits(api, one, port, other)
        assert not admits(api, head(api), port, stranger)
        assert not admits(api, head(api), port, unrelated)
        assert not admits(api, one, port, like_pod("other", "default", dict(other["metadata"]["labels"])))
        assert admits(api, head(api), port, operator) == (port == 8265)


def test_only_workers_can_be_evicted(api: Api, two: list[Json]) -> None:
    """The disruption controller counts, the API server's eviction refuses. A dry run: the worker stays."""
    (budget,) = api.list("policy/v1", "PodDisruptionBudget", RAY)
    api.until("the budget counted", lambda: budget_status(api).get("expectedPods") == 1, WITHIN_S)
    assert budget_status(api)["disruptionsAllowed"] == 0
    assert selects(budget["spec"]["selector"], head(api))
    evict(api, two[0])
    with pytest.raises(ApiError) as refused:
        evict(api, head(api))
    assert refused.value.status == 429
    (cause,) = refused.value.body["details"]["causes"]
    assert cause["message"] == f"The disruption budget {name(budget)} needs 1 healthy pods and has 1 currently"


def test_preview_is_empty_after_controller_writes(stack: RunningStack, api: Api, two: list[Json]) -> None:
    """The engine compares with what KubeRay, Ray's autoscaler and the API server wrote to the objects."""
    assert len(two) == ray_cluster(api)["spec"]["workerGroupSpecs"][0]["replicas"]
    for arguments in ((), ("--refresh",)):
        said = stack.engine.preview(*arguments)
        assert said.ok, said.text


def test_only_terminated_workers_and_nodes_are_removed(api: Api, autoscaler: RayAutoscaler, two: list[Json]) -> None:
    """Ray names the idle worker, KubeRay deletes only that one. The simulated autoscaler removes nodes."""
    idle, busy = two
    stays = head(api)["metadata"]["uid"]
    autoscaler.terminate(name(idle))
    assert [pod["metadata"]["uid"] for pod in until_ready(api, 1)] == [busy["metadata"]["uid"]]
    api.until("one GPU node", lambda: len(gpu_nodes(api)) == 1, WITHIN_S)
    autoscaler.terminate(name(busy))
    assert until_ready(api, 0) == []
    api.until("no GPU node", lambda: not gpu_nodes(api), WITHIN_S)
    assert head(api)["metadata"]["uid"] == stays


def test_stack_deletes_without_leftovers(stack: RunningStack) -> None:
    """Each object individually, so that a blocking finalizer would show; then the stack. The API server has 0 objects
    left."""
    stack.phases.delete_one_by_one(stack.engine, stack.graph)
    said = stack.engine.destroy()
    assert said.ok, said.text
    assert stack.phases.left() == []
    stack.controllers.check()


def asks_for_gpus(pod: Json) -> bool:
    return any(GPU in (one.get("resources", {}).get("requests") or {}) for one in pod["spec"]["containers"])


def has_token(pod: Json) -> bool:
    """Return whether a token for the API server is mounted."""
    return any(
        "serviceAccountToken" in source
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    )


def set_capacity(api: Api, node: str, capacity: dict[str, str]) -> None:
    status = {"capacity": capacity, "allocatable": capacity}
    place = f"/api/v1/nodes/{node}/status"
    body = [{"op": "add", "path": f"/status/{key}", "value": value} for key, value in status.items()]
    api.request("PATCH", place, body=body, content_type="application/json-patch+json")


def like_pod(called: str, namespace: str, labels: dict[str, str]) -> Json:
    return {"metadata": {"name": called, "namespace": namespace, "labels": labels}}


def budget_status(api: Api) -> Json:
    (budget,) = api.list("policy/v1", "PodDisruptionBudget", RAY)
    return dict(budget.get("status") or {})


def evict(api: Api, pod: Json) -> None:
    path = f"/api/v1/namespaces/{RAY}/pods/{name(pod)}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name(pod), "namespace": RAY}}
    api.request("POST", path, query={"dryRun": "All"}, body=body | {"deleteOptions": {"dryRun": ["All"]}})
