"""Ray's own autoscaler v2, as far as Kubernetes sees it: its cloud provider for KubeRay, with the head's own account.

Real: `KubeRayProvider` of the Ray that the images have (2.60), which turns "launch" and "terminate" into patches of the
RayCluster, and the account that it has in the head's pod, so that RBAC decides what it may. Stand-in: who decides how
many workers there should be, which is the test and not Ray's scheduler (no Ray runs in simulated pods).
"""

from __future__ import annotations

from typing import Any, cast

from ray.autoscaler._private.kuberay.node_provider import IKubernetesHttpApiClient
from ray.autoscaler.v2.instance_manager.cloud_providers.kuberay.cloud_provider import KubeRayProvider

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
        """The names of the pods of a worker group that it sees."""
        found = self._provider.get_non_terminated().values()
        return sorted(each.cloud_instance_id for each in found if each.node_type == group)

    def launch(self, group: str, count: int) -> None:
        """Ask for so many more workers."""
        self._provider.launch({group: count}, self._next())
        self._raise_errors()

    def terminate(self, *workers: str) -> None:
        """Give those workers back."""
        self._provider.terminate(list(workers), self._next())
        self._raise_errors()

    def _next(self) -> str:
        self._requests += 1
        return str(self._requests)

    def _raise_errors(self) -> None:
        # It keeps what went wrong for its next round.
        errors = self._provider.poll_errors()
        if errors:
            raise RuntimeError("; ".join(str(error) for error in errors))


def as_account(plane: ControlPlane, namespace: str, account: str) -> Api:
    """A client that is the ServiceAccount, by a token which the API server issues for it."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return Api(plane.url, plane.api.request("POST", path, body=body)["status"]["token"], plane.authority)


class _Client(IKubernetesHttpApiClient):
    """Ray's own client asks the same, with the address and the token that a pod has."""

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
        group = "/apis/ray.io/v1" if path.startswith("rayclusters") else "/api/v1"
        return f"{group}/namespaces/{self._namespace}/{path}"
