"""Ray's own autoscaler v2, limited to its Kubernetes side: its cloud provider for KubeRay, with the head's account.

Real: `KubeRayProvider` of the images' Ray (2.60), which turns "launch" and "terminate" into patches of the RayCluster,
and its account in the head's pod, so that RBAC decides. Simulated: the number of workers, which the test sets and not
Ray's scheduler (no Ray runs in simulated pods).
"""

from __future__ import annotations

from typing import Any, cast

from ray.autoscaler._private.kuberay.node_provider import IKubernetesHttpApiClient
from ray.autoscaler.v2.instance_manager.cloud_providers.kuberay.cloud_provider import KubeRayProvider

from infra.catalog.pins import RAY_API
from tools.kubernetes.api import Api, Json
from tools.kubernetes.control_plane import ControlPlane


class RayAutoscaler:
    """The autoscaler of the RayCluster `cluster`, in the pod of its head, which runs as `account`."""

    def __init__(self, plane: ControlPlane, cluster: str, namespace: str, account: str) -> None:
        self._api = as_account(plane, namespace, account)
        client: Any = _Client(self._api, namespace)
        self._provider: Any = cast(Any, KubeRayProvider)(cluster, {"namespace": namespace}, None, client)
        self._requests = 0

    def workers(self, group: str) -> list[str]:
        """Return the names of the pods of a worker group."""
        found = self._provider.get_non_terminated().values()
        return sorted(each.cloud_instance_id for each in found if each.node_type == group)

    def launch(self, group: str, count: int) -> None:
        """Request that many more workers."""
        self._provider.launch({group: count}, self._next())
        self._raise_errors()

    def terminate(self, *workers: str) -> None:
        """Terminate these workers."""
        self._provider.terminate(list(workers), self._next())
        self._raise_errors()

    def _next(self) -> str:
        self._requests += 1
        return str(self._requests)

    def _raise_errors(self) -> None:
        # It keeps errors for its next round.
        errors = self._provider.poll_errors()
        if errors:
            raise RuntimeError("; ".join(str(error) for error in errors))


def as_account(plane: ControlPlane, namespace: str, account: str) -> Api:
    """Return a client of the ServiceAccount, with a token of the API server."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return Api(plane.url, plane.api.request("POST", path, body=body)["status"]["token"], plane.authority)


class _Client(IKubernetesHttpApiClient):
    """Replaces Ray's own client, which uses the address and token of a pod."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def get(self, path: str) -> Json:
        return self._api.request("GET", self._url(path))

    def patch(self, path: str, payload: Any, content_type: str = "application/json-patch+json") -> Json:
        return self._api.request("PATCH", self._url(path), body=payload, content_type=content_type)

    def delete(self, path: str) -> Json:
        return self._api.request("DELETE", self._url(path))

    def _url(self, path: str) -> str:
        group = f"/apis/{RAY_API}" if path.startswith("rayclusters") else "/api/v1"
        return f"{group}/namespaces/{self._namespace}/{path}"
