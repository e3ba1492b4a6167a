"""The real KubeRay operator and Kueue with the real scheduler; kwok simulates nodes and pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.catalog.pins import KUBERAY, KUEUE, KUEUE_API, RAY, RAY_API
from tests.kubernetes import stack_objects
from tools.kubernetes import kuberay, kueue
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

WITHIN_S = 60.0
POOL = {"test": "controllers"}
KUEUE_IMAGE = f"{KUEUE.image}:v{KUEUE.version}"


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    """Three 8-GPU nodes of kwok, and the namespace `controllers`."""
    api = plane.api
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "controllers"}})
    resources = {"cpu": "224", "memory": "2900Gi", "nvidia.com/gpu": "8", "pods": "110"}
    names = [f"controllers-{number}" for number in range(3)]
    for name in names:
        api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": POOL}})
        status = {"status": {"capacity": resources, "allocatable": resources}}
        api.patch("v1", "Node", name, None, status, subresource="status")
    yield api
    for name in names:
        api.delete("v1", "Node", name)


def pod(name: str, **limits: str) -> Json:
    container = {"name": name, "image": "image", "resources": {"limits": limits}}
    return {"spec": {"nodeSelector": POOL, "containers": [container]}}


def test_ray_cluster_with_token_starts_and_ends(api: Api) -> None:
    """By KubeRay's operator and the scheduler: a Secret with the token, and each 8-GPU worker on its own node."""
    spec = {
        "rayVersion": RAY,
        "authOptions": {"mode": "token"},
        "headGroupSpec": {"rayStartParams": {}, "template": pod("ray-head", cpu="4", memory="8Gi")},
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": 2,
                "minReplicas": 2,
                "maxReplicas": 2,
                "rayStartParams": {},
                "template": pod("ray-worker", cpu="4", memory="8Gi", **{"nvidia.com/gpu": "8"}),
            }
        ],
    }
    metadata = {"name": "cluster", "namespace": "controllers"}
    api.apply({"apiVersion": RAY_API, "kind": "RayCluster", "metadata": metadata, "spec": spec})

    def ready() -> bool:
        status = (api.get(RAY_API, "RayCluster", "cluster", "controllers") or {}).get("status") or {}
        if status.get("state") != "ready":
            raise NotYet(str(status.get("conditions")))
        return True

    api.until("the RayCluster ready", ready, WITHIN_S)
    workers = api.list("v1", "Pod", "controllers", "ray.io/node-type=worker")
    assert len({worker["spec"]["nodeName"] for worker in workers}) == 2
    secret = api.get("v1", "Secret", "cluster", "controllers")
    assert secret is not None
    assert secret["data"]["auth_token"]
    api.delete(RAY_API, "RayCluster", "cluster", "controllers")
    api.until("its pods gone", lambda: not api.list("v1", "Pod", "controllers"), WITHIN_S)


def test_job_waits_for_quota_and_gets_it(api: Api) -> None:
    """By Kueue's webhook, which suspends the Jobs, and its controllers. The test ends the first one's pod."""
    flavors = [{"name": "controllers", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    queue = {"namespaceSelector": {}, "resourceGroups": groups}
    labels = {"kueue.x-k8s.io/queue-name": "controllers"}
    api.apply({"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "controllers"}})
    api.apply({"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": "controllers"}, "spec": queue})
    metadata: Json = {"name": "controllers", "namespace": "controllers"}
    spec = {"clusterQueue": "controllers"}
    api.apply({"apiVersion": KUEUE_API, "kind": "LocalQueue", "metadata": metadata, "spec": spec})
    template = pod("job", cpu="2")
    template["spec"]["restartPolicy"] = "Never"
    for name in ("first", "second"):
        metadata = {"name": name, "namespace": "controllers", "labels": labels}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
        assert api.create(job)["spec"]["suspend"] is True
        if name == "first":
            api.until("the first runs", lambda: running(api) == ["first"], WITHIN_S)

    api.until("Kueue's word on the second", lambda: quota(api, "second") == "False", WITHIN_S)
    assert running(api) == ["first"]
    (running_pod,) = api.list("v1", "Pod", "controllers")
    name = running_pod["metadata"]["name"]
    api.patch("v1", "Pod", name, "controllers", {"status": {"phase": "Succeeded"}}, subresource="status")
    api.until("the second runs", lambda: running(api) == ["second"], WITHIN_S)
    assert quota(api, "second") == "True"
    for name in ("first", "second"):
        api.delete("batch/v1", "Job", name, "controllers")
    api.delete(KUEUE_API, "LocalQueue", "controllers", "controllers")
    api.delete(KUEUE_API, "ClusterQueue", "controllers")
    api.delete(KUEUE_API, "ResourceFlavor", "controllers")
    # A finalizer of Kueue keeps the flavor until no queue uses it.
    api.until("the flavor gone", lambda: api.get(KUEUE_API, "ResourceFlavor", "controllers") is None, WITHIN_S)


def test_kueue_refuses_by_its_own_webhook(api: Api) -> None:
    """An object that its CRD accepts and its webhook does not: a selector without the values that its operator
    needs."""
    selector = {"matchExpressions": [{"key": "team", "operator": "In"}]}
    queue = {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": "wrong"}}
    with pytest.raises(
        ApiError, match=r'admission webhook "vclusterqueue.kb.io" denied the request: .*namespaceSelector'
    ):
        api.apply(queue | {"spec": {"namespaceSelector": selector}})


def test_kueue_converts_between_its_versions(api: Api) -> None:
    """The API server calls Kueue's conversion webhook for the older version."""
    metadata = {"name": "converted", "namespace": "controllers"}
    api.apply({"apiVersion": KUEUE_API, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": "none"}})
    older = api.get("kueue.x-k8s.io/v1beta1", "LocalQueue", "converted", "controllers")
    assert older is not None
    assert older["spec"]["clusterQueue"] == "none"
    api.delete(KUEUE_API, "LocalQueue", "converted", "controllers")


def running(api: Api) -> list[str]:
    """Return the Jobs with an active pod."""
    jobs = api.list("batch/v1", "Job", "controllers")
    return [job["metadata"]["name"] for job in jobs if (job.get("status") or {}).get("active")]


def quota(api: Api, job: str) -> str | None:
    """Return Kueue's condition for a Job's quota: "True", "False", or None."""
    for workload in api.list(KUEUE_API, "Workload", "controllers"):
        if workload["metadata"]["ownerReferences"][0]["name"] == job:
            conditions = (workload.get("status") or {}).get("conditions") or []
            return next((one["status"] for one in conditions if one["type"] == "QuotaReserved"), None)
    return None


def test_controller_manifests_are_accepted(api: Api) -> None:
    """Accounts, roles, Services, configuration and Deployments that replace the charts', field by field, with a stack's
    values; dry runs only. The tier of real pods runs them."""
    made = kuberay.objects(kuberay.complete(stack_objects.release("gke", "kuberay-operator")))
    made += kueue.objects(kueue.complete(stack_objects.release("gke, queued", "kueue")))
    assert made[0]["kind"] == "Namespace"
    api.apply(made[0], manager="installer", force=True)
    for body in made:
        api.apply(body, dry_run=True, manager="installer", force=True)
    deployments = [body for body in made if body["kind"] == "Deployment"]
    for body, image in zip(deployments, (f"{KUBERAY.image}:v{KUBERAY.version}", KUEUE_IMAGE), strict=True):
        pod = body["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"cloud.google.com/gke-nodepool": "system"}
        [container] = pod["containers"]
        assert container["image"] == image
        assert pod["serviceAccountName"] == body["metadata"]["name"]
